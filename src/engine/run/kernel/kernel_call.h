// How one call is run without a program, worked out once: by PyTorch's kernel on the CPU or on CUDA, mostly.
//
// Made of a signature, and kept as long as it: for the life of the process. May be used from any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/call/stack.h"
#include "engine/run/kernel/index_guard.h"
#include "graph/node.h"
#include "kernels/host/host_kernel.h"

namespace tpjrt::engine {

class KernelCall {
 public:
  // The one of this signature, on PyTorch's CPU or CUDA `device`. `numbers`: of any such call.
  static KernelCall& of(graph::SignaturePtr signature, c10::Device device = c10::kCPU,
                        c10::ArrayRef<graph::Number> numbers = {});
  static KernelCall& of(const graph::Node& node, c10::Device device) {
    return of(node.signature, device, node.numbers);
  }

  KernelCall(graph::SignaturePtr signature, c10::Device device, c10::ArrayRef<graph::Number> numbers);
  KernelCall(const KernelCall&) = delete;
  KernelCall& operator=(const KernelCall&) = delete;

  // What runs it: the nodes of this project itself (device/tensor/access.cpp) run here, too.
  enum class Way : uint8_t { kEmpty, kConvert, kView, kWrite, kHostKernel, kKernel, kNone };
  Way way() const { return refused_ ? Way::kNone : way_; }
  const graph::Signature& signature() const { return signature_; }
  // Does it write all of its one tensor, whatever it held?
  bool fills() const { return fills_; }
  bool writes(size_t operand) const { return written_[operand] >= 0; }
  // For what its operands hold, or because PyTorch has no kernel for it.
  bool may_fail() const { return way_ > Way::kWrite && (refused_ || !kernel_ || may_fail_halfway_); }

  // Is it a kernel's of few elements that leaves its operands as they were if it fails (Note [At once])?
  bool is_small() const {
    const bool is_of_host = way_ == Way::kHostKernel && !signature_.random && signature_.mutated.empty();
    return is_small_ && way() != Way::kNone && (is_of_host || !may_fail());
  }

  // Appends the results, each of its type's strides and at the start of its storage. Where it throws, operands are as they
  // were. Not for kNone. Operands that nobody else has may be written over, if the call writes them; `stack` is empty,
  // and no more than memory to work in.
  void run(const graph::Node& node, std::vector<at::Tensor>& operands, torch::jit::Stack& stack,
           std::vector<at::Tensor>& results) const;
  // Of a view: its elements where they lie in the base's memory, in no order of their own.
  at::Tensor alias(const graph::Node& node, const at::Tensor& base) const;
  // May a kernel be given this view as it lies? Not what the caller has made contiguous before: there are kernels that
  // believe it.
  bool may_be_given(const graph::TensorType& operand) const { return strides_ == operand.strides; }
  // Does it take operands that lie in any way, as PyTorch's kernels do?
  bool takes_any_strides() const { return way_ == Way::kKernel || way_ == Way::kHostKernel; }
  // May another way be tried where it throws?
  bool may_be_refused() const { return way_ > Way::kWrite; }
  // A kernel threw: it is not tried again.
  void refuse();
  // How many were refused so far, of all.
  static uint64_t refused();

  // The results in their types' strides.
  void lay_out(std::vector<at::Tensor>& results, size_t first) const;

 private:
  at::Tensor over(const at::Tensor& base, c10::ScalarType dtype, int64_t offset) const;
  at::Tensor run_write(const graph::Node& node, std::vector<at::Tensor>& operands) const;
  void run_kernel(const graph::Node& node, std::vector<at::Tensor>& operands, torch::jit::Stack& stack,
                  std::vector<at::Tensor>& results) const;

  const graph::Signature& signature_;
  const c10::Device device_;
  Way way_ = Way::kNone;
  bool kernel_ = false;  // PyTorch has one
  const bool fills_;
  bool may_fail_halfway_ = false;  // when it has written some of the result already
  bool widens_ = false;            // 16-bit floats to 32 bits before the kernel
  bool is_small_ = false;
  bool is_warned_of_ = false;  // by the recorder: of degrees of freedom
  std::atomic<bool> refused_ = false;
  std::optional<c10::ScalarType> dtype_of_numbers_;  // that Python's numbers are converted to
  kernels::HostKernel host_kernel_ = nullptr;
  IndexGuard index_guard_ = nullptr;
  std::optional<device::StackForm> form_;  // of kKernel
  graph::Sizes sizes_, strides_;           // of a view, or the place that is written
  std::vector<int32_t> written_;           // by operand: its number among those that are written, or -1
};

// A new tensor of this type.
at::Tensor empty_of(const graph::TensorType& type, c10::Device device);
// The tensor, or a copy of it, in this type's strides and at the start of its storage, so that a view of it can be told by that.
at::Tensor laid_out(const at::Tensor& tensor, const graph::TensorType& type);
// Nobody else reads this memory.
bool is_alone(const at::Tensor& tensor);

}  // namespace tpjrt::engine
