// Ops that XLA can't do: what they need is run, then the op on the CPU in eager.
//
// Never silent: each case is counted by op, warned of once with the user's line where it costs more than the cut of the
// graph, and an error under TORCH_PJRT_STRICT=1.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <exception>
#include <string>

#include "device/call/operator.h"
#include "graph/node.h"

namespace tpjrt::device {

void run_on_host(const Operator& op, torch::jit::Stack& stack, const char* reason);
// After the Meta kernel threw: runs on the host, where a user's mistake raises PyTorch's own error.
void run_on_host_after_meta(const Operator& op, torch::jit::Stack& stack, std::exception_ptr meta_error);

// For what is no ATen call and cuts the graph on every device: raises in strict mode and where a program is traced.
void check_may_run_on_host(const std::string& op, const char* reason);
void note_on_host(const std::string& op, const char* reason);  // after it ran: counted and told

// The value of the tensor's storage after a sync: a leaf. Not under graph_lock().
graph::Value ready_leaf(const at::Tensor& tensor, const char* cause);
// In a trace: the tensor's value where it rests on data alone, so that it is the same in every run; else empty.
graph::Value value_in_trace(const at::Tensor& tensor);
// The tensor's values as a CPU tensor of the same sizes and strides. Read only: it may be the device's own memory. Raises in a world
// whose ranks have values of their own.
at::Tensor host_tensor(const at::Tensor& tensor, const char* cause);
// Whether all ranks of a world have the same values; true outside of a world. Only then host_tensor gives them.
bool has_one_value(const at::Tensor& tensor);
// A copy of what one rank of a world has.
at::Tensor values_of_rank(const at::Tensor& tensor, size_t rank);
// A CPU tensor as a new tensor on the device. `owned`: see Engine::upload.
at::Tensor device_tensor(const at::Tensor& tensor, c10::DeviceIndex device, bool owned);

// A tensor on the device over the memory of a CPU tensor, which is taken out of its storage; undefined where that can't
// be done without a copy. See Engine::borrow.
at::Tensor borrowing_tensor(const at::Tensor& tensor, c10::DeviceIndex device);

// Is told of each call that ran on the host, in the thread that made it. Installed by the engine.
using HostListener = void (*)(const std::string& op, const char* reason);
void install_host_listener(HostListener listener);

}  // namespace tpjrt::device
