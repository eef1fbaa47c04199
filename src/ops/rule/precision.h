// How exactly products of floats are computed: as PyTorch does by default.
#pragma once

#include <string_view>

#include "hlo/type.h"

namespace tpjrt::ops {

// f32 is multiplied as f32. With XLA's own default GPUs would use TF32 and TPUs bf16 passes. Other types have one way.
inline std::string_view precision_of(hlo::ElementType element) {
  return element == hlo::ElementType::kF32 || element == hlo::ElementType::kC64 ? "HIGHEST" : "DEFAULT";
}

}  // namespace tpjrt::ops
