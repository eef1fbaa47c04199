// Lowering a call to PyTorch's own CPU kernel, called from within the program (Note [Calls of the CPU's kernels]).
#pragma once

#include "engine/lower/emit_call.h"

namespace tpjrt::engine {

// Whether the call can be lowered so: an op of PyTorch's with a CPU kernel that writes to no argument, or of
// those that draw the ones of kernels/host.
bool is_aten_call(const graph::Signature& signature, ops::Target target);

// The same for an op of this project's that has a CPU kernel (Note [Sparse products]): before its decomposition, where PyTorch's ops are
// called after.
bool is_own_kernel(const graph::Signature& signature, ops::Target target);

// Does the kernel take such arguments, and says nothing? What it refuses or warns of is the host's to say, at the user's line; a
// program's thread has nobody who listens. Tried, where the operands are small.
bool is_implemented(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers);
// Of an op that has another way, PyTorch's or this project's with a CPU kernel: where the table says so of its operands
// (ops::Platforms::aten_from).
bool is_better_by_aten(const graph::Signature& signature, ops::Target target);

// The same in a program whose images lie with the channels last, of an op whose kernel takes them so (aten_from_of_images).
bool are_images_better_by_aten(const graph::Signature& signature, ops::Target target);

// Takes and gives images as they lie, of an op whose kernel does. `key`: of a call that draws.
hlo::Values emit_aten_call(ops::Emit& e, const graph::Signature& signature, const hlo::Values& operands,
                           const std::vector<LoweredNumber>& numbers, const hlo::Value& key);

}  // namespace tpjrt::engine
