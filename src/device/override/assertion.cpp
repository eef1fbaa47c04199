// _assert_async: reads the condition, as bool() does, and raises PyTorch's error. Recorded, nobody would need its result.
#include <ATen/ops/is_nonzero.h>
#include <torch/library.h>

namespace tpjrt::device {
namespace {

void assert_message(const at::Tensor& self, std::string_view message) {
  TORCH_CHECK(at::is_nonzero(self), message.empty() ? "Assertion is failed" : message);
}

void assert_nonzero(const at::Tensor& self) {
  TORCH_CHECK(at::is_nonzero(self), "Expected Tensor with single nonzero value, but got zero");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_assert_async.msg", &assert_message);
  m.impl("_assert_async", &assert_nonzero);
}

}  // namespace
}  // namespace tpjrt::device
