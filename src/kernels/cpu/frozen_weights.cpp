// The table of frozen weights.
#include "kernels/cpu/frozen_weights.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <unordered_map>
#include <utility>

namespace tpjrt::kernels {
namespace {

struct Table {
  std::mutex lock;
  std::unordered_map<int64_t, std::shared_ptr<const Frozen>> by_number;
  int64_t last = 0;
};
Table& table() {
  static auto* all = new Table;
  return *all;
}

}  // namespace

FrozenWeight::FrozenWeight() {
  const std::lock_guard guard(table().lock);
  number_ = ++table().last;
}

FrozenWeight::~FrozenWeight() {
  const std::lock_guard guard(table().lock);
  table().by_number.erase(number_);
}

void FrozenWeight::put(const at::Tensor& weight, std::optional<at::Tensor> bias, const Window& window,
                       c10::IntArrayRef images) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_reorder_convolution_weight", "");
  torch::jit::Stack stack{weight.contiguous(c10::MemoryFormat::ChannelsLast),
                          window.padding,
                          window.stride,
                          window.dilation,
                          window.groups,
                          images};
  op.callBoxed(stack);
  auto frozen = std::make_shared<const Frozen>(Frozen{stack.front().toTensor(), std::move(bias)});
  const std::lock_guard guard(table().lock);
  table().by_number[number_] = std::move(frozen);
}

std::shared_ptr<const Frozen> find_frozen(int64_t number) {
  const std::lock_guard guard(table().lock);
  const auto found = table().by_number.find(number);
  TORCH_CHECK(found != table().by_number.end(), "a program asks for the frozen weight ", number, ", which is gone");
  return found->second;
}

}  // namespace tpjrt::kernels
