// Counts the backwards that run in a thread, and keeps their nodes there.
#include "device/start/backward.h"

#include <c10/core/AutogradState.h>

#include <algorithm>

namespace tpjrt::device {

namespace {

thread_local int backwards = 0;

bool on_device(const at::Tensor& root) {
  return root.defined() && root.device().type() == c10::DeviceType::PrivateUse1;
}

}  // namespace

Backward::Backward(c10::ArrayRef<at::Tensor> roots)
    : was_multithreaded_(c10::AutogradState::get_tls_state().get_multithreading_enabled()) {
  ++backwards;
  if (std::any_of(roots.begin(), roots.end(), &on_device)) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
}

Backward::~Backward() {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(was_multithreaded_);
  --backwards;
}

bool in_backward() { return backwards > 0; }

}  // namespace tpjrt::device
