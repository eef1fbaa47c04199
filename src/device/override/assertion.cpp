// _assert_async: recorded, as a read of the condition would cut the graph.
#include <ATen/ops/_functional_assert_async.h>
#include <ATen/ops/is_nonzero.h>
#include <torch/library.h>

#include "device/host/assertions.h"
#include "device/services/modes.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {
namespace {

void assert_message(const at::Tensor& self, std::string_view message) {
  if (message.empty()) message = "Assertion is failed";
  if (self.numel() != 1 || tracing()) {
    TORCH_CHECK(at::is_nonzero(self), message);
  } else {
    add_assertion(at::_functional_assert_async(self, message, self));
  }
}

void assert_nonzero(const at::Tensor& self) {
  assert_message(self, "Expected Tensor with single nonzero value, but got zero");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_assert_async.msg", &assert_message);
  m.impl("_assert_async", &assert_nonzero);
}

}  // namespace
}  // namespace tpjrt::device
