// arange, range, linspace and logspace with out=. The CPU's kernels fill the tensor in the order of its elements, and
// leave its shape if the number of elements fits. Otherwise they resize it to one dimension, which their Meta kernels
// always do. arange warns of that.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "device/aten_call/operator.h"
#include "device/record/recorder.h"

namespace tpjrt::device {

namespace {

void warn_of_rounding(const at::Tensor& out, int64_t elements) {
  TORCH_WARN("The number of elements in the out tensor of shape ", out.sizes(), " is ", out.numel(),
             " which does not match the computed number of elements ", elements,
             ". Note that this may occur as a result of rounding error. The out tensor will be resized to a tensor of "
             "shape (",
             elements, ",).");
}

void fill_in_order(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = Operator::of(handle);
  const at::Tensor out = stack->back().toTensor();
  if (out.numel() == 0) return record(op, *stack);
  stack->back() = at::empty({0}, out.options());
  record(op, *stack);
  const at::Tensor filled = stack->back().toTensor();
  if (filled.numel() != out.numel()) {
    if (op.name == "aten::arange.start_out") warn_of_rounding(out, filled.numel());
    out.resize_(filled.sizes());
  }
  out.copy_(filled.view(out.sizes()));
  stack->back() = out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  const auto own = [&](const char* name) { m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fill_in_order>()); };
  own("arange.start_out");
  own("range.out");
  own("linspace.out");
  own("logspace.out");
}

}  // namespace

}  // namespace tpjrt::device
