// Runs ops that have no kernel for sparse tensors on this device, and read memory on the CPU, on the host. Each call
// is counted.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>

#include "device/host/host.h"
#include "device/sparse/under_cpu.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {
namespace {

constexpr const char* kReason = "it has no kernel for sparse tensors on the device";

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

}  // namespace

void run_sparse_on_host(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = Operator::of(handle);
  check_may_run_on_host(op.name, kReason);
  check_devices(op.name, torch::jit::last(*stack, op.arguments.size()));
  call_on_host(op, *stack);  // throws the CPU's errors
  note_on_host(op.name, kReason);
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
