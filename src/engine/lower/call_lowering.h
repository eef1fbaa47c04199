// The lowering of one signature: by a rule, through other calls, or by its decomposition. It is chosen when the call is
// first recorded, so that an op that can't be lowered is reported at the user's line and not at the sync.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <memory>
#include <string>
#include <vector>

#include "device/tensor/access.h"
#include "graph/node.h"
#include "ops/rule/rules.h"

namespace tpjrt::engine {

// A graph over placeholders (leaves without data), one for each operand.
struct Subgraph {
  std::vector<graph::NodePtr> placeholders;
  std::vector<graph::Value> results;

  // Appends a placeholder. Returns the tensor to trace with.
  at::Tensor add_placeholder(graph::TypePtr type, c10::DeviceIndex device);
};

// Hides a trace's writes from the trace of a surrounding group (group.h): they go to the inner trace's own
// placeholders.
struct Unwatched : device::WriteWatcher {
  void before_write(device::LazyStorage* /*storage*/) override {}
};

struct GroupBody;

struct CallLowering {
  // A call that does part of the work: the functional variant, or the op on one element of a _foreach_ list. It uses
  // operands and scalars of the outer call, and its results are converted to the outer results' types.
  struct InnerCall {
    std::unique_ptr<graph::Signature> signature;
    std::vector<uint32_t> operands, scalars, results;
  };
  const ops::RuleTable::Entry* rule = nullptr;
  std::vector<InnerCall> inner_calls;
  Subgraph decomposition;
  // Loops and branches (engine/lower/control_flow.h): the regions are condition and body, or the two branches.
  enum class Control : uint8_t { kNone, kWhile, kIf };
  Control control = Control::kNone;
  std::vector<Subgraph> regions;
  std::shared_ptr<const GroupBody> group;  // a named group of calls (engine/lower/group.h); null: not one
  // A function given as StableHLO (engine/lower/foreign_module.h): its name and the text that contains it.
  std::string function, functions;
  bool by_aten = false;  // a PyTorch CPU kernel (engine/lower/emit_call.h)
  int64_t ops = 1;       // StableHLO ops that it emits
};

// Finds a lowering, tries it for `target`, and stores it in signature.lowering. Returns false with the reason if there
// is none.
bool find_lowering(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars, ops::Target target,
                   std::string& reason);
const CallLowering& lowering_of(const graph::Signature& signature);
// Returns the decomposition of a call that one of this project's kernels runs, for programs that can't call the kernel.
// Throws ops::Unsupported if there is none.
Subgraph decomposition_of(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars);

// Returns the kind of lowering: "rule", "decomposition", "kernel" (PyTorch's, called from the program), or "" for
// internal nodes.
const char* way_of(const graph::Signature& signature);

// Applies PyTorch's Python decomposition of `op` to the stack; false if there is none. The Python room installs it.
using Decomposer = bool (*)(const c10::OperatorHandle& op, torch::jit::Stack& stack);
void install_decomposer(Decomposer decomposer);
// Returns true while this thread tries a decomposition on placeholders, which have no values.
bool is_tracing_decomposition();

}  // namespace tpjrt::engine
