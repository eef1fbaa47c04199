// Converts between leaves and CUDA tensors, in the order of streams.
#include "engine/run/cuda_run.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "engine/kernel/kernel_call.h"
#include "engine/memory/cuda.h"
#include "engine/memory/host_memory.h"

namespace tpjrt::engine {

std::optional<c10::Device> cuda_device(const pjrt::Client& client, size_t device) {
  if (!cuda::is_shared(client, c10::kCUDA) || !at::hasCUDA()) return std::nullopt;
  const int number = client.devices().at(device).local_hardware_id;
  if (number < 0 || number >= at::detail::getCUDAHooks().deviceCount()) return std::nullopt;
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(number));
}

CudaRun::CudaRun(pjrt::Client& client, size_t device, c10::Device cuda)
    : client_(client), device_(device), cuda_(cuda), guard_(cuda), stream_(cuda::current_stream(cuda)) {
  cuda::check_not_captured(stream_);
}

CudaRun::~CudaRun() {
  try {
    for (const c10::Stream& other : others_) cuda::waits_for(other, stream_);
  } catch (const std::exception& error) {  // the platform is gone
    TORCH_WARN("streams of CUDA are not put in order: ", error.what());
  }
}

at::Tensor CudaRun::tensor(const graph::NodePtr& leaf) {
  const graph::TensorType& form = *leaf->leaf_type;
  const DeviceData& data = data_of(*leaf);
  if (form.numel() == 0) {
    return at::empty_strided(form.sizes, form.strides, at::TensorOptions(cuda_).dtype(form.dtype));
  }
  if (!data.lender) return result(leaf->leaf_type, data.buffer);
  if (*data.lender != stream_) {
    cuda::current_stream_waits(*data.buffer, cuda_);
    if (std::ranges::find(others_, *data.lender) == others_.end()) others_.push_back(*data.lender);
  }
  return data.host;
}

bool CudaRun::take(const graph::NodePtr& leaf) {
  auto& data = static_cast<DeviceData&>(*leaf->data);
  const bool is_last = leaf.use_count() == leaf->uses + 1 && data.buffer.use_count() == 1;
  if (!is_last || data.lender != stream_) return false;
  data.host.reset();
  data.buffer.reset();
  return took_ = true;
}

std::shared_ptr<pjrt::Buffer> CudaRun::view(const at::Tensor& tensor,
                                            const std::shared_ptr<const pjrt::BufferType>& type,
                                            pjrt::StreamHandle order) {
  auto view = client_.view_of_device_memory(tensor.const_data_ptr(), type, device_, order);
  pjrt::Buffer* const buffer = view.get();
  return {buffer, [view = std::move(view), tensor = at::Tensor(tensor)](pjrt::Buffer*) mutable {
            view.reset();
            tensor.reset();
          }};
}

graph::NodePtr CudaRun::lend(const at::Tensor& dense) {
  const graph::TypePtr form = form_of(dense);
  return leaf_of(form, view(dense, buffer_type(*form), cuda::after_current_stream(client_, device_, cuda_)),
                 /*borrowed=*/true);
}

at::Tensor CudaRun::result(graph::TypePtr form, std::shared_ptr<pjrt::Buffer> buffer) {
  cuda::current_stream_waits(*buffer, cuda_);
  return tensor_over(cuda::storage_over(std::move(buffer), form->nbytes(), cuda_), form->dtype, form->sizes,
                     form->strides, 0);
}

std::shared_ptr<DeviceData> CudaRun::keep(at::Tensor result, const std::shared_ptr<const pjrt::BufferType>& type) {
  if (!order_) order_ = cuda::after_current_stream(client_, device_, cuda_);
  auto data = std::make_shared<DeviceData>(view(result, type, *order_), /*borrowed=*/true);
  data->buffer->set_counted(true);  // device memory, whoever allocated it
  data->lender = stream_;
  data->host = std::move(result);
  return data;
}

}  // namespace tpjrt::engine
