// Emits StableHLO for signatures and lowered operands, by rules, inner calls and decompositions alike.
#pragma once

#include <c10/util/ArrayRef.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "engine/lower/call_lowering.h"
#include "graph/node.h"
#include "ops/rule/emit.h"

namespace tpjrt::engine {

// A lowered scalar of a call.
struct LoweredScalar {
  graph::ScalarValue number;
  hlo::Value value;        // 0-d f64, s64, kPred or c128
  bool varies = false;     // an input of the program
  bool* pinned = nullptr;  // set when a rule needs to know the value
};

// Emits one call. The results have the order and types of signature.results. `key` is for random ops.
hlo::Values emit_call(ops::Emit& e, const graph::Signature& signature, const hlo::Values& operands,
                      const std::vector<LoweredScalar>& scalars, const hlo::Value& key);

// Emits the nodes of a decomposition or a region, with operands in place of its placeholders.
hlo::Values emit_subgraph(ops::Emit& e, const Subgraph& graph, const hlo::Values& operands, const hlo::Value& key);

// Derives the key of one draw from a key for several.
hlo::Value derived_key(ops::Emit& e, const hlo::Value& key, int64_t index);

// Returns a module of this call alone, whose parameters are its operands. Scalars are constants, and keys are left out.
// It serves to try a call: rules while it is recorded, XLA when it rejects a graph. Throws the rule's exceptions.
std::string emit_alone(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars,
                       ops::Target target);

// Returns true if the call's program has runtime assertions about its data (Note [Runtime assertions]), or if it can't
// be emitted.
bool requires_of_data(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars);

// Returns true if the call can be emitted. Otherwise sets the reason: a rule threw Unsupported or emitted ops of wrong
// types. Wrong types throw InternalError in strict mode. Sets `ops` to the number of ops if it can be emitted.
bool try_emit(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars, ops::Target target,
              std::string& reason, int64_t& ops);

// Python turns an InternalError of a rule into another exception. The first function forgets this thread's last
// InternalError, the second throws it again if one occurred since.
void forget_wrong_rule();
void rethrow_wrong_rule();

// Returns a constant 0-d value of the scalar's own type.
hlo::Value constant_of(ops::Emit& e, const graph::ScalarValue& number);

// Lowers a call to PyTorch's own CPU kernel, which the program calls (Note [Calls of the CPU's kernels]).

// Returns true if a custom call can run this call: an ATen op with a CPU kernel that writes to no argument, or a random
// op of kernels/host.
bool is_aten_call(const graph::Signature& signature, ops::Target target);

// Returns true for a call of this project's own ops with a CPU kernel (Note [Sparse products]). They prefer the kernel
// to their decomposition, while ATen ops try it last.
bool is_own_kernel(const graph::Signature& signature, ops::Target target);

// Returns true if the kernel takes such arguments without a warning. Its errors and warnings belong to the host, at the
// user's line, because nobody hears them on a program's thread. Small operands are tried.
bool is_implemented(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars);
// Returns true if the op has another lowering but the table prefers PyTorch's kernel for these operands
// (ops::Platforms::aten_from).
// (ops::Platforms::aten_from).
bool is_better_by_aten(const graph::Signature& signature, ops::Target target);

// Likewise in a program with NHWC images, for an op whose kernel takes that layout (aten_from_nhwc).
bool is_nhwc_better_by_aten(const graph::Signature& signature, ops::Target target);

// Emits the call. Images keep their layout if the op's kernel supports it. `key`: for random ops.
hlo::Values emit_aten_call(ops::Emit& e, const graph::Signature& signature, const hlo::Values& operands,
                           const std::vector<LoweredScalar>& scalars, const hlo::Value& key);

}  // namespace tpjrt::engine
