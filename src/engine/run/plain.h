// Whose tensors calls on the host make.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <optional>

namespace tpjrt::engine {

// PyTorch's kernels make plain tensors, also where the user is in inference mode: others may write them later.
struct Plain {
  std::optional<c10::InferenceMode> mode;
  std::optional<at::NoGradGuard> grad;
  Plain() {
    if (!c10::InferenceMode::is_enabled()) return;
    mode.emplace(false);
    grad.emplace();
  }
};

}  // namespace tpjrt::engine
