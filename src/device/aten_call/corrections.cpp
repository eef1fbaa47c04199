// Corrections where PyTorch's Meta kernels differ from the CPU's kernels, which are the reference for results.
#include "device/aten_call/meta.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_permuted.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "device/aten_call/shapes.h"

namespace tpjrt::device {

namespace {

// Corrects the outline of a call whose Meta kernel doesn't determine the CPU kernel's result, or differs from it.
using Correction = void (*)(const graph::Signature& signature, Outline& outline);

void lay_out(Outline& outline, at::MemoryFormat format) {
  const at::Tensor result = outline.results.at(0).toTensor();
  outline.results[0] = made_like(result, result.options(), format);
}

// Uses the input's memory format, whatever its strides are otherwise.
void lay_out_as_suggested(const graph::Signature& /*signature*/, Outline& outline) {
  lay_out(outline, outline.operands.at(0).suggest_memory_format());
}

void lay_out_contiguous(const graph::Signature& /*signature*/, Outline& outline) {
  for (c10::IValue& result : outline.results) {
    if (!result.isTensor() || !result.toTensor().defined()) continue;
    const at::Tensor tensor = result.toTensor();
    result = made_like(tensor, tensor.options(), at::MemoryFormat::Contiguous);
  }
}

// The other results keep their layouts.
void lay_out_first_contiguous(const graph::Signature& /*signature*/, Outline& outline) {
  lay_out(outline, at::MemoryFormat::Contiguous);
}

// The gradient of an input has the input's format, whatever the format of the result's gradient.
void lay_out_gradient_as_input(const graph::Signature& /*signature*/, Outline& outline) {
  if (outline.results.at(0).isTensor() && outline.results[0].toTensor().defined())
    lay_out(outline, outline.operands.at(1).suggest_memory_format());
}

void lay_out_like_second(const graph::Signature& /*signature*/, Outline& outline) {
  const at::Tensor result = outline.results.at(0).toTensor();
  outline.results[0] = made_like(outline.operands.at(1), result.options());
}

// Results without elements have the input's strides, even where these have gaps.
void lay_out_empty_as_input(const graph::Signature& /*signature*/, Outline& outline) {
  const at::Tensor& self = outline.operands.at(0);
  if (self.numel() > 0) return;
  for (c10::IValue& result : outline.results) {
    const at::Tensor tensor = result.toTensor();
    result = at::empty_strided(tensor.sizes(), self.strides(), tensor.options());
  }
}

// LAPACK writes each matrix of eigenvectors column by column.
void lay_out_eigenvectors(const graph::Signature& /*signature*/, Outline& outline) {
  const at::Tensor vectors = outline.results.at(1).toTensor();
  outline.results[1] = at::empty(vectors.sizes(), vectors.options()).mT();
}

// Without dimensions the result is that of the flat tensor. Otherwise it is two pieces that are concatenated, and is
// contiguous if one of them has no element.
void lay_out_roll(const graph::Signature& signature, Outline& outline) {
  const at::Tensor& self = outline.operands.at(0);
  if (self.numel() == 0) return;
  const std::vector<int64_t> shifts = signature.parameters.at(1).constant.toIntVector();
  const std::vector<int64_t> dims = signature.parameters.at(2).constant.toIntVector();
  bool contiguous = dims.empty();
  for (size_t i = 0; i < dims.size(); ++i) contiguous |= shifts.at(i) % self.size(dims[i]) == 0;
  lay_out(outline, contiguous ? at::MemoryFormat::Contiguous : self.suggest_memory_format());
}

// The backend chooses the memory format. Here it is channels last if the input or the weight is, as with oneDNN and
// cuDNN.
void lay_out_convolution(const graph::Signature& /*signature*/, Outline& outline) {
  const int64_t rank = outline.results.at(0).toTensor().dim();
  for (size_t i = 0; i < 2; ++i) {
    const at::MemoryFormat format = outline.operands.at(i).suggest_memory_format();
    if (format != at::MemoryFormat::Contiguous && rank == outline.operands[i].dim()) return lay_out(outline, format);
  }
}

// Attention is made of matrix products instead of fused if it has no batch of heads, or if features aren't
// contiguous.
void lay_out_attention(const graph::Signature& /*signature*/, Outline& outline) {
  const auto is_fused = [](const at::Tensor& x) { return x.dim() == 4 && (x.stride(3) == 1 || x.size(3) == 1); };
  for (size_t i = 0; i < 3; ++i) {
    if (!is_fused(outline.operands.at(i))) return lay_out(outline, at::MemoryFormat::Contiguous);
  }
}

// Returns a tensor with the memory order of MKL's transforms, the outermost dimension first: the batch, then the
// transformed dimensions, each in the operand's order, except that the dimension that is halved or made whole is the
// innermost.
at::Tensor transformed(const at::Tensor& x, at::IntArrayRef dims, bool last_stays, at::IntArrayRef sizes,
                       const at::TensorOptions& options) {
  const auto farther = [&](int64_t a, int64_t b) { return x.stride(a) > x.stride(b); };
  std::vector<int64_t> order(static_cast<size_t>(x.dim()));
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int64_t dim) { return std::ranges::find(dims, dim) != dims.end(); });
  std::ranges::stable_sort(order, farther);
  std::vector<int64_t> inner = dims.vec();
  std::stable_sort(inner.begin(), inner.end() - static_cast<int64_t>(last_stays), farther);
  order.insert(order.end(), inner.begin(), inner.end());
  return at::empty_permuted(sizes, order, options);
}

// PyTorch's Meta kernels assume that a Meta tensor is CUDA's.
void lay_out_fourier_transform(const graph::Signature& signature, Outline& outline) {
  at::Tensor x = outline.operands.at(0);
  const at::Tensor result = outline.results.at(0).toTensor();
  std::vector<int64_t> dims;
  for (const graph::Parameter& parameter : signature.parameters) {
    if (parameter.name == "dim") dims = parameter.constant.toIntVector();
  }
  if (!at::hasMKL() || dims.empty()) return;
  const bool gives_real = signature.name == "aten::_fft_c2r";
  if (gives_real && dims.size() > 1) {  // the last dimension comes after the others
    const int64_t last = dims.back();
    dims.pop_back();
    x = transformed(x, dims, false, x.sizes(), x.options());
    dims = {last};
  }
  outline.results[0] = transformed(x, dims, signature.name != "aten::_fft_c2c", result.sizes(), result.options());
}

bool trains(const graph::Signature& signature) {
  for (const graph::Parameter& parameter : signature.parameters) {
    if (parameter.name == "training") return parameter.constant.toBool();
  }
  return signature.name.starts_with("aten::_batch_norm_with_update");
}

// Evaluation saves no statistics.
void correct_batch_norm(const graph::Signature& signature, Outline& outline) {
  lay_out_as_suggested(signature, outline);
  if (trains(signature)) return;
  for (const size_t i : {1, 2}) outline.results.at(i) = at::empty({0}, outline.results[i].toTensor().options());
}

// The last two results are the new running statistics, in their own dtype.
void correct_functional_batch_norm(const graph::Signature& signature, Outline& outline) {
  correct_batch_norm(signature, outline);
  size_t result = outline.results.size() - 2;
  for (const graph::Parameter& parameter : signature.parameters) {
    if (parameter.name != "running_mean" && parameter.name != "running_var") continue;
    const at::Tensor running = outline.operands.at(parameter.entries.at(0).index);
    outline.results.at(result++) = made_like(running, running.options());
  }
}

// An empty list of dimensions means all, as in aten::sum.
void sum_over_all(const graph::Signature& signature, Outline& outline) {
  const auto& parameters = signature.parameters;
  const c10::IValue &dim = parameters.at(1).constant, &keepdim = parameters.at(2).constant;
  if (!dim.isIntList() || !dim.toIntVector().empty()) return;
  const at::Tensor self = outline.operands.at(0);
  const std::vector<int64_t> ones(keepdim.toBool() ? static_cast<size_t>(self.dim()) : 0, 1);
  outline.results.at(0) = outline.results[0].toTensor().new_empty(ones);
}

// The result has the layout of an elementwise result of both operands.
void lay_out_elementwise(const graph::Signature& /*signature*/, Outline& outline) {
  if (outline.operands.size() != 2) return;
  const at::Tensor result = outline.results.at(0).toTensor();
  outline.results[0] = broadcast(result.scalar_type(), {outline.operands[0], outline.operands[1]})->at(0);
}

// The CPU's kernel goes through a complex result with a new layout.
void lay_out_angle(const graph::Signature& /*signature*/, Outline& outline) {
  if (outline.operands.at(0).is_complex()) lay_out(outline, at::MemoryFormat::Contiguous);
}

// The CPU's kernels allocate the result like the first operand and write over it.
void keep_first_dtype(const graph::Signature& /*signature*/, Outline& outline) {
  const at::Tensor result = outline.results.at(0).toTensor();
  outline.results[0] = made_like(result, result.options().dtype(outline.operands.at(0).scalar_type()));
}

void keep_first_dtype_contiguous(const graph::Signature& signature, Outline& outline) {
  keep_first_dtype(signature, outline);
  lay_out_contiguous(signature, outline);
}

void give_one(const graph::Signature& /*signature*/, Outline& outline) {
  outline.results.at(0) = outline.results[0].toTensor().new_empty({});
}

}  // namespace

void correct(const graph::Signature& signature, Outline& outline) {
  static const auto& corrections = *new std::unordered_map<std::string_view, Correction>{
      {"aten::convolution", lay_out_convolution},
      {"aten::_scaled_dot_product_fused_attention_overrideable", lay_out_attention},
      {"aten::_fft_r2c", lay_out_fourier_transform},
      {"aten::_fft_c2c", lay_out_fourier_transform},
      {"aten::_fft_c2r", lay_out_fourier_transform},
      {"aten::native_batch_norm", correct_batch_norm},
      {"aten::_native_batch_norm_legit", correct_batch_norm},
      {"aten::_native_batch_norm_legit_functional", correct_functional_batch_norm},
      {"aten::_native_batch_norm_legit_no_training", correct_batch_norm},
      {"aten::_batch_norm_no_update", correct_batch_norm},
      {"aten::_batch_norm_with_update", lay_out_as_suggested},
      {"aten::_batch_norm_with_update_functional", correct_functional_batch_norm},
      {"aten::_native_batch_norm_legit.no_stats", lay_out_as_suggested},
      {"aten::native_group_norm", lay_out_as_suggested},
      {"aten::linalg_eig", lay_out_eigenvectors},
      {"aten::max_unpool2d", lay_out_as_suggested},
      {"aten::reflection_pad2d", lay_out_as_suggested},
      {"aten::reflection_pad3d", lay_out_as_suggested},
      {"aten::replication_pad2d", lay_out_as_suggested},
      {"aten::replication_pad3d", lay_out_as_suggested},
      {"aten::pixel_shuffle", lay_out_as_suggested},
      {"aten::pixel_unshuffle", lay_out_as_suggested},
      {"aten::channel_shuffle", lay_out_as_suggested},
      {"aten::native_channel_shuffle", lay_out_as_suggested},
      {"aten::roll", lay_out_roll},
      {"aten::flip", lay_out_empty_as_input},
      {"aten::frexp.Tensor", lay_out_empty_as_input},
      {"aten::nan_to_num", lay_out_empty_as_input},
      {"aten::log_sigmoid_forward", lay_out_contiguous},
      {"aten::masked_fill.Scalar", lay_out_contiguous},
      {"aten::masked_fill.Tensor", lay_out_contiguous},
      {"aten::native_group_norm_backward", lay_out_gradient_as_input},
      {"aten::native_batch_norm_backward", lay_out_gradient_as_input},
      {"aten::replication_pad2d_backward", lay_out_gradient_as_input},
      {"aten::replication_pad3d_backward", lay_out_gradient_as_input},
      {"aten::hardswish_backward", lay_out_elementwise},
      {"aten::hardtanh_backward", lay_out_elementwise},
      {"aten::floor_divide", lay_out_elementwise},
      {"aten::angle", lay_out_angle},
      {"aten::huber_loss", keep_first_dtype},
      {"aten::soft_margin_loss", keep_first_dtype},
      {"aten::binary_cross_entropy", keep_first_dtype},
      {"aten::poisson", lay_out_contiguous},
      {"aten::binomial", lay_out_contiguous},
      {"aten::_standard_gamma", lay_out_contiguous},
      {"aten::rrelu_with_noise", lay_out_first_contiguous},
      {"aten::rrelu_with_noise_functional", lay_out_first_contiguous},
      {"aten::normal.Tensor_float", lay_out_contiguous},
      {"aten::normal.float_Tensor", lay_out_contiguous},
      {"aten::normal.Tensor_Tensor", keep_first_dtype_contiguous},
      {"aten::mse_loss_backward", lay_out_contiguous},
      {"aten::huber_loss_backward", lay_out_contiguous},
      {"aten::smooth_l1_loss_backward", lay_out_contiguous},
      {"aten::binary_cross_entropy_backward", lay_out_like_second},
      {"aten::native_dropout_backward", lay_out_elementwise},
      {"aten::nansum", sum_over_all},
      {"aten::isin.Scalar_Tensor", give_one},
  };
  if (const auto found = corrections.find(signature.name); found != corrections.end())
    found->second(signature, outline);
}

}  // namespace tpjrt::device
