// Sums of sixteen at once, with AVX-512.
#include "kernels/cpu/row_product.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tpjrt::kernels {

#if defined(__x86_64__)

namespace {

#define TPJRT_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))

using Bits = uint16_t;  // of a bfloat16
constexpr int64_t kLanes = 16, kParts = 8, kRows = 8;
constexpr int64_t kGroup = 64;    // columns that are not divided among threads
constexpr int64_t kBlock = 4096;  // columns whose sums stay in the first cache

TPJRT_AVX512 inline __mmask16 first(int64_t count) {
  return count >= kLanes ? __mmask16(0xFFFF) : static_cast<__mmask16>((1U << count) - 1);
}

TPJRT_AVX512 inline __m512 floats(const Bits* x, __mmask16 mask) {
  const __m512i wide = _mm512_maskz_cvtepu16_epi32(mask, _mm256_maskz_loadu_epi16(mask, x));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(mask, wide, 16));
}

// The sum of products. Memory is read in order, which several rows at once are not.
TPJRT_AVX512 float dot(const Bits* w, const float* x, int64_t depth) {
  __m512 parts[kParts];
#pragma GCC unroll 8
  for (__m512& part : parts) part = _mm512_setzero_ps();
  int64_t i = 0;
  for (; i + kParts * kLanes <= depth; i += kParts * kLanes) {
#pragma GCC unroll 8
    for (int64_t p = 0; p < kParts; ++p) {
      const int64_t at = i + p * kLanes;
      parts[p] = _mm512_fmadd_ps(floats(w + at, first(kLanes)), _mm512_loadu_ps(x + at), parts[p]);
    }
  }
  for (; i < depth; i += kLanes) {
    const __mmask16 mask = first(depth - i);
    parts[0] = _mm512_fmadd_ps(floats(w + i, mask), _mm512_maskz_loadu_ps(mask, x + i), parts[0]);
  }
#pragma GCC unroll 8
  for (int64_t half = kParts / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int64_t p = 0; p < half; ++p) parts[p] = _mm512_add_ps(parts[p], parts[p + half]);
  }
  alignas(64) float lanes[kLanes];
  _mm512_store_ps(lanes, parts[0]);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// Adds so many rows, `stride` apart, each times its x. The processor foresees what it reads in none of so many rows: those
// after them are fetched meanwhile, to the second cache (24 GB/s of a core instead of 15).
template <int64_t rows>
TPJRT_AVX512 void add_rows(const Bits* w, int64_t stride, const float* x, int64_t columns, float* sums) {
  __m512 factors[rows];
  for (int64_t r = 0; r < rows; ++r) factors[r] = _mm512_set1_ps(x[r]);
  for (int64_t i = 0; i < columns; i += 2 * kLanes) {  // a line of the cache
    const __mmask16 mask = first(columns - i), other_mask = first(std::max<int64_t>(0, columns - i - kLanes));
    __m512 sum = _mm512_maskz_loadu_ps(mask, sums + i), other = _mm512_maskz_loadu_ps(other_mask, sums + i + kLanes);
#pragma GCC unroll 8
    for (int64_t r = 0; r < rows; ++r) {
      const Bits* line = w + r * stride + i;
      _mm_prefetch(reinterpret_cast<const char*>(line + rows * stride), _MM_HINT_T1);
      sum = _mm512_fmadd_ps(floats(line, mask), factors[r], sum);
      other = _mm512_fmadd_ps(floats(line + kLanes, other_mask), factors[r], other);
    }
    _mm512_mask_storeu_ps(sums + i, mask, sum);
    _mm512_mask_storeu_ps(sums + i + kLanes, other_mask, other);
  }
}

// The columns [begin, end) of one product.
void multiply(const Bits* w, bool transposed, const float* x, int64_t depth, int64_t columns, int64_t begin,
              int64_t end, float* sums) {
  if (transposed) {
    for (int64_t column = begin; column < end; ++column) sums[column - begin] = dot(w + column * depth, x, depth);
    return;
  }
  std::fill(sums, sums + (end - begin), 0.0F);
  int64_t row = 0;
  for (; row + kRows <= depth; row += kRows) {
    add_rows<kRows>(w + row * columns + begin, columns, x + row, end - begin, sums);
  }
  for (; row < depth; ++row) add_rows<1>(w + row * columns + begin, columns, x + row, end - begin, sums);
}

bool is_dense(const at::Tensor& x, int64_t inner, int64_t outer) {
  const int64_t rows = x.size(outer), columns = x.size(inner);
  return (x.stride(inner) == 1 || columns == 1) && (x.stride(outer) == columns || rows == 1) &&
         (x.dim() == 2 || x.size(0) == 1 || x.stride(0) == rows * columns);
}

}  // namespace

bool multiply_row(const at::Tensor& a, const at::Tensor& b, const std::optional<Addend>& added,
                  const at::Tensor& result) {
  static const bool has_avx512 = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (!has_avx512 || a.scalar_type() != at::kBFloat16 || b.scalar_type() != at::kBFloat16 ||
      result.scalar_type() != at::kBFloat16 || a.size(-2) != 1 || !is_dense(a, -1, -2)) {
    return false;
  }
  const bool straight = is_dense(b, -1, -2);
  if (!straight && !is_dense(b, -2, -1)) return false;
  const int64_t depth = b.size(-2), columns = b.size(-1), batch = result.numel() / std::max<int64_t>(columns, 1);
  const at::Tensor x = a.to(at::kFloat).contiguous();
  std::optional<at::Tensor> other;
  if (added && added->beta != 0) other = added->x.expand(result.sizes()).contiguous();
  const float alpha = added ? static_cast<float>(added->alpha) : 1, beta = added ? static_cast<float>(added->beta) : 0;
  const auto* w = reinterpret_cast<const Bits*>(b.const_data_ptr());
  const auto* factors = x.const_data_ptr<float>();
  const int64_t groups = (columns + kGroup - 1) / kGroup;
  constexpr int64_t kWork = 1 << 18;  // multiplications that are worth a thread
  const int64_t grain = std::max<int64_t>(1, kWork / std::max<int64_t>(1, depth * kGroup));
  at::parallel_for(0, batch * groups, grain, [&](int64_t from, int64_t to) {
    std::vector<float> sums(static_cast<size_t>(std::min(columns, kBlock)));
    for (int64_t next = from, end = 0; from < to; from = next) {
      const int64_t one = from / groups, begin = from % groups * kGroup;
      next = std::min({to, from + kBlock / kGroup, (one + 1) * groups});
      end = std::min(columns, begin + (next - from) * kGroup);
      multiply(w + one * depth * columns, !straight, factors + one * depth, depth, columns, begin, end, sums.data());
      auto* place = result.mutable_data_ptr<at::BFloat16>() + one * columns;
      const auto* addends = other ? other->const_data_ptr<at::BFloat16>() + one * columns : nullptr;
      for (int64_t column = begin; column < end; ++column) {
        const float sum = alpha * sums[static_cast<size_t>(column - begin)];
        place[column] = addends == nullptr ? sum : sum + beta * static_cast<float>(addends[column]);
      }
    }
  });
  return true;
}

#else

bool multiply_row(const at::Tensor& /*a*/, const at::Tensor& /*b*/, const std::optional<Addend>& /*added*/,
                  const at::Tensor& /*result*/) {
  return false;
}

#endif

}  // namespace tpjrt::kernels
