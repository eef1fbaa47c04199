// How one signature is lowered: by a rule, through other calls, or by its decomposition. Decided once, when the call is
// first recorded, so that an op that can't be lowered is known at the user's line and not at the sync.
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

// Nodes over placeholders (leaves without data), one an operand.
struct Subgraph {
  std::vector<graph::NodePtr> placeholders;
  std::vector<graph::Value> results;

  // One more placeholder; the tensor to trace with.
  at::Tensor add_placeholder(graph::TypePtr type, c10::DeviceIndex device);
};

// While one is recorded: what is written to are placeholders of its own, which a group's trace around it (group.h) need not
// know.
struct Unwatched : device::WriteWatcher {
  void before_write(device::LazyStorage* /*storage*/) override {}
};

struct GroupBody;

struct CallLowering {
  // A call that does part of the work: the functional partner, or the op on one element of a _foreach_ list. Its operands
  // and numbers are the outer call's, its results are converted to the outer results' types.
  struct InnerCall {
    std::unique_ptr<graph::Signature> signature;
    std::vector<uint32_t> operands, numbers, results;
  };
  const ops::RuleTable::Entry* rule = nullptr;
  std::vector<InnerCall> inner_calls;
  Subgraph decomposition;
  // A loop or a branch (engine/lower/control_flow.h): its condition and body, or what is done when true and when false.
  enum class Control : uint8_t { kNone, kWhile, kIf };
  Control control = Control::kNone;
  std::vector<Subgraph> regions;
  std::shared_ptr<const GroupBody> group;  // calls under a name (engine/lower/group.h); null: no such node
  // A function that is given as StableHLO (engine/lower/foreign_call.h): its name, and the text that it is in.
  std::string function, functions;
  bool by_aten = false;  // PyTorch's CPU kernel, called from within the program (engine/lower/aten_call.h)
};

// Finds the way, which is tried for `target`, and stores it in signature.lowering; false with the reason if there is none.
bool find_lowering(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers, ops::Target target,
                   std::string& reason);
const CallLowering& lowering_of(const graph::Signature& signature);
// The decomposition of a call that a kernel of this project does, for programs that can't call it. Throws ops::Unsupported where
// it has none.
Subgraph decomposition_of(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers);

// What does it: "rule", "decomposition", "kernel" (of PyTorch's, called from the program), or "" of this project's own nodes.
const char* way_of(const graph::Signature& signature);

// PyTorch's own Python decomposition of `op` on the stack's arguments; false when it has none. Installed by the Python room.
using Decomposer = bool (*)(const c10::OperatorHandle& op, torch::jit::Stack& stack);
void install_decomposer(Decomposer decomposer);
// Is one being tried on placeholders in this thread? They have no values.
bool is_tracing_decomposition();

}  // namespace tpjrt::engine
