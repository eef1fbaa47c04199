// The execution of one recorded call by PyTorch: mostly its kernel on the CPU or on CUDA. The interpreter tier, the eager
// fast path and calls within programs (Note [Calls of the CPU's kernels]) run calls this way.
//
// Checks of indices that PyTorch's CPU kernels don't check.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/aten_call/arguments.h"
#include "graph/scalar_value.h"
#include "graph/signature.h"
#include "kernels/host/host_kernel.h"

namespace tpjrt::engine {

// Throws if an index is out of range. Kernels of some backwards access memory at any index, because the forward has
// checked it. Here the forward may not have run.
using IndexGuard = void (*)(const kernels::HostArguments& call);

// Returns null if the kernel checks its indices or has none.
IndexGuard index_guard(const graph::Signature& signature);

// The number of elements up to which a call may execute immediately (Note [Eager fast path]).
inline constexpr int64_t kFewElements = 1 << 12;

// Variants of a call's op that write its results to memory that is given.
struct Variants {
  std::optional<c10::OperatorHandle> out{};       // takes the memory of all results
  std::optional<c10::OperatorHandle> in_place{};  // overwrites the first operand, whose memory is the result's
};

class KernelCall {
 public:
  // `signature` outlives the call. `is_kernel_usable`: false if PyTorch's kernel must not run the call. A call with
  // `variants` is computed into memory that is given.
  KernelCall(graph::SignaturePtr signature, c10::Device device, bool is_kernel_usable, Variants variants = {});
  KernelCall(const KernelCall&) = delete;
  KernelCall& operator=(const KernelCall&) = delete;

  // How the call runs. The first four are this project's own nodes (device/tensor/access.cpp).
  enum class Way : uint8_t { kEmpty, kConvert, kView, kWrite, kHostKernel, kKernel, kNone };
  Way way() const { return refused_ ? Way::kNone : way_; }
  const graph::Signature& signature() const { return signature_; }
  // Returns true if it overwrites all of its only tensor.
  bool fills() const { return fills_; }
  bool writes(size_t operand) const { return written_[operand] >= 0; }
  // Returns true if it may fail because of its operands' data, or because PyTorch has no kernel for it.
  bool may_fail() const { return way_ > Way::kWrite && (refused_ || !kernel_ || may_fail_halfway_); }

  // Returns true for a kernel on few elements that leaves its operands unchanged if it fails (Note [Eager fast path]).
  bool is_small() const {
    const bool is_of_host = way_ == Way::kHostKernel && !signature_.random && signature_.mutated.empty();
    return is_small_ && way() != Way::kNone && (is_of_host || !may_fail());
  }

  // Appends the results, each with its type's strides and at the start of its storage. If it throws, operands are
  // unchanged. Not for kNone. Operands that nobody else holds may be overwritten if the call writes to them. `stack` is
  // empty scratch space. `scalars`: the node's, with the random key.
  void run(c10::ArrayRef<graph::ScalarValue> scalars, std::vector<at::Tensor>& operands, torch::jit::Stack& stack,
           std::vector<at::Tensor>& results) const;
  // Likewise, with the results as the kernel lays them out, for kernels alone. `places`: memory of the results' types;
  // a result that isn't there remains to be copied.
  void compute(c10::ArrayRef<graph::ScalarValue> scalars, const kernels::RandomState& key,
               std::vector<at::Tensor>& operands, c10::ArrayRef<at::Tensor> places, torch::jit::Stack& stack,
               std::vector<at::Tensor>& results) const;
  // Returns a view's elements in its base's memory, with the view's own strides.
  at::Tensor alias(c10::ArrayRef<graph::ScalarValue> scalars, const at::Tensor& base) const;
  // Returns true if a kernel accepts this view without a copy. Operands that the caller made contiguous must stay so:
  // some kernels rely on it.
  bool may_be_given(const graph::TensorType& operand) const { return strides_ == operand.strides; }
  // Returns true if operands may have any strides, as for PyTorch's kernels.
  bool takes_any_strides() const { return way_ == Way::kKernel || way_ == Way::kHostKernel; }
  // Returns true if another way may be tried after it throws.
  bool may_be_refused() const { return way_ > Way::kWrite; }
  // Marks the kernel as refusing this call, so that it is not tried again.
  void refuse();
  // The number of refused calls so far.
  static uint64_t refused();

  // Gives the results their types' strides.
  void lay_out(std::vector<at::Tensor>& results, size_t first) const;

 private:
  at::Tensor over(const at::Tensor& base, c10::ScalarType dtype, int64_t offset) const;
  at::Tensor run_write(c10::ArrayRef<graph::ScalarValue> scalars, std::vector<at::Tensor>& operands) const;
  void run_kernel(c10::ArrayRef<graph::ScalarValue> scalars, std::vector<at::Tensor>& operands,
                  c10::ArrayRef<at::Tensor> places, torch::jit::Stack& stack, std::vector<at::Tensor>& results) const;

  const graph::Signature& signature_;
  const c10::Device device_;
  Way way_ = Way::kNone;
  bool kernel_ = false;  // PyTorch has a kernel
  const bool fills_;
  bool may_fail_halfway_ = false;  // after part of the result is written
  bool widens_ = false;            // 16-bit floats to 32 bits before the kernel
  bool is_small_ = false;
  bool is_warned_of_ = false;  // by the recorder, about degrees of freedom
  std::atomic<bool> refused_ = false;
  std::optional<c10::ScalarType> dtype_of_numbers_;  // Python scalars are converted to it
  kernels::HostKernel host_kernel_ = nullptr;
  IndexGuard index_guard_ = nullptr;
  Variants variants_;
  std::optional<device::StackTemplate> form_;  // for kKernel
  graph::Sizes sizes_, strides_;               // of a view, or of the memory that is written
  std::vector<int32_t> written_;               // by operand: its index among written operands, or -1
};

// Returns a tensor over a storage of any device.
at::Tensor tensor_over(c10::Storage storage, c10::ScalarType dtype, const graph::Sizes& sizes,
                       const graph::Sizes& strides, int64_t offset);
// Returns a new tensor of this type.
at::Tensor empty_of(const graph::TensorType& type, c10::Device device);
// Returns the tensor or a copy, with this type's strides and at the start of its storage, so that views of it are
// recognizable.
at::Tensor laid_out(const at::Tensor& tensor, const graph::TensorType& type);
// Returns true if nobody else holds this memory.
bool is_alone(const at::Tensor& tensor);
// Returns the tensor, or a copy of this dense type if others see its memory or it is a part of more.
at::Tensor in_own_memory(at::Tensor tensor, const graph::TensorType& type);

}  // namespace tpjrt::engine
