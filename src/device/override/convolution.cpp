// aten::_convolution, which TorchScript's programs call where eager mode calls convolution; and convolution while
// torch.jit.trace records.
//
// The tracer records the _convolution in which PyTorch's kernel of convolution ends, not convolution itself. On this
// device the recorder handles convolution, so a traced call goes through _convolution. PyTorch's kernel of
// _convolution chooses among the libraries of its own devices, so on this device it calls convolution.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_convolution.h>
#include <ATen/ops/convolution.h>
#include <torch/library.h>

#include <utility>

#include "device/services/python_hooks.h"

namespace tpjrt::device {

namespace {

using Sizes = c10::SymIntArrayRef;

at::Tensor _convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                        Sizes stride, Sizes padding, Sizes dilation, bool transposed, Sizes output_padding,
                        c10::SymInt groups, bool /*benchmark*/, bool /*deterministic*/, bool /*cudnn_enabled*/,
                        bool /*allow_tf32*/) {
  return at::convolution_symint(input, weight, bias, stride, padding, dilation, transposed, output_padding,
                                std::move(groups));
}

at::Tensor traced_convolution(c10::DispatchKeySet keys, const at::Tensor& input, const at::Tensor& weight,
                              const std::optional<at::Tensor>& bias, Sizes stride, Sizes padding, Sizes dilation,
                              bool transposed, Sizes output_padding, c10::SymInt groups) {
  if (input.device().type() == c10::DeviceType::PrivateUse1) {
    const at::Context& context = at::globalContext();  // the values that PyTorch writes into a trace on its own devices
    return at::_convolution_symint(input, weight, bias, stride, padding, dilation, transposed, output_padding,
                                   std::move(groups), context.benchmarkCuDNN(), context.deterministicCuDNN(),
                                   context.userEnabledCuDNN(), /*allow_tf32=*/true);
  }
  const c10::DispatchKeySet after(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Tracer);
  return at::_ops::convolution::redispatch(keys & after, input, weight, bias, stride, padding, dilation, transposed,
                                           output_padding, std::move(groups));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_convolution", TORCH_FN(_convolution)); }

[[maybe_unused]] const bool registered = [] {
  const Unheard of_replacement;  // of one of PyTorch's kernels, which is intended
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Tracer, __FILE__, __LINE__);
  library->impl("convolution", TORCH_FN(traced_convolution));
  return true;
}();

}  // namespace

}  // namespace tpjrt::device
