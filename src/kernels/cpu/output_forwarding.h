// Output forwarding for ATen's kernels that have no out= form: their results are written into existing memory.
//
// A kernel that allocates its own result would need a copy into the program's buffer, or must be made to add to zeros
// there; for a convolution of bfloat16 that is a third of its time. Such kernels allocate results by PyTorch's CPU
// allocator. The first OutputForwarding of a process puts one before it (c10::SetCPUAllocator): while an
// OutputForwarding lives, its thread's first allocation of exactly the result's bytes gets the result's memory. Another
// tensor may take it, or oneDNN for an intermediate result, so give() checks where the result is and copies it if it is
// elsewhere.
#pragma once

#include <ATen/core/Tensor.h>

namespace tpjrt::kernels {

// For one result, dense in some order of its dimensions, and one thread. No other tensor of the kernel may outlive
// it.
class OutputForwarding {
 public:
  explicit OutputForwarding(const at::Tensor& place);
  ~OutputForwarding();
  OutputForwarding(const OutputForwarding&) = delete;
  OutputForwarding& operator=(const OutputForwarding&) = delete;

  // Copies the kernel's result to the memory, unless it is there already.
  void give(const at::Tensor& result) const;

 private:
  const at::Tensor& place_;
};

}  // namespace tpjrt::kernels
