// Results of ATen's kernels that have no out= form, in memory that is there.
//
// Note [Placed results]: a kernel that makes its own result has it copied to the program's buffer, or is made to add to zeros there:
// for a convolution of bfloat16 a third of its time. Such kernels make their results by `empty`. While a Placed stands, `empty` is
// this project's (a dispatch key that nothing else has is in the thread's), and the first memory of exactly the result's size that a
// tensor asks for is the result's place. Whatever else may take it: give() looks where the result is, and copies it if it is elsewhere.
// What oneDNN needs beside is not allocated by tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace tpjrt::kernels {

// Of one result, dense in some order of its dimensions, and one thread. Nothing that the kernel made may outlive it.
class Placed {
 public:
  explicit Placed(const at::Tensor& place);
  ~Placed();
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;

  // Puts what the kernel gave at the place.
  void give(const at::Tensor& result) const;

 private:
  const at::Tensor& place_;
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace tpjrt::kernels
