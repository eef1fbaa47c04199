// Detects the machine's capabilities by asking PyTorch.
#include "ops/claims/machine.h"

#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/cpu/Utils.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <initializer_list>
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

// Returns whether ONEDNN_MAX_CPU_ISA lets oneDNN use all instruction sets, or one of `sets`. oneDNN itself can't be
// asked about all of them.
bool lets(std::initializer_list<std::string_view> sets) {
  const char* given = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (given == nullptr) given = std::getenv("DNNL_MAX_CPU_ISA");
  std::string name(given == nullptr ? "ALL" : given);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name == "ALL" || name == "DEFAULT" ||
         std::any_of(sets.begin(), sets.end(), [&](auto set) { return name.find(set) != std::string::npos; });
}

bool has_bf16_dots() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return true;  // where oneDNN multiplies bfloat16 at all
#endif
}

}  // namespace

const Machine& Machine::here() {
  static const Machine machine = [] {
    const char* given = std::getenv("TORCH_PJRT_KERNELS");
    const bool bf16 = answer("mkldnn::_is_mkldnn_bf16_supported");
    return Machine{.bf16 = bf16,
                   .fp16 = answer("mkldnn::_is_mkldnn_fp16_supported"),
                   .bf16_dots = bf16 && lets({"BF16", "FP16", "AMX"}) && has_bf16_dots(),
                   .avx2 = at::get_cpu_capability().starts_with("AVX"),
                   .vnni = bf16 && lets({"VNNI", "BF16", "FP16", "AMX"}) && at::cpu::is_avx512_vnni_supported(),
                   .takes_all = given != nullptr && std::string_view(given) == "all"};
  }();
  return machine;
}

}  // namespace tpjrt::ops
