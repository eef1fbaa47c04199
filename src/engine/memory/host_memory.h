// Memory of PyTorch's own devices, the CPU and CUDA, that programs use in place and return results in.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <memory>

#include "device/tensor/storage.h"
#include "graph/type.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

// A smaller copy costs no more than creating the buffer over an argument's memory, so it is not reported.
inline constexpr size_t kNoticedBytes = 4096;

bool is_aligned(const void* memory);  // for zero-copy

// Note [Mapped weights]: safetensors (and with it from_pretrained of the Hugging Face libraries) maps a file into
// memory. Each tensor's storage is a slice of that mapping, at any multiple of 8 bytes. XLA uses memory in place only
// at multiples of 64, so every call of a compiled function would copy all weights. Such a slice is moved once to
// aligned memory. Its storage is changed, so every tensor over it follows. The mapping is private to this process, so
// nobody else could see writes to it. No other thread may use the tensor meanwhile, as with module.to().

// Moves the tensor's storage if it is a slice of a private mapping; otherwise returns false. Thread-safe.
bool move_out_of_mapped_file(const at::Tensor& tensor);

// Sets the deleter of storage slices (storage[1:2] in Python), by which they are recognized.
void set_deleter_of_slices(c10::DeleterFnPtr deleter);

// Returns true if every call that takes this CPU tensor copies it, although the device uses host memory.
bool is_copied(const at::Tensor& tensor);

inline bool is_outside(c10::Device device) { return device.type() != device::kPjrt; }

// Returns a storage on `device` with the buffer's data: either its memory, which the storage keeps alive, or a host
// copy if the plugin's device has its own memory.
c10::Storage storage_over(std::shared_ptr<pjrt::Buffer> buffer, const graph::TensorType& form, c10::Device device);

// Returns the buffer of that type whose memory is this tensor's storage, if the tensor begins at its start; otherwise
// null.
std::shared_ptr<pjrt::Buffer> own_buffer(const at::Tensor& tensor, const pjrt::BufferType& type);

// Returns freed memory from the C library's allocator to the system: a long compile often leaves a gigabyte there.
// Takes milliseconds, and makes the next allocations slower.
void return_freed_memory();

}  // namespace tpjrt::engine
