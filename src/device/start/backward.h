// A call of backward(), from its first node to its last.
//
// Note [Backward]: PyTorch's autograd engine hands what lies on an accelerator to a thread of its own for each device, and
// the caller sleeps until it is through: two switches of threads, and Python's lock taken from the one and the other. For a
// device that computes by itself that is nothing; a recorder's whole backward of a small network takes less. There is
// nothing to gain, either: what the thread does is record. So a backward whose roots lie on "pjrt" runs in the caller's
// thread, as on the CPU (torch.autograd.set_multithreading_enabled). Devices of others keep their threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/AutogradState.h>

namespace tpjrt::device {

// One lives while the engine runs. Backwards may be within each other.
class Backward {
 public:
  explicit Backward(c10::ArrayRef<at::Tensor> roots);
  ~Backward();
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;

 private:
  const bool was_multithreaded_;
};

// In this thread. What a backward moves and reads ends no round (Note [Rounds]).
bool in_backward();

}  // namespace tpjrt::device
