// Storages over buffers' memory.
#include "engine/memory/outside_memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include <utility>

#include "engine/memory/cuda.h"

namespace tpjrt::engine {
namespace {

// Releases the buffer that a CPU storage over its memory keeps alive.
void release_buffer(void* buffer) { delete static_cast<std::shared_ptr<pjrt::Buffer>*>(buffer); }

c10::DispatchKey key_of(c10::DeviceType type) {
  if (type == c10::kCPU) return c10::DispatchKey::CPU;
  return type == c10::kCUDA ? c10::DispatchKey::CUDA : c10::DispatchKey::PrivateUse1;
}

}  // namespace

c10::Storage storage_over(std::shared_ptr<pjrt::Buffer> buffer, const graph::TensorType& form, c10::Device device) {
  const auto nbytes = form.nbytes();
  if (!device.is_cpu()) return cuda::storage_over(std::move(buffer), nbytes, device);
  c10::DataPtr memory;
  if (!buffer->client().is_host_memory() || nbytes == 0) {
    memory = c10::GetCPUAllocator()->allocate(nbytes);
    if (nbytes > 0) buffer->copy_to_host(memory.get(), nbytes);
  } else {
    void* data = const_cast<void*>(buffer->host_pointer());
    memory = {data, new std::shared_ptr<pjrt::Buffer>(std::move(buffer)), &release_buffer, c10::kCPU};
  }
  return {c10::Storage::use_byte_size_t(), nbytes, std::move(memory), c10::GetCPUAllocator(), true};
}

std::shared_ptr<pjrt::Buffer> own_buffer(const at::Tensor& tensor, const pjrt::BufferType& type) {
  if (tensor.storage_offset() != 0) return nullptr;
  const c10::DataPtr& memory = tensor.storage().data_ptr();
  std::shared_ptr<pjrt::Buffer> buffer = memory.get_deleter() == &release_buffer
                                             ? *static_cast<std::shared_ptr<pjrt::Buffer>*>(memory.get_context())
                                             : cuda::buffer_under(memory);
  const bool fits = buffer && buffer->dims() == type.dims && buffer->element_type() == type.element_type;
  return fits ? buffer : nullptr;
}

at::Tensor tensor_over(c10::Storage storage, c10::ScalarType dtype, const graph::Sizes& sizes,
                       const graph::Sizes& strides, int64_t offset) {
  const c10::DispatchKeySet key(key_of(storage.device_type()));
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), key, c10::scalarTypeToTypeMeta(dtype));
  impl->set_sizes_and_strides(sizes, strides, offset);
  return at::Tensor(std::move(impl));
}

}  // namespace tpjrt::engine
