// The recorder's knowledge of a call that it has seen: its signature, and how its results become tensors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/aten_call/arguments.h"
#include "graph/signature.h"

namespace tpjrt::device {

struct Plan {
  // One return of the schema.
  struct Return {
    enum class Kind : uint8_t { kFresh, kFreshList, kArgument, kUndefined, kInteger };
    Kind kind = Kind::kFresh;
    uint32_t first = 0;  // result index, or for kArgument the argument's index
    uint32_t count = 1;
    int64_t integer = 0;  // kInteger: Meta's result, which follows from the operands' types
  };
  // One mutated tensor: operand `operand` gets result `result` as its new value, and is resized first if Meta resized
  // it.
  struct Write {
    uint32_t operand = 0;
    uint32_t result = 0;
    bool resized = false;
  };

  // A summary of the returns.
  enum class Shape : uint8_t {
    kFresh,      // new tensors, one for each return
    kFreshList,  // new tensors, as one list
    kArguments,  // arguments that are handed back, or nothing
    kMixed,
  };

  graph::Signature signature;
  std::vector<Return> returns;
  Shape shape = Shape::kMixed;
  std::vector<Write> writes;
  bool resizes = false;  // some write is to a tensor that Meta resized
  // Scalars among the numbers, and the dtypes of the results: see scalars_fit().
  std::vector<uint32_t> fitted;
  std::vector<c10::ScalarType> fitted_to;
  bool on_host = false;  // the op can't be lowered: its operands are synced, and the host runs it
  std::string host_reason;

  // Calls with this key have a plan for each value of their numbers; nothing else is filled in here.
  bool by_value = false;

  std::vector<uint64_t> key;
  Plan* next = nullptr;  // the next plan with this hash
};

// Returns the call's plan, or null if it was never seen. Under graph_lock().
Plan* find_plan(const Arguments& arguments, uint64_t hash);
// Keeps and returns the plan, or returns the plan of another thread that was faster. Under graph_lock().
Plan* keep_plan(std::unique_ptr<Plan> plan, uint64_t hash);

// Returns whether the results' dtypes hold every Scalar of the call. If not, check_scalars() must decide.
bool scalars_fit(const Plan& plan, c10::ArrayRef<graph::ScalarValue> scalars);

// Makes a plan: runs Meta and asks the engine. Throws Meta's exceptions. Not under graph_lock().
std::unique_ptr<Plan> make_plan(const Operator& op, const c10::IValue* values, const Arguments& arguments);

}  // namespace tpjrt::device
