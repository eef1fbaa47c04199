// Writes through sizes, strides and an offset (pjrt::write).
#pragma once

#include <optional>

#include "ops/rule/call.h"
#include "ops/rule/emit.h"

namespace tpjrt::ops {

// Returns the update with elements that share memory along a dimension merged: the first stands for all (fill_ writes
// only one value).
Value without_shared(Emit& e, Value update, const Dims& strides);

// Returns the base with the update written over it by PyTorch, if each element has a place of its own. Returns
// nothing where XLA writes it. Defined in ops/xla_cpu/library_write.cpp.
std::optional<Value> library_write(Emit& e, const Call& c);

}  // namespace tpjrt::ops
