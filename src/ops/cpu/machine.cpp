// Asking PyTorch.
#include "ops/cpu/machine.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdlib>
#include <string_view>

namespace tpjrt::ops {
namespace {

bool answer(const char* op) {
  const auto found = c10::Dispatcher::singleton().findSchema({op, ""});
  if (!found) return false;
  torch::jit::Stack stack;
  found->callBoxed(stack);
  return stack.size() == 1 && stack[0].isBool() && stack[0].toBool();
}

}  // namespace

const Machine& Machine::here() {
  static const Machine machine = [] {
    const char* given = std::getenv("TORCH_PJRT_KERNELS");
    return Machine{answer("mkldnn::_is_mkldnn_bf16_supported"), answer("mkldnn::_is_mkldnn_fp16_supported"),
                   given != nullptr && std::string_view(given) == "all"};
  }();
  return machine;
}

}  // namespace tpjrt::ops
