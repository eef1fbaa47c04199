// The device's own kernels for copies and reads.
#pragma once

#include <ATen/core/Tensor.h>

namespace tpjrt::device {

// Copies. Like torch.cuda, a copy from the host to the device is complete when it returns: the host's memory may
// change afterwards.
at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking);
// Copies to a `self` without lazy conjugate or negative bit.
void copy_values(const at::Tensor& self, const at::Tensor& src);
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking);
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst);
// Reads one element without compiling anything for it.
at::Scalar _local_scalar_dense(const at::Tensor& self);

}  // namespace tpjrt::device
