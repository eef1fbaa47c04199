// The memory of tensors that are on one of PyTorch's own devices: the CPU, and CUDA where the plugin has it too.
//
// Compiled functions take such memory where it lies and give results in it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "device/tensor/storage.h"
#include "graph/type.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

inline bool is_outside(c10::Device device) { return device.type() != device::kPjrt; }

// A storage on `device` with the buffer's data: its memory, kept alive by the storage, or a copy on the host where the
// plugin's device has a memory of its own.
c10::Storage storage_over(std::shared_ptr<pjrt::Buffer> buffer, const graph::TensorType& form, c10::Device device);

// The buffer of that type whose memory this tensor's storage is, if it begins there.
std::shared_ptr<pjrt::Buffer> own_buffer(const at::Tensor& tensor, const pjrt::BufferType& type);

// A tensor over a storage of any device.
at::Tensor tensor_over(c10::Storage storage, c10::ScalarType dtype, const graph::Sizes& sizes,
                       const graph::Sizes& strides, int64_t offset);

}  // namespace tpjrt::engine
