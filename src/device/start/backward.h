// A call of backward(), from its first node to its last.
//
// Note [Backward]: PyTorch's autograd engine runs the nodes of an accelerator in a separate thread for each device
// while the caller sleeps. That costs two thread switches and two transfers of the GIL. For a device that computes by
// itself the cost is negligible, but recording the whole backward of a small network takes less. The thread brings no
// gain either, because it only records. So a backward whose roots are on "pjrt" runs in the caller's thread, as on
// the CPU (torch.autograd.set_multithreading_enabled). Other devices keep their threads.
#pragma once

#include <ATen/core/Tensor.h>

namespace tpjrt::device {

// Lives while the engine runs. Backwards may be nested.
class Backward {
 public:
  explicit Backward(c10::ArrayRef<at::Tensor> roots);
  ~Backward();
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;

 private:
  const bool was_multithreaded_;
};

// Returns whether a backward runs in this thread. Its copies and reads end no iteration (Note [Loop iterations]).
bool in_backward();

}  // namespace tpjrt::device
