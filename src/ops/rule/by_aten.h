// Ops for which programs on the CPU call PyTorch's kernels from a number of elements on, depending on the operands'
// dtypes.
#pragma once

#include <algorithm>

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

// For gradients whose result has far more elements than their operands.
inline constexpr Platforms kResampledByAten{.aten_from = 1024, .aten_work = elements_of_bfloat16};

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

}  // namespace tpjrt::ops
