// Memory of tensors on PyTorch's own devices: the CPU, and CUDA if the plugin has the same GPU.
//
// Compiled functions use such memory in place and return results in it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "device/tensor/storage.h"
#include "graph/type.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

inline bool is_outside(c10::Device device) { return device.type() != device::kPjrt; }

// Returns a storage on `device` with the buffer's data: either its memory, which the storage keeps alive, or a host
// copy if the plugin's device has its own memory.
c10::Storage storage_over(std::shared_ptr<pjrt::Buffer> buffer, const graph::TensorType& form, c10::Device device);

// Returns the buffer of that type whose memory is this tensor's storage, if the tensor begins at its start; otherwise
// null.
std::shared_ptr<pjrt::Buffer> own_buffer(const at::Tensor& tensor, const pjrt::BufferType& type);

// Returns a tensor over a storage of any device.
at::Tensor tensor_over(c10::Storage storage, c10::ScalarType dtype, const graph::Sizes& sizes,
                       const graph::Sizes& strides, int64_t offset);

}  // namespace tpjrt::engine
