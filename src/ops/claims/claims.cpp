// The table of claims. Detects the machine's capabilities by asking PyTorch.
#include "ops/claims/claims.h"

#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/cpu/Utils.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <initializer_list>
#include <limits>
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
    const char* given = std::getenv("TORCH_PJRT_LIBRARY_KERNELS");
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

namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kNever = kMost;  // the library can, and XLA is as fast
constexpr uint8_t kAny = 0xFF, kEitherTransposed = kFirstTransposed | kTransposed,
                  kSecondStraight = kStraight | kFirstTransposed;
constexpr int64_t two(int exponent) { return int64_t{1} << exponent; }

constexpr uint32_t set(std::initializer_list<ElementType> elements) {
  uint32_t bits = 0;
  for (const ElementType element : elements) bits |= uint32_t{1} << static_cast<int>(element);
  return bits;
}
constexpr uint32_t kF32 = set({ElementType::kF32}), kF64 = set({ElementType::kF64}), kF16 = set({ElementType::kF16});
constexpr uint32_t kBf16 = set({ElementType::kBF16}), kS8 = set({ElementType::kS8}), kAll = ~uint32_t{0};

// Capabilities of the machine (Machine). kOneDnn: oneDNN multiplies bfloat16, from AVX-512 on.
enum Sets : uint8_t { kNone = 0, kAvx2 = 1, kOneDnn = 2, kFp16 = 4, kDots = 8, kVnni = 16 };

struct Limits {
  int64_t least_rows = 1, most_rows = kMost, least_columns = 1;
  int64_t least_each = 0, most_each = kMost;  // work of each product of a batch
};

struct Claim {
  Heavy op;
  uint32_t elements;
  uint8_t needs, lacks;  // capabilities
  uint8_t layouts;
  int64_t least;  // work
  Who who;
  Limits limits = {};
};

constexpr Limits kOneRow{.most_rows = 1}, kFewRows{.most_rows = 16}, kManyRows{.most_rows = 1024};
constexpr Limits kSmallEach{.most_each = two(15)}, kWideRows{.least_columns = 16};
constexpr Limits kLargeEach{.least_rows = 8, .least_columns = 8, .least_each = two(15) + 1};
constexpr Limits kSmallEachOf8{.least_rows = 8, .least_columns = 8, .most_each = two(15)};

// The first row that fits claims the call; XLA computes what no row claims. The last column is XLA's time over that of
// who claims, or the reason of the row.
constexpr auto kClaims = std::to_array<Claim>({
#include "ops/claims/claims.inc"
});

uint8_t capabilities() {
  const Machine& machine = Machine::here();
  return static_cast<uint8_t>((machine.avx2 ? kAvx2 : 0) | (machine.bf16 ? kOneDnn : 0) | (machine.fp16 ? kFp16 : 0) |
                              (machine.bf16_dots ? kDots : 0) | (machine.vnni ? kVnni : 0));
}

bool fits(const Claim& claim, const Size& s) {
  const Limits& limits = claim.limits;
  const int64_t each = s.work / s.batch;
  return s.work >= claim.least && s.rows >= limits.least_rows && s.rows <= limits.most_rows &&
         s.columns >= limits.least_columns && each >= limits.least_each && each <= limits.most_each;
}

}  // namespace

Who who_computes(Heavy op, ElementType element, const Size& size, uint8_t layout) {
  if (size.work == 0) return Who::kXla;
  static const uint8_t has = capabilities();
  const bool takes_all = Machine::here().takes_all;
  for (const Claim& claim : kClaims) {
    const bool can = claim.op == op && (claim.elements & set({element})) && (claim.needs & ~has) == 0 &&
                     (claim.lacks & has) == 0 && (layout & ~claim.layouts) == 0;
    if (can && (fits(claim, size) || (takes_all && claim.who != Who::kSkinny))) return claim.who;
  }
  return Who::kXla;
}

int64_t least_work(Heavy op) {
  return std::ranges::find_if(kClaims, [op](const Claim& claim) { return claim.op == op; })->least;
}

std::optional<Heavy> heavy_of(std::string_view name) {
  if (name == "convolution") return Heavy::kConvolution;
  if (name == "frozen_convolution") return Heavy::kFrozenConvolution;
  if (name == "file_convolution") return Heavy::kFileConvolution;
  if (name == "file_product") return Heavy::kFileProduct;
  return std::nullopt;
}

}  // namespace tpjrt::ops
