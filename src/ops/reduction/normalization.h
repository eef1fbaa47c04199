// Who does whole batch norms.
#pragma once

#include <optional>

#include "ops/rule/emit.h"

namespace tpjrt::ops {

// Of images x, from their own statistics, with weight and bias of f32: the result, and of f32 the mean, 1 / deviation and the unbiased
// variance of each channel. Nothing where it is XLA's. ops/cpu/library_normalization.cpp
std::optional<Values> library_batch_norm(Emit& e, const Value& x, const Value& weight, const Value& bias, double eps);
// From the result's gradient the gradients of x and, of f32, of weight and bias.
std::optional<Values> library_batch_norm_gradients(Emit& e, const Value& dy, const Value& x, const Value& weight,
                                                   const Value& mean, const Value& rstd, double eps);

}  // namespace tpjrt::ops
