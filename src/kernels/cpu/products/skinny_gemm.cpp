// Skinny GEMM in vectors of eight or sixteen floats, with AVX2 or AVX-512.
#include "kernels/cpu/products/skinny_gemm.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tpjrt::kernels {

#if defined(__x86_64__)

namespace {

// floats() returns an element over this.
template <typename Element>
constexpr float kScale = std::is_same_v<Element, at::Float8_e4m3fn> ? 256 : 1;

constexpr int64_t kGroup = 64;    // columns that are not divided among threads
constexpr int64_t kBlock = 4096;  // columns whose sums stay in the L1 cache

namespace avx512 {

#define TPJRT_TARGET __attribute__((target("avx512f,avx512bw,avx512vl")))

using Vector = __m512;
constexpr int64_t kLanes = 16, kMost = 8, kMany = 8;

TPJRT_TARGET inline __mmask16 first(int64_t count) {
  return count >= kLanes ? __mmask16(0xFFFF) : static_cast<__mmask16>((1U << count) - 1);
}

TPJRT_TARGET inline Vector zero() { return _mm512_setzero_ps(); }
TPJRT_TARGET inline Vector all(float x) { return _mm512_set1_ps(x); }
TPJRT_TARGET inline Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
TPJRT_TARGET inline Vector multiplied(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
TPJRT_TARGET inline Vector load(const float* x) { return _mm512_loadu_ps(x); }
TPJRT_TARGET inline Vector load(const float* x, int64_t count) { return _mm512_maskz_loadu_ps(first(count), x); }
TPJRT_TARGET inline void store(float* x, Vector v) { _mm512_storeu_ps(x, v); }
TPJRT_TARGET inline void store(float* x, Vector v, int64_t count) { _mm512_mask_storeu_ps(x, first(count), v); }

// Uses masked intrinsics throughout: GCC 12 takes the others' results for uninitialized.
TPJRT_TARGET inline Vector floats(const at::BFloat16* x, int64_t count) {
  const __mmask16 mask = first(count);
  const __m512i wide = _mm512_maskz_cvtepu16_epi32(mask, _mm256_maskz_loadu_epi16(mask, x));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(mask, wide, 16));
}
TPJRT_TARGET inline Vector floats(const at::Half* x, int64_t count) {
  const __mmask16 mask = first(count);
  return _mm512_maskz_cvtph_ps(mask, _mm256_maskz_loadu_epi16(mask, x));
}
TPJRT_TARGET inline Vector floats(const int8_t* x, int64_t count) {
  const __mmask16 mask = first(count);
  return _mm512_maskz_cvtepi32_ps(mask, _mm512_maskz_cvtepi8_epi32(mask, _mm_maskz_loadu_epi8(mask, x)));
}
// Places the bits in a half, whose exponent is 8 smaller (kScale) and whose NaN has other bits.
TPJRT_TARGET inline Vector floats(const at::Float8_e4m3fn* x, int64_t count) {
  constexpr __mmask16 kAll = 0xFFFF;
  const __m128i bits = _mm_maskz_loadu_epi8(first(count), x);
  const __mmask16 is_nan = _mm_cmpeq_epi8_mask(_mm_or_si128(bits, _mm_set1_epi8(-128)), _mm_set1_epi8(-1));
  const __m256i wide = _mm256_maskz_slli_epi16(kAll, _mm256_maskz_cvtepi8_epi16(kAll, bits), 7);
  const __m256i half = _mm256_and_si256(wide, _mm256_set1_epi16(static_cast<int16_t>(0xBF80)));
  return _mm512_maskz_cvtph_ps(kAll, _mm256_mask_mov_epi16(half, is_nan, _mm256_set1_epi16(0x7E00)));
}
template <typename Element>
TPJRT_TARGET inline Vector floats(const Element* x) {
  return floats(x, kLanes);
}

TPJRT_TARGET inline float sum_of_lanes(Vector x) {  // adds by halves
  constexpr __mmask16 kAll = 0xFFFF;
  x = _mm512_add_ps(x, _mm512_maskz_shuffle_f32x4(kAll, x, x, 0x4E));
  x = _mm512_add_ps(x, _mm512_maskz_shuffle_f32x4(kAll, x, x, 0xB1));
  x = _mm512_add_ps(x, _mm512_maskz_shuffle_ps(kAll, x, x, 0x4E));
  x = _mm512_add_ps(x, _mm512_maskz_shuffle_ps(kAll, x, x, 0xB1));
  return x[0];
}

#include "kernels/cpu/products/skinny_gemm_loops.h"

#undef TPJRT_TARGET

}  // namespace avx512

namespace avx2 {

#define TPJRT_TARGET __attribute__((target("avx2,fma,f16c")))

using Vector = __m256;
constexpr int64_t kLanes = 8, kMost = 4, kMany = 4;

template <typename Element>
TPJRT_TARGET inline __m128i some(const Element* x, int64_t count) {
  alignas(16) Element bits[16 / sizeof(Element)] = {};
  std::memcpy(bits, x, static_cast<size_t>(count) * sizeof(Element));
  return _mm_load_si128(reinterpret_cast<const __m128i*>(bits));
}

TPJRT_TARGET inline Vector zero() { return _mm256_setzero_ps(); }
TPJRT_TARGET inline Vector all(float x) { return _mm256_set1_ps(x); }
TPJRT_TARGET inline Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
TPJRT_TARGET inline Vector multiplied(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
TPJRT_TARGET inline Vector load(const float* x) { return _mm256_loadu_ps(x); }
TPJRT_TARGET inline Vector load(const float* x, int64_t count) {
  alignas(32) float values[kLanes] = {};
  std::memcpy(values, x, static_cast<size_t>(count) * sizeof(float));
  return _mm256_load_ps(values);
}
TPJRT_TARGET inline void store(float* x, Vector v) { _mm256_storeu_ps(x, v); }
TPJRT_TARGET inline void store(float* x, Vector v, int64_t count) {
  alignas(32) float values[kLanes];
  _mm256_store_ps(values, v);
  std::memcpy(x, values, static_cast<size_t>(count) * sizeof(float));
}

TPJRT_TARGET inline Vector of_bfloat16(__m128i x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
TPJRT_TARGET inline Vector floats(const at::BFloat16* x, int64_t count) { return of_bfloat16(some(x, count)); }
TPJRT_TARGET inline Vector floats(const at::BFloat16* x) {
  return of_bfloat16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
}
TPJRT_TARGET inline Vector floats(const at::Half* x, int64_t count) { return _mm256_cvtph_ps(some(x, count)); }
TPJRT_TARGET inline Vector floats(const at::Half* x) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
}

TPJRT_TARGET inline Vector of_int8(__m128i x) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)); }
TPJRT_TARGET inline Vector floats(const int8_t* x, int64_t count) { return of_int8(some(x, count)); }
TPJRT_TARGET inline Vector floats(const int8_t* x) {
  return of_int8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x)));
}

// Places the bits in a half, whose exponent is 8 smaller (kScale) and whose NaN has other bits.
TPJRT_TARGET inline Vector of_float8(__m128i x) {
  const __m128i wide = _mm_slli_epi16(_mm_cvtepi8_epi16(x), 7), all = _mm_set1_epi16(0x3F80);
  const __m128i half = _mm_and_si128(wide, _mm_set1_epi16(static_cast<int16_t>(0xBF80)));
  const __m128i nan = _mm_and_si128(_mm_cmpeq_epi16(_mm_and_si128(half, all), all), _mm_set1_epi16(0x7E00));
  return _mm256_cvtph_ps(_mm_or_si128(half, nan));
}
TPJRT_TARGET inline Vector floats(const at::Float8_e4m3fn* x, int64_t count) { return of_float8(some(x, count)); }
TPJRT_TARGET inline Vector floats(const at::Float8_e4m3fn* x) {
  return of_float8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x)));
}

TPJRT_TARGET inline float sum_of_lanes(Vector x) {  // adds by halves
  x = _mm256_add_ps(x, _mm256_permute2f128_ps(x, x, 1));
  x = _mm256_add_ps(x, _mm256_permute_ps(x, 0x4E));
  x = _mm256_add_ps(x, _mm256_permute_ps(x, 0xB1));
  return x[0];
}

#include "kernels/cpu/products/skinny_gemm_loops.h"

#undef TPJRT_TARGET

}  // namespace avx2

bool is_dense(const at::Tensor& x, int64_t inner, int64_t outer) {
  const int64_t rows = x.size(outer), columns = x.size(inner);
  return (x.stride(inner) == 1 || columns == 1) && (x.stride(outer) == columns || rows == 1) &&
         (x.dim() == 2 || x.size(0) == 1 || x.stride(0) == rows * columns);
}

// The instructions that PyTorch may use here (ATEN_CPU_CAPABILITY), detected once.
struct Instructions {
  bool avx512 =
      at::get_cpu_capability() == "AVX512" && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  bool avx2 = at::get_cpu_capability().starts_with("AVX") && __builtin_cpu_supports("avx2") &&
              __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  int64_t most() const { return avx512 ? avx512::kMost : avx2::kMost; }  // rows in one pass
  static const Instructions& here() {
    static const Instructions instructions;
    return instructions;
  }
};

// `x` is float32: (batch, rows and zeros up to a multiple of Instructions::most, depth).
template <typename Element, typename Result>
void multiply_all(const at::Tensor& x, const at::Tensor& b, bool transposed, const std::optional<Addend>& added,
                  const at::Tensor& result) {
  const int64_t depth = b.size(-2), columns = b.size(-1), rows = result.size(-2), padded = x.size(1);
  std::optional<at::Tensor> other;
  if (added && added->beta != 0) other = added->x.expand(result.sizes()).contiguous();
  const float alpha = (added ? static_cast<float>(added->alpha) : 1) * kScale<Element>;
  const float beta = added ? static_cast<float>(added->beta) : 0;
  const auto* w = b.const_data_ptr<Element>();
  const auto* factors = x.const_data_ptr<float>();
  const auto* addends = other ? other->const_data_ptr<Result>() : nullptr;
  auto* results = result.mutable_data_ptr<Result>();
  const int64_t together = Instructions::here().most(), groups = (columns + kGroup - 1) / kGroup;
  const auto multiply = Instructions::here().avx512 ? avx512::multiply<Element> : avx2::multiply<Element>;
  // The part of the matrix that is read once per group of rows stays in the L2 cache.
  const int64_t most = transposed && rows > together ? kGroup : kBlock;
  constexpr int64_t kWork = 1 << 18;  // multiplications that are worth a thread
  const int64_t grain = std::max<int64_t>(1, kWork / std::max<int64_t>(1, rows * depth * kGroup));
  at::parallel_for(0, x.size(0) * groups, grain, [&](int64_t from, int64_t to) {
    std::vector<float> sums(static_cast<size_t>(together * std::min(columns, most)));
    for (int64_t next = from; from < to; from = next) {
      const int64_t one = from / groups, begin = from % groups * kGroup;
      next = std::min({to, from + most / kGroup, (one + 1) * groups});
      const int64_t width = std::min(columns - begin, (next - from) * kGroup);
      const Element* matrix = w + one * depth * columns + begin * (transposed ? depth : 1);
      for (int64_t row = 0; row < rows; row += together) {
        const int64_t count = std::min(together, rows - row);
        multiply(matrix, transposed, columns, factors + (one * padded + row) * depth, count, depth, width, sums.data());
        for (int64_t r = 0; r < count; ++r) {
          const int64_t place = (one * rows + row + r) * columns + begin;
          const float* sum = sums.data() + r * width;
          for (int64_t i = 0; i < width; ++i) {
            const float scaled = alpha * sum[i];
            results[place + i] = addends == nullptr ? scaled : scaled + beta * static_cast<float>(addends[place + i]);
          }
        }
      }
    }
  });
}

at::Tensor padded(const at::Tensor& a) {
  const int64_t rows = a.size(-2), batch = a.dim() == 3 ? a.size(0) : 1, most = Instructions::here().most();
  if (rows == 1) return a.to(at::kFloat).contiguous().view({batch, 1, a.size(-1)});
  const at::Tensor x = at::zeros({batch, (rows + most - 1) / most * most, a.size(-1)}, a.options().dtype(at::kFloat));
  x.narrow(1, 0, rows).copy_(a.dim() == 3 ? a : a.unsqueeze(0));
  return x;
}

}  // namespace

bool multiply_skinny(const at::Tensor& a, const at::Tensor& b, const std::optional<Addend>& added,
                     const at::Tensor& result) {
  const at::ScalarType dtype = a.scalar_type();
  const bool is_half = dtype == at::kBFloat16 || dtype == at::kHalf;
  const bool of_int8 = b.scalar_type() == at::kChar, of_float8 = b.scalar_type() == at::kFloat8_e4m3fn;
  if (!Instructions::here().avx2 || result.scalar_type() != dtype) return false;
  if (of_int8 || of_float8 ? !is_half && dtype != at::kFloat : !is_half || b.scalar_type() != dtype) return false;
  const bool straight = is_dense(b, -1, -2);
  if (!straight && !is_dense(b, -2, -1)) return false;
  const at::Tensor x = padded(a);
  const auto multiply = [&]<typename Result, typename Own>(Result, Own) {
    of_int8     ? multiply_all<int8_t, Result>(x, b, !straight, added, result)
    : of_float8 ? multiply_all<at::Float8_e4m3fn, Result>(x, b, !straight, added, result)
                : multiply_all<Own, Result>(x, b, !straight, added, result);
  };
  switch (dtype) {
    case at::kHalf: multiply(at::Half(), at::Half()); break;
    case at::kBFloat16: multiply(at::BFloat16(), at::BFloat16()); break;
    default: multiply(0.0F, int8_t());
  }
  return true;
}

#else

bool multiply_skinny(const at::Tensor& /*a*/, const at::Tensor& /*b*/, const std::optional<Addend>& /*added*/,
                     const at::Tensor& /*result*/) {
  return false;
}

#endif

}  // namespace tpjrt::kernels
