// Ops that run on the host, and copies between the host and the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "device/aten_call/operator.h"
#include "graph/node.h"

namespace tpjrt::device {

// Ops that XLA can't do: their operands are synced, then the op runs on the CPU in eager mode. This is never silent.
// Each case is counted by op, is warned of once with the user's line if it costs more than the cut of the graph, and is
// an error under TORCH_PJRT_STRICT=1.
void run_on_host(const Operator& op, torch::jit::Stack& stack, const char* reason);
// Runs the op on the host, whoever counts it. Tensors of all layouts are moved.
void call_on_host(const Operator& op, torch::jit::Stack& stack);
// Called after the Meta kernel threw: runs the op on the host, where a user's mistake raises PyTorch's own error.
void run_on_host_after_meta(const Operator& op, torch::jit::Stack& stack, std::exception_ptr meta_error);

// For operations that are no ATen call and cut the graph on every device: throws in strict mode and while a program
// is traced.
void check_may_run_on_host(const std::string& op, const char* reason);
void note_on_host(const std::string& op, const char* reason);  // after it ran: counts and reports it

// Returns the value of the tensor's storage after a sync, which is a leaf. Not under graph_lock().
graph::Value ready_leaf(const at::Tensor& tensor, const char* cause);
// Returns, in a trace, the tensor's value if it depends on data alone, so that it is the same in every run; otherwise
// empty.
graph::Value value_in_trace(const at::Tensor& tensor);
// Returns the tensor's values as a CPU tensor of the same sizes and strides. It must not be written: it may be the
// device's own memory. Throws in a world whose ranks have different values.
at::Tensor host_tensor(const at::Tensor& tensor, const char* cause);
// Returns whether all ranks of a world have the same values; true outside of a world. Only then does host_tensor
// return them.
bool has_one_value(const at::Tensor& tensor);
// Returns a copy of one rank's values.
at::Tensor values_of_rank(const at::Tensor& tensor, size_t rank);
// Returns a new tensor on the device with the values of a CPU tensor. `owned`: see Engine::upload.
at::Tensor device_tensor(const at::Tensor& tensor, c10::DeviceIndex device, bool owned);

// Returns a tensor on the device over the memory of a CPU tensor, which is taken out of its storage; undefined if
// that would need a copy. See Engine::borrow.
at::Tensor borrowing_tensor(const at::Tensor& tensor, c10::DeviceIndex device);

// The device's own kernels for copies and reads.

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
