// Host memory that the device uses in place.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace tpjrt::engine {

// Note [Mapped weights]: safetensors (and with it from_pretrained of the Hugging Face libraries) maps a file into
// memory. Each tensor's storage is a slice of that mapping, at any multiple of 8 bytes. XLA uses memory in place only
// at multiples of 64, so every call of a compiled function would copy all weights. Such a slice is moved once to
// aligned memory. Its storage is changed, so every tensor over it follows. The mapping is private to this process, so
// nobody else could see writes to it. No other thread may use the tensor meanwhile, as with module.to().

// A smaller copy costs no more than creating the buffer over an argument's memory, so it is not reported.
inline constexpr size_t kNoticedBytes = 4096;

bool is_aligned(const void* memory);  // for zero-copy

// Moves the tensor's storage if it is a slice of a private mapping; otherwise returns false. Thread-safe.
bool move_out_of_mapped_file(const at::Tensor& tensor);

// Returns true if every call that takes this CPU tensor copies it, although the device uses host memory.
bool is_copied(const at::Tensor& tensor);

// Returns freed memory from the C library's allocator to the system: a long compile often leaves a gigabyte there.
// Takes milliseconds, and makes the next allocations slower.
void return_freed_memory();

// Sets the deleter of storage slices (storage[1:2] in Python), by which they are recognized.
void set_deleter_of_slices(c10::DeleterFnPtr deleter);

}  // namespace tpjrt::engine
