// The precision of float products, from PyTorch's settings (graph/signature.h).
#pragma once

#include <array>
#include <string_view>

#include "hlo/type.h"
#include "ops/rule/emit.h"

namespace tpjrt::ops {

// Returns XLA's word for the precision. Only float32 has a choice: by XLA's default GPUs would use TF32, and TPUs one
// pass in bfloat16.
inline std::string_view precision_of(hlo::ElementType element, graph::Precision asked) {
  static constexpr std::array<std::string_view, 3> kWords{"HIGHEST", "HIGH", "DEFAULT"};
  const bool is_float32 = element == hlo::ElementType::kF32 || element == hlo::ElementType::kC64;
  return is_float32 ? kWords[static_cast<size_t>(asked)] : "DEFAULT";
}
inline std::string_view product_precision(const Emit& e, hlo::ElementType element) {
  return precision_of(element, e.precisions().products);
}
inline std::string_view convolution_precision(const Emit& e, hlo::ElementType element) {
  return precision_of(element, e.precisions().convolutions);
}

}  // namespace tpjrt::ops
