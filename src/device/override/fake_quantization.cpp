// aten::_fused_moving_avg_obs_fq_helper, the observer of fake quantization: the first call with a range for each row
// resizes the observer's empty tensors, which the Meta kernel doesn't report.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <limits>

#include "device/aten_call/operator.h"
#include "device/record/recorder.h"

namespace tpjrt::device {

namespace {

void observe(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = Operator::of(handle);
  const c10::IValue* arguments = stack->data() + (stack->size() - op.arguments.size());
  const at::Tensor& running_min = arguments[3].toTensor();
  const bool per_row = arguments[11].toBool();
  if (per_row && running_min.numel() == 0) {
    const int64_t rows = arguments[0].toTensor().size(arguments[10].toInt());
    running_min.resize_({rows}).fill_(std::numeric_limits<float>::infinity());
    arguments[4].toTensor().resize_({rows}).fill_(-std::numeric_limits<float>::infinity());
    for (size_t i : {5, 6}) arguments[i].toTensor().resize_({rows});  // scale, zero_point
  }
  record(op, *stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_moving_avg_obs_fq_helper", torch::CppFunction::makeFromBoxedFunction<&observe>());
}

}  // namespace

}  // namespace tpjrt::device
