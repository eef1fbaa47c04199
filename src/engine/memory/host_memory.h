// Memory of PyTorch's own devices, the CPU and CUDA, that programs use in place, get results in, or map.
//
// Compiled functions use such memory in place and return results in it.
//
// Note [Supplied results]: a CPU plugin allocates results in its own threads, and the C library's allocator keeps an
// arena for each thread with the memory that was freed there. A training step's peak was 1.3 times Inductor's. So
// PyTorch allocates the memory of a large CPU result, as for any CPU tensor. The program gets it as an additional
// argument that it never reads and that is donated for the result.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <memory>

#include "device/tensor/storage.h"
#include "graph/type.h"
#include "pjrt/client.h"

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

// Note [Mappings]: XLA:CPU maps code, constants and unwind tables of each kernel separately: about ninety mappings for
// a program of a hundred calls. Linux grants a process 65,530 (vm.max_map_count). When they run out, XLA can't link a
// program, and leaves unwind tables registered whose memory is gone: the next C++ exception ends the process. So
// programs are dropped long before.
//
// Returns true if half of the system's limit is in use; false if there is no limit. Takes milliseconds.
bool are_mappings_scarce();

// Used by one call at a time.
class SuppliedResult {
 public:
  static constexpr size_t kFewestBytes = 1 << 20;  // an additional argument costs microseconds

  explicit SuppliedResult(graph::TypePtr form);

  // Allocates the memory and returns the argument for the program. Throws if there is too little memory.
  const pjrt::Buffer* bind(pjrt::Client& client, size_t device_index);
  // Returns the result after the program has run; `output` is what the program returned.
  c10::Storage take(std::shared_ptr<pjrt::Buffer> output);
  void let_go();

 private:
  graph::TypePtr form_;
  std::shared_ptr<const pjrt::BufferType> type_;
  at::DataPtr memory_;                    // set during a call
  std::shared_ptr<pjrt::Buffer> buffer_;  // over memory_
};

}  // namespace tpjrt::engine
