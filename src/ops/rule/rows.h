// Softmax, layer norms, sums and extremes of rows by PyTorch's kernels.
#pragma once

#include <array>
#include <optional>

#include "ops/rule/emit.h"

namespace tpjrt::ops {

// XLA:CPU adds a row's elements one by one, and reads a row again for each pass of a softmax or a norm. PyTorch's
// kernels (src/kernels/cpu/rows.cpp) compute the rows that they claim (Note [Claims]); for others these functions
// return nothing. Rows are the last dimensions, from `axis` on. The functions are in ops/xla_cpu/library_rows.cpp.
std::optional<Value> library_softmax(Emit& e, const Value& x, int64_t axis, bool log);
std::optional<Value> library_softmax_gradient(Emit& e, const Value& dy, const Value& y, int64_t axis, bool log);
// `op`: "add", "mean", "maximum" or "minimum". Returns nothing unless dims are the last ones, or all.
std::optional<Value> library_reduced_rows(Emit& e, std::string_view op, const Value& x, Dims dims);
// Returns the rows, and the mean and 1 / deviation of each. Weight and bias may be nothing.
std::optional<Values> library_layer_norm(Emit& e, const Value& x, const Value& weight, const Value& bias, int64_t axis,
                                         double eps);
// Returns the gradients of rows, weight and bias that are asked for.
std::optional<Values> library_layer_norm_gradients(Emit& e, const Value& dy, const Value& x, const Value& mean,
                                                   const Value& rstd, const Value& weight, int64_t axis,
                                                   std::array<bool, 3> asked);

}  // namespace tpjrt::ops
