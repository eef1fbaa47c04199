// What programs on the CPU call PyTorch's kernels for from a number of elements on, where the operands' dtypes are such.
#pragma once

#include <algorithm>

#include "ops/rule/rules.h"

namespace tpjrt::ops {

// Nothing where an operand has another dtype, but for indices.
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

// Of what is written into a tensor.
inline constexpr Platforms kBFloat16WrittenByAten{
    .aten_from = int64_t{1} << 15, .aten_in_place = true, .aten_work = elements_of_bfloat16};

// Of a gradient whose result has far more elements.
inline constexpr Platforms kResampledByAten{.aten_from = 1024, .aten_work = elements_of_bfloat16};

// Nothing where operands differ in dtype, for which the kernel wants statistics that programs keep in another.
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
