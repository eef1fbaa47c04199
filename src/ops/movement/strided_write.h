// Who writes through sizes, strides and an offset (pjrt::write).
#pragma once

#include <optional>

#include "ops/rule/call.h"
#include "ops/rule/emit.h"

namespace tpjrt::ops {

// The update, of which elements that share memory along a dimension are one (fill_ writes one value only): the first stands for all.
Value without_shared(Emit& e, Value update, const Dims& strides);

// The base with the update written over it, by PyTorch, each element in a place of its own. Nothing where it is XLA's. ops/cpu/library_write.cpp
std::optional<Value> library_write(Emit& e, const Call& c);

}  // namespace tpjrt::ops
