// PyTorch's eager quantized tensors, which the device doesn't hold: each op that makes or queries one names a
// replacement in its error.
//
// CUDA accepts them with few kernels; most ops on them exist on the CPU alone (FBGEMM, QNNPACK). PyTorch has
// deprecated them for the three replacements in the error, which all are made of plain tensors and run on this
// device.
#include <c10/util/Exception.h>
#include <torch/library.h>

namespace tpjrt::device {

namespace {

void refuse(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "[", op.schema().name(),
      "] the pjrt device holds no quantized tensors (torch.qint8, torch.quint8, torch.qint32). Quantize weights with "
      "torchao.quantization.quantize_, a model with torch.export and prepare_pt2e and convert_pt2e, or train with "
      "torch.fake_quantize_per_tensor_affine: they use plain tensors. Or leave the quantized tensor on the CPU and "
      "call .dequantize() on it before it goes to the device");
}

// Ops on strided tensors that make quantized ones. PyTorch has no Meta kernels for them.
constexpr const char* kMakers[] = {"quantize_per_tensor",
                                   "quantize_per_tensor.tensor_qparams",
                                   "quantize_per_tensor.tensors",
                                   "quantize_per_tensor_dynamic",
                                   "quantize_per_channel",
                                   "_make_per_tensor_quantized_tensor",
                                   "_make_per_channel_quantized_tensor",
                                   "_empty_affine_quantized",
                                   "_empty_per_channel_affine_quantized",
                                   "empty_quantized"};

// Ops that query a quantized tensor. The CPU refuses them for strided tensors, too.
constexpr const char* kQuestions[] = {
    "int_repr",           "q_scale", "q_zero_point", "q_per_channel_scales", "q_per_channel_zero_points",
    "q_per_channel_axis", "qscheme"};

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : kMakers) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse>());
  for (const char* name : kQuestions) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse>());
}
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }

}  // namespace

}  // namespace tpjrt::device
