// Weights of convolutions that a compiled function has frozen: as oneDNN has them, kept from call to call.
//
// Note [Frozen weights]: oneDNN brings a weight into an order of its own in each call, unless it is given in that order. Who freezes a
// function (python/torch_pjrt/dynamo/freezing.py) gives each weight once, and again when it has changed; a program names it by
// number, so that new values are no new program. Numbers are counted in a process and mean nothing in another one, as a
// program is emitted anew there.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace tpjrt::kernels {

// Has PyTorch what that takes?
bool can_freeze_weights();

// How a weight moves over images.
struct Window {
  c10::IntArrayRef stride, padding, dilation;
  int64_t groups;
};

// One weight's place, which programs find by its number while this lives. Thread-safe.
class FrozenWeight {
 public:
  FrozenWeight();
  ~FrozenWeight();
  FrozenWeight(const FrozenWeight&) = delete;
  FrozenWeight& operator=(const FrozenWeight&) = delete;

  int64_t number() const { return number_; }
  // From now on it is this weight [O, I / groups, height, width], for images of these sizes. A call that runs goes on with the one before.
  void put(const at::Tensor& weight, std::optional<at::Tensor> bias, const Window& window, c10::IntArrayRef images);

 private:
  int64_t number_;
};

struct Frozen {
  at::Tensor weight;  // in oneDNN's order
  std::optional<at::Tensor> bias;
};
// Throws where nobody has it any more.
std::shared_ptr<const Frozen> find_frozen(int64_t number);

}  // namespace tpjrt::kernels
