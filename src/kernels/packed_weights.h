// Weights of convolutions in the order that oneDNN computes in, kept from call to call.
//
// Note [Packed weights]: oneDNN brings a weight into an order of its own in each call, which is up to a third of a
// convolution's time. A weight whose content is met a second time is kept in that order. A handler is told no versions, and
// whoever writes to memory need not tell anyone: so each call looks at the whole content, by a digest of 512 bits, which
// reads the weight once. A weight that was changed, as in training, isn't looked at for some calls, twice as many each time.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tpjrt::kernels {

using Digest = std::array<uint64_t, 8>;
// Of `count` floats; other contents have others.
Digest digest(const float* data, size_t count);

// Not thread-safe.
class PackedWeights {
 public:
  // For a convolution with these parameters, of an input of these sizes.
  struct Use {
    c10::IntArrayRef padding, stride, dilation, input;
    int64_t groups;
  };
  // The weight (float32, row-major) in oneDNN's order; none where it isn't kept.
  std::optional<at::Tensor> find(const at::Tensor& weight, const Use& use);
  int64_t bytes() const { return bytes_; }

 private:
  struct Slot {
    std::optional<Digest> seen;
    at::Tensor packed;
    int64_t bytes = 0;             // of what is packed
    int64_t unseen = 0, wait = 0;  // calls that don't look; how many the next change brings
    uint64_t used = 0;
  };
  void let_go();

  std::map<std::vector<int64_t>, Slot> slots_;
  int64_t bytes_ = 0;
  uint64_t calls_ = 0;
};

}  // namespace tpjrt::kernels
