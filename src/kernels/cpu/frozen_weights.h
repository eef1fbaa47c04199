// Frozen weights of a compiled function's convolutions, kept in oneDNN's layout from call to call.
//
// Note [Frozen weights]: oneDNN reorders a weight into its own layout in each call, unless the weight already has it.
// Freezing a function (python/torch_pjrt/dynamo/freezing.py) reorders each weight once, and again when it has
// changed. A program names a weight by number, so new values need no new program. Numbers are counted in one process
// and mean nothing in another, where a program is emitted again.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

namespace tpjrt::kernels {

// How a weight moves over images.
struct Window {
  c10::IntArrayRef stride, padding, dilation;
  int64_t groups;
};

// The slot of one weight, which programs find by its number while this lives. Thread-safe.
class FrozenWeight {
 public:
  FrozenWeight();
  ~FrozenWeight();
  FrozenWeight(const FrozenWeight&) = delete;
  FrozenWeight& operator=(const FrozenWeight&) = delete;

  int64_t number() const { return number_; }
  // Replaces the weight [O, I / groups, height, width], for images of these sizes. A call that is running goes on
  // with the one before.
  void put(const at::Tensor& weight, std::optional<at::Tensor> bias, const Window& window, c10::IntArrayRef images);

 private:
  int64_t number_;
};

struct Frozen {
  at::Tensor weight;  // in oneDNN's layout
  std::optional<at::Tensor> bias;
};
// Throws if the weight no longer exists.
std::shared_ptr<const Frozen> find_frozen(int64_t number);

// Digests of memory's content. A cache of values computed from memory compares them if it isn't notified of writes.

// Different contents have different digests, except with a probability of at most 2^-64.
using Digest = std::array<uint64_t, 8>;

// Returns the digest of dense CPU tensors: dtype, sizes, strides and elements of each. Reads all of their memory, on
// PyTorch's threads.
Digest digest(c10::ArrayRef<at::Tensor> tensors);

}  // namespace tpjrt::kernels
