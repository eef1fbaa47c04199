// Random numbers from the key of a call.
//
// Each use in one call draws new numbers. The streams are not those of the CPU.
#pragma once

#include "ops/rule/emit.h"

namespace tpjrt::ops {

// Returns uniform bits of an unsigned type.
Value random_bits(Emit& e, const Call& c, const Type& type);
// Returns uniform numbers in [0, 1) with torch's resolution for f32 (24 bits) and f64 (53 bits).
Value random_uniform(Emit& e, const Call& c, const Type& type);
Value random_normal(Emit& e, const Call& c, const Type& type);

}  // namespace tpjrt::ops
