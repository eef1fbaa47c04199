// The device's kernels that are not recorded (factories, native views, copies), and the order of registration.
#include "device/backend/register.h"

#include <ATen/native/TensorShape.h>
#include <ATen/ops/_nested_tensor_size_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/all.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/unsafe_split_native.h>
#include <ATen/ops/unsafe_split_with_sizes_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <string>

#include "device/backend/guard.h"
#include "device/host/host.h"
#include "device/record/recorder.h"
#include "device/tensor/factory.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

// Every view of PyTorch ends in one of these six, which change metadata only.
at::Tensor as_strided(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}
at::Tensor view(const at::Tensor& self, c10::IntArrayRef size) { return at::native::view(self, size); }
at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}
at::Tensor unfold(const at::Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}
at::Tensor view_as_real(const at::Tensor& self) { return at::native::view_as_real(self); }
at::Tensor view_as_complex(const at::Tensor& self) { return at::native::view_as_complex(self); }

// A C++ bool can't be recorded, so it is computed on the device and read.
bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(), "Cannot compare two tensors on different devices. Got: ", self.device(),
              " and ", other.device());
  if (self.sizes() != other.sizes()) return false;
  // PyTorch's version determines whether two dtypes are compared.
  if (self.scalar_type() != other.scalar_type())
    at::equal(at::empty({0}, c10::TensorOptions(self.scalar_type())),
              at::empty({0}, c10::TensorOptions(other.scalar_type())));
  return at::eq(self, other).all().item<bool>();
}
bool is_set_to(const at::Tensor& self, const at::Tensor& other) { return at::native::is_set_to(self, other); }

// Lets `.data =` move a parameter to the device and back in place, as torch does between its own devices. A module
// that moves keeps its parameters, so weights stay tied and an existing optimizer stays valid.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  using c10::BackendComponent;
  constexpr c10::DispatchKeySet dense(c10::DispatchKey::Dense);
  constexpr c10::DispatchKeySet backends({BackendComponent::CPUBit, BackendComponent::CUDABit, BackendComponent::HIPBit,
                                          BackendComponent::XPUBit, BackendComponent::PrivateUse1Bit});
  const auto is_plain = [&](const at::Tensor& tensor) {
    return tensor.key_set().has_any(dense) && tensor.key_set().has_any(backends);
  };
  return is_plain(self) && is_plain(from);
}

// A plugin keeps memory until the programs that use it are done.
void record_stream(at::Tensor& /*self*/, c10::Stream /*stream*/) {}
// nn.TransformerEncoder asks whether it may turn a padded batch into a nested tensor. It may not: the device holds
// strided tensors only.
bool _nested_tensor_from_mask_left_aligned(const at::Tensor& /*tensor*/, const at::Tensor& /*mask*/) { return false; }

// Called without that query if mask_check=False.
at::Tensor _nested_tensor_from_mask(const at::Tensor& /*tensor*/, const at::Tensor& /*mask*/, bool /*mask_check*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "[aten::_nested_tensor_from_mask] the pjrt device holds strided tensors only; make "
                              "nn.TransformerEncoder with enable_nested_tensor=False, or leave out mask_check=False");
}

void refuse_layout(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "[", op.schema().name(),
                              "] the pjrt device holds strided and sparse tensors of float, integer, bool or complex "
                              "dtypes only; pad a nested one "
                              "or make it with layout=torch.jagged");
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
}
// Autograd asks a nested tensor for its sizes where an error would not be handled.
TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("_nested_tensor_size", TORCH_FN(at::native::_nested_tensor_size));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(_efficientzerotensor));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_source_storage_offset));
  m.impl("set_.source_Storage", TORCH_FN(set_source_storage));
  m.impl("set_.source_Tensor", TORCH_FN(set_source_tensor));
  m.impl("set_", TORCH_FN(set_));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("view", TORCH_FN(view));
  m.impl("_reshape_alias", TORCH_FN(reshape_alias));
  m.impl("unfold", TORCH_FN(unfold));
  // These are views, but their schemas don't say so, and autograd doesn't know it.
  m.impl("unsafe_split.Tensor", TORCH_FN(at::native::unsafe_split));
  m.impl("unsafe_split_with_sizes", TORCH_FN(at::native::unsafe_split_with_sizes));
  m.impl("view_as_real", TORCH_FN(view_as_real));
  m.impl("view_as_complex", TORCH_FN(view_as_complex));
  m.impl("is_set_to", TORCH_FN(is_set_to));
  m.impl("equal", TORCH_FN(equal));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  m.impl("record_stream", TORCH_FN(record_stream));
  m.impl("_nested_tensor_from_mask", TORCH_FN(_nested_tensor_from_mask));
  m.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(_nested_tensor_from_mask_left_aligned));
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(_local_scalar_dense));
}
// On other devices this is a composite, which __torch_dispatch__ never sees.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}

}  // namespace

void register_device() {
  install_storage();
  install_guard();
  register_recorder();
}

}  // namespace tpjrt::device
