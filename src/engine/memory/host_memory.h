// Which memory on the host the device uses where it lies.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace tpjrt::engine {

// Note [Mapped weights]: safetensors (and so from_pretrained of the Hugging Face libraries) maps a file into memory and
// makes each tensor's storage a slice of that mapping, at any multiple of 8 bytes. XLA uses memory in place at multiples
// of 64 only, so that every call of a compiled function would copy all weights. Such a slice is moved to memory of its
// own, once: its storage, so that every tensor over it follows. The mapping is private to this process, so nobody
// else could see what is written there. As with module.to(), no other thread may compute with the tensor meanwhile.

// A copy of fewer bytes costs no more than the buffer over an argument's memory would, and nobody need know.
inline constexpr size_t kNoticedBytes = 4096;

bool is_aligned(const void* memory);  // as zero-copy needs it

// Moves the tensor's storage if it is a slice of a private mapping; else returns false. Thread-safe.
bool move_out_of_mapped_file(const at::Tensor& tensor);

// Is this tensor of the CPU copied in each call that takes it, where the device has the host's memory?
bool is_copied(const at::Tensor& tensor);

// Gives the system what was freed and stays with the C library's allocator: of what a long compile takes, a gigabyte is
// common. Takes milliseconds, and what is allocated next some more.
void return_freed_memory();

// What frees a slice of a storage (storage[1:2] in Python). Slices are known by it.
void set_deleter_of_slices(c10::DeleterFnPtr deleter);

}  // namespace tpjrt::engine
