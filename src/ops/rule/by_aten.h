// Ops for which programs on the CPU call PyTorch's kernels from a number of elements on, depending on the operands'
// dtypes.
//
// Softmax, layer norms, sums and extremes of rows by PyTorch's kernels.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "ops/rule/emit.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {

// Returns the number of bfloat16 elements; 0 if an operand other than indices has another dtype.
inline int64_t elements_of_bfloat16(const std::vector<graph::TypePtr>& operands) {
  int64_t elements = 0;
  for (const graph::TypePtr type : operands) {
    if (type->dtype == c10::kBFloat16) {
      elements += type->numel();
    } else if (!c10::isIntegralType(type->dtype, /*includeBool=*/true)) {
      return 0;
    }
  }
  return elements;
}

inline constexpr Platforms kBFloat16ByAten{.aten_from = int64_t{1} << 15, .aten_work = elements_of_bfloat16};

// For ops that write into a tensor.
inline constexpr Platforms kBFloat16WrittenByAten{
    .aten_from = int64_t{1} << 15, .aten_in_place = true, .aten_work = elements_of_bfloat16};

// Returns the number of elements; 0 if operands differ in dtype: the kernel would expect statistics in a dtype that
// programs don't keep.
inline int64_t elements_of_one_dtype(const std::vector<graph::TypePtr>& operands) {
  int64_t elements = 0;
  for (const graph::TypePtr type : operands) {
    if (type->dtype != operands[0]->dtype) return 0;
    elements += type->numel();
  }
  return elements;
}

inline constexpr Platforms kOneDtypeByAten{.aten_from = kAtenFrom, .aten_work = elements_of_one_dtype};

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
