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
    // op, dtypes, needs, lacks, layouts, least work, who, limits
    {Heavy::kProduct, kBf16, kAvx2 | kOneDnn, kNone, kAny, two(16), Who::kSkinny, kOneRow},          // oneDNN: 3
    {Heavy::kProduct, kBf16, kAvx2, kOneDnn, kTransposed, two(16), Who::kSkinny, kManyRows},         // 7 to 30
    {Heavy::kProduct, kBf16, kAvx2, kOneDnn, kSecondStraight, two(16), Who::kSkinny, kFewRows},      // a conversion
    {Heavy::kProduct, kF16, kAvx2, kFp16, kTransposed, two(16), Who::kSkinny, kManyRows},            // 2 to 20
    {Heavy::kProduct, kF16, kAvx2, kFp16, kSecondStraight, two(16), Who::kSkinny, kFewRows},         // a conversion
    {Heavy::kProduct, kBf16, kOneDnn, kNone, kEitherTransposed, two(19), Who::kAten},                // 4 to 60
    {Heavy::kProduct, kBf16, kOneDnn, kNone, kStraight, two(21) + 1, Who::kAten},                    // 1.1
    {Heavy::kProduct, kF16, kFp16, kNone, kEitherTransposed, two(19), Who::kAten},                   // as bfloat16
    {Heavy::kProduct, kF16, kFp16, kNone, kStraight, two(21) + 1, Who::kAten},                       // as bfloat16
    {Heavy::kProduct, kF16, kOneDnn, kFp16, kAny, kNever, Who::kAten},                               // row by row
    {Heavy::kProduct, kF32, kOneDnn, kNone, kEitherTransposed, two(23), Who::kOneDnn, kLargeEach},   // 1.7 to 2.3
    {Heavy::kProduct, kF32, kOneDnn, kNone, kEitherTransposed, two(23), Who::kAten, kSmallEachOf8},  // one by one
    {Heavy::kProduct, kF32, kOneDnn, kNone, kAny, kNever, Who::kOneDnn},                             // 1
    {Heavy::kProduct, kF32, kAvx2, kOneDnn, kEitherTransposed, two(19), Who::kAten, kSmallEach},     // one by one
    {Heavy::kProduct, kF32, kAvx2, kOneDnn, kAny, two(24), Who::kAten, kLargeEach},                  // 1.1 to 2
    {Heavy::kProduct, kS8, kVnni, kNone, kAny, two(19), Who::kAten},                                 // 48
    {Heavy::kProductOfBytes, kBf16 | kF16, kAvx2, kOneDnn, kTransposed, two(16), Who::kSkinny, kManyRows},  // 20
    {Heavy::kProductOfBytes, kBf16 | kF16 | kF32, kAvx2, kNone, kAny, two(16), Who::kSkinny, kFewRows},     // 20
    {Heavy::kConvolution, kBf16, kDots, kNone, kAny ^ kStridedToFew, two(19), Who::kAten},                  // 2 to 8
    {Heavy::kConvolution, kBf16, kOneDnn, kDots, kAny ^ kStridedToFew, kNever, Who::kAten},                 // 0.5
    {Heavy::kConvolution, kF32, kAvx2, kNone, kAny, two(19), Who::kAten},                            // 1.3 to 1.6
    {Heavy::kConvolutionOfWeight, kBf16, kDots, kNone, kStraight, two(19), Who::kAten},              // 2 to 8
    {Heavy::kConvolutionOfWeight, kBf16, kDots, kNone, kStraight | kGrouped, kNever, Who::kAten},    // no fast way
    {Heavy::kConvolutionOfWeight, kBf16, kOneDnn, kDots, kStraight | kGrouped, kNever, Who::kAten},  // 0.5
    {Heavy::kConvolutionOfWeight, kF32, kAvx2, kNone, kAny ^ kGrouped, two(19), Who::kAten},         // 1.3 to 1.6
    {Heavy::kConvolutionOfWeight, kF32, kAvx2, kNone, kAny, kNever, Who::kAten},                     // no fast way
    {Heavy::kFrozenConvolution, kF32, kNone, kNone, kAny, two(19), Who::kAten},                      // 1.5 to 2
    {Heavy::kFrozenConvolution, kBf16, kDots, kNone, kAny ^ kStridedToFew, two(19), Who::kAten},     // 2 to 8
    {Heavy::kFileConvolution, kF32, kNone, kNone, kAny, two(19), Who::kOneDnn},                      // 1.5 to 1.7
    {Heavy::kFileConvolution, kBf16, kNone, kNone, kAny ^ kStridedToFew, two(19), Who::kOneDnn},     // 2 to 8
    {Heavy::kFileProduct, kF32, kNone, kNone, kAny, two(19), Who::kOneDnn, {.least_rows = 64}},      // 1.4 to 4.5
    {Heavy::kFileProduct, kBf16, kNone, kNone, kAny, two(19), Who::kOneDnn},                         // 1.1 to 9
    {Heavy::kAttention, kAll, kNone, kNone, kAny, two(24), Who::kAten},                              // no scores
    {Heavy::kAttentionBackward, kAll, kNone, kNone, kAny, two(27), Who::kAten},                      // no scores
    {Heavy::kRecurrentLayer, kAll, kNone, kNone, kAny, two(15), Who::kAten},                         // 10
    {Heavy::kBatchNorm, kBf16, kDots, kNone, kAny, two(14), Who::kAten},                             // 10 in NHWC
    {Heavy::kBatchNorm, kBf16, kNone, kDots, kAny, kNever, Who::kAten},                              // no NHWC
    {Heavy::kBatchNorm, kF32, kAvx2, kNone, kImagesLast, two(14), Who::kAten},                       // 10
    {Heavy::kRows, kF32 | kF64 | kBf16, kNone, kNone, kAny, two(15), Who::kAten, kWideRows},         // 2 to 9
    {Heavy::kReducedRows, kF32 | kF64, kNone, kNone, kAny, two(15), Who::kAten, kWideRows},          // 2 to 9
    {Heavy::kLayerNorm, kF32 | kF64 | kBf16, kNone, kNone, kAny, two(20), Who::kAten, kWideRows},    // fewer passes
    {Heavy::kWrite, kAll, kNone, kNone, kAny, two(15), Who::kAten, {.least_columns = 8}},            // a whole copy
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
