// What the recorder knows of a call it has seen: its signature, and how its results become tensors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/call/arguments.h"
#include "graph/signature.h"

namespace tpjrt::device {

struct Plan {
  // One return of the schema.
  struct Return {
    enum class Kind : uint8_t { kFresh, kFreshList, kArgument, kUndefined, kInteger };
    Kind kind = Kind::kFresh;
    uint32_t first = 0;  // result index, or the argument's index for kArgument
    uint32_t count = 1;
    int64_t integer = 0;  // kInteger: what Meta gave, which follows from the operands' types
  };
  // One mutated tensor: operand `operand` gets result `result` as its new value, after being resized if Meta did.
  struct Write {
    uint32_t operand = 0;
    uint32_t result = 0;
    bool resized = false;
  };

  // The returns at a glance.
  enum class Shape : uint8_t {
    kFresh,      // the results, one a return
    kFreshList,  // the results, as one list
    kArguments,  // arguments handed back, or nothing
    kMixed,
  };

  graph::Signature signature;
  std::vector<Return> returns;
  Shape shape = Shape::kMixed;
  std::vector<Write> writes;
  bool resizes = false;  // some write is to a tensor that Meta resized
  // Scalars among the numbers, and the dtypes of the results: see numbers_fit().
  std::vector<uint32_t> fitted;
  std::vector<c10::ScalarType> fitted_to;
  bool on_host = false;  // the op can't be lowered: what it needs is run, and the host runs it
  std::string host_reason;

  // Calls of this key have a plan for each value of their numbers; nothing else is filled in here.
  bool by_value = false;

  std::vector<uint64_t> key;
  Plan* next = nullptr;  // same hash
};

// Under graph_lock(). Null when the call was never seen.
Plan* find_plan(const Arguments& arguments, uint64_t hash);
// Keeps the plan; if another thread was faster, its plan. Under graph_lock().
Plan* keep_plan(std::unique_ptr<Plan> plan, uint64_t hash);

// Whether the results' dtypes hold every Scalar of the call. If not, check_scalars() has to be asked.
bool numbers_fit(const Plan& plan, c10::ArrayRef<graph::Number> numbers);

// Runs Meta and asks the engine. Throws what Meta throws. Not under graph_lock().
std::unique_ptr<Plan> make_plan(const Operator& op, const c10::IValue* values, const Arguments& arguments);

}  // namespace tpjrt::device
