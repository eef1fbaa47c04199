// Lowers a call to PyTorch's own CPU kernel, which the program calls (Note [Calls of the CPU's kernels]).
#pragma once

#include "engine/lower/emit_call.h"

namespace tpjrt::engine {

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
