// Checks that read a value and raise PyTorch's error. In a trace, which has no values, they are assertions. Recorded
// as ordinary calls they would never run, because no other call needs their results.
#include <ATen/ops/_functional_assert_async.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/full.h>
#include <ATen/ops/is_nonzero.h>
#include <ATen/ops/logical_not.h>
#include <torch/library.h>

#include <string>
#include <string_view>

#include "device/host/pending_assertions.h"
#include "device/services/modes.h"
#include "device/services/trace_assertions.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {
namespace {

constexpr const char* kFailed = "Assertion is failed";

void assert_message(const at::Tensor& self, std::string_view message) {
  if (message.empty()) message = kFailed;
  if (self.numel() != 1) {
    TORCH_CHECK(at::is_nonzero(self), message);
  } else if (tracing()) {
    assert_zero(at::logical_not(self), "RuntimeError", std::string(message));
  } else {
    add_assertion(at::_functional_assert_async(self, message, self));
  }
}

void assert_nonzero(const at::Tensor& self) {
  assert_message(self, "Expected Tensor with single nonzero value, but got zero");
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// Asserts that LAPACK's info is zero. PyTorch's own check provides the error message.
void assert_info(const at::Tensor& infos, c10::string_view api_name, bool is_matrix) {
  constexpr int32_t kMarker = 1234567;
  at::Tensor info = at::full(is_matrix ? at::DimVector{} : at::DimVector{2}, 0, at::kInt);
  info.mutable_data_ptr<int32_t>()[info.numel() - 1] = kMarker;
  std::string type = "LinAlgError", text;
  try {
    at::_linalg_check_errors(info, api_name, is_matrix);
  } catch (const c10::LinAlgError& error) {
    text = error.what_without_backtrace();
  } catch (const c10::Error& error) {
    type = "RuntimeError";
    text = error.what_without_backtrace();
  }
  replace_all(text, std::to_string(kMarker), "{}");
  if (!is_matrix) replace_all(text, "element 1", "element {index}");
  assert_zero(infos, type, text);
}

void linalg_check_errors(const at::Tensor& info, c10::string_view api_name, bool is_matrix) {
  if (tracing()) return assert_info(info, api_name, is_matrix);
  at::_linalg_check_errors(info.cpu(), api_name, is_matrix);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_assert_async.msg", &assert_message);
  m.impl("_assert_async", &assert_nonzero);
  m.impl("_linalg_check_errors", &linalg_check_errors);
}

}  // namespace
}  // namespace tpjrt::device
