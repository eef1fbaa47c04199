// Runs ops that have no kernel for sparse tensors on this device, and read memory on the CPU, on the host. Each call
// is counted.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/resize_as_sparse.h>
#include <torch/library.h>

#include <algorithm>

#include "device/host/host.h"
#include "device/sparse/under_cpu.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {
namespace {

struct Copied {
  at::Tensor device, host;
};

// Throws for tensors on several devices. A CPU scalar may be used with the device's tensors, as everywhere.
void check_device(const std::string& op, const at::Tensor& tensor, const at::Tensor& first) {
  if (!tensor.defined() || tensor.device() == first.device()) return;
  TORCH_CHECK(tensor.device().is_cpu() && tensor.dim() == 0 && tensor.layout() == c10::kStrided, "[", op,
              "] Expected all tensors to be on the same device, but found at least two devices, ", first.device(),
              " and ", tensor.device(), "!");
}

std::vector<at::Tensor> tensors_in(c10::ArrayRef<c10::IValue> arguments) {
  std::vector<at::Tensor> all;
  for (const c10::IValue& value : arguments) {
    if (value.isTensor()) all.push_back(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const at::Tensor& tensor : value.toTensorVector()) all.push_back(tensor);
  }
  return all;
}

void check_devices(const std::string& op, c10::ArrayRef<c10::IValue> arguments) {
  const std::vector<at::Tensor> all = tensors_in(arguments);
  const auto first =
      std::find_if(all.begin(), all.end(), [](const at::Tensor& x) { return x.defined() && is_pjrt(x); });
  TORCH_CHECK_NOT_IMPLEMENTED(first != all.end(), "[", op,
                              "] makes no sparse tensors on the pjrt device; make a strided one");
  for (const at::Tensor& tensor : all) check_device(op, tensor, *first);
}

at::Tensor to_host(const at::Tensor& tensor, std::vector<Copied>& copied) {
  if (!tensor.defined() || !is_pjrt(tensor)) return tensor;
  for (const Copied& one : copied) {
    if (one.device.is_same(tensor)) return one.host;
  }
  copied.push_back({tensor, tensor.cpu()});
  // _sparse_mm_reduce_impl computes its backward's inputs only if a gradient is required, and its backward reads them
  // regardless.
  if (tensor.requires_grad()) copied.back().host.set_requires_grad(true);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
    copied.back().host.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copied.back().host;
}

c10::IValue to_host(const c10::IValue& value, std::vector<Copied>& copied) {
  if (value.isTensor()) return to_host(value.toTensor(), copied);
  if (value.isDevice() && value.toDevice().type() == kPjrt) return c10::Device(c10::kCPU);
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(to_host(tensor, copied));
  return list;
}

at::Tensor to_device(const at::Tensor& tensor, c10::Device device, const std::vector<Copied>& copied) {
  if (!tensor.defined()) return tensor;
  for (const Copied& one : copied) {
    if (one.host.is_same(tensor)) return one.device;
  }
  return tensor.detach().to(device);
}

c10::IValue to_device(const c10::IValue& value, c10::Device device, const std::vector<Copied>& copied) {
  if (value.isTensor()) return to_device(value.toTensor(), device, copied);
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(to_device(tensor, device, copied));
  return list;
}

void write_back(const Copied& one) {
  if (one.device.layout() != c10::kStrided) {
    at::resize_as_sparse_(one.device, one.host);
  } else if (one.device.sizes() != one.host.sizes()) {
    one.device.resize_(one.host.sizes());
  }
  one.device.copy_(one.host);
}

}  // namespace

void run_sparse_on_host(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = Operator::of(handle);
  check_may_run_on_host(op.name, "it has no kernel for sparse tensors on the device");
  const size_t first = stack->size() - op.arguments.size();
  check_devices(op.name, c10::ArrayRef<c10::IValue>(stack->data() + first, op.arguments.size()));
  std::vector<Copied> copied;
  torch::jit::Stack host;
  for (size_t i = first; i < stack->size(); ++i) host.push_back(to_host((*stack)[i], copied));
  const c10::Device device = copied[0].device.device();
  handle.callBoxed(host);  // throws the CPU's errors
  for (size_t i = 0; i < op.arguments.size(); ++i) {
    const c10::IValue& value = (*stack)[first + i];
    if (!op.arguments[i].written || !value.isTensor()) continue;
    for (const Copied& one : copied) {
      if (one.device.is_same(value.toTensor())) write_back(one);
    }
  }
  stack->resize(first);
  for (const c10::IValue& value : host) stack->push_back(to_device(value, device, copied));
  note_on_host(op.name, "it has no kernel for sparse tensors on the device");
}

namespace {

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_sparse_on_host>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_sparse_on_host>());
}

}  // namespace
}  // namespace tpjrt::device
