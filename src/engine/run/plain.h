// The mode in which calls on the host make their tensors.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <optional>

namespace tpjrt::engine {

// PyTorch's kernels must make plain tensors even if the user is in inference mode, because others may write to them
// later.
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
