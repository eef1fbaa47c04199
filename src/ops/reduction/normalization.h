// Batch norms that a library computes as a whole.
#pragma once

#include <optional>

#include "ops/rule/emit.h"

namespace tpjrt::ops {

// Returns the batch norm of images x by their own statistics, with f32 weight and bias: the result, and in f32 the
// mean, 1 / deviation and the unbiased variance of each channel. Returns nothing where XLA computes it. Defined in
// ops/xla_cpu/library_rows.cpp.
std::optional<Values> library_batch_norm(Emit& e, const Value& x, const Value& weight, const Value& bias, double eps);
// Returns the gradients of x and, in f32, of weight and bias, from the result's gradient.
std::optional<Values> library_batch_norm_gradients(Emit& e, const Value& dy, const Value& x, const Value& weight,
                                                   const Value& mean, const Value& rstd, double eps);

}  // namespace tpjrt::ops
