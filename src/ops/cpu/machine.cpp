// Asking PyTorch.
#include "ops/cpu/machine.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/cpu/Utils.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
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

// Of oneDNN's instruction sets, which has no question for this one.
bool are_tiles_let() {
  const char* given = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (given == nullptr) given = std::getenv("DNNL_MAX_CPU_ISA");
  std::string name(given == nullptr ? "ALL" : given);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name == "ALL" || name == "DEFAULT" || name.find("AMX") != std::string::npos;
}

}  // namespace

const Machine& Machine::here() {
  static const Machine machine = [] {
    const char* given = std::getenv("TORCH_PJRT_KERNELS");
    const bool bf16 = answer("mkldnn::_is_mkldnn_bf16_supported");
    // The kernel is asked for the tiles, as oneDNN asks it: it may refuse.
    return Machine{.bf16 = bf16,
                   .fp16 = answer("mkldnn::_is_mkldnn_fp16_supported"),
                   .amx = bf16 && are_tiles_let() && at::cpu::init_amx(),
                   .takes_all = given != nullptr && std::string_view(given) == "all"};
  }();
  return machine;
}

}  // namespace tpjrt::ops
