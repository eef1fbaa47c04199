// Sums of sixteen at once, with AVX-512.
#include "kernels/cpu/few_rows.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tpjrt::kernels {

#if defined(__x86_64__)

namespace {

#define TPJRT_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))

constexpr int64_t kLanes = 16;
constexpr int64_t kMost = 8;      // rows of a for which the matrix is read once
constexpr int64_t kGroup = 64;    // columns that are not divided among threads
constexpr int64_t kBlock = 4096;  // columns whose sums stay in the first cache

TPJRT_AVX512 inline __mmask16 first(int64_t count) {
  if (count >= kLanes) return 0xFFFF;
  return count <= 0 ? 0 : static_cast<__mmask16>((1U << count) - 1);
}

TPJRT_AVX512 inline __m512 floats(const at::BFloat16* x, __mmask16 mask) {
  const __m512i wide = _mm512_maskz_cvtepu16_epi32(mask, _mm256_maskz_loadu_epi16(mask, x));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(mask, wide, 16));
}

TPJRT_AVX512 inline __m512 floats(const at::Half* x, __mmask16 mask) {
  return _mm512_maskz_cvtph_ps(mask, _mm256_maskz_loadu_epi16(mask, x));
}

TPJRT_AVX512 inline float sum_of_lanes(__m512 x) {  // by halves
  constexpr __mmask16 kAll = 0xFFFF;                // what takes no mask is taken for uninitialized by GCC 12
  x = _mm512_add_ps(x, _mm512_maskz_shuffle_f32x4(kAll, x, x, 0x4E));
  x = _mm512_add_ps(x, _mm512_maskz_shuffle_f32x4(kAll, x, x, 0xB1));
  x = _mm512_add_ps(x, _mm512_maskz_shuffle_ps(kAll, x, x, 0x4E));
  x = _mm512_add_ps(x, _mm512_maskz_shuffle_ps(kAll, x, x, 0xB1));
  return x[0];
}

// The products of so many columns, which lie one after the other, with so many rows of x, to sums[row * width + column]. Each is
// summed up in parts, so that the next addition need not wait for the last one.
template <int64_t rows, int64_t columns, int64_t parts, typename Element>
TPJRT_AVX512 void dot(const Element* w, const float* x, int64_t depth, float* sums, int64_t width) {
  __m512 sum[columns][rows][parts];
#pragma GCC unroll 2
  for (int64_t c = 0; c < columns; ++c) {
#pragma GCC unroll 8
    for (int64_t r = 0; r < rows; ++r) {
#pragma GCC unroll 8
      for (int64_t p = 0; p < parts; ++p) sum[c][r][p] = _mm512_setzero_ps();
    }
  }
  int64_t i = 0;
  for (; i + parts * kLanes <= depth; i += parts * kLanes) {
#pragma GCC unroll 8
    for (int64_t p = 0; p < parts; ++p) {
      __m512 weights[columns];
#pragma GCC unroll 2
      for (int64_t c = 0; c < columns; ++c) weights[c] = floats(w + c * depth + i + p * kLanes, first(kLanes));
#pragma GCC unroll 8
      for (int64_t r = 0; r < rows; ++r) {
        const __m512 factors = _mm512_loadu_ps(x + r * depth + i + p * kLanes);
#pragma GCC unroll 2
        for (int64_t c = 0; c < columns; ++c) sum[c][r][p] = _mm512_fmadd_ps(weights[c], factors, sum[c][r][p]);
      }
    }
  }
  for (; i < depth; i += kLanes) {
    const __mmask16 mask = first(depth - i);
#pragma GCC unroll 8
    for (int64_t r = 0; r < rows; ++r) {
      const __m512 factors = _mm512_maskz_loadu_ps(mask, x + r * depth + i);
#pragma GCC unroll 2
      for (int64_t c = 0; c < columns; ++c) {
        sum[c][r][0] = _mm512_fmadd_ps(floats(w + c * depth + i, mask), factors, sum[c][r][0]);
      }
    }
  }
#pragma GCC unroll 2
  for (int64_t c = 0; c < columns; ++c) {
#pragma GCC unroll 8
    for (int64_t r = 0; r < rows; ++r) {
#pragma GCC unroll 8
      for (int64_t half = parts / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
        for (int64_t p = 0; p < half; ++p) sum[c][r][p] = _mm512_add_ps(sum[c][r][p], sum[c][r][p + half]);
      }
      sums[r * width + c] = sum_of_lanes(sum[c][r][0]);
    }
  }
}

// A matrix that lies transposed: memory is read in order.
template <int64_t rows, int64_t columns, int64_t parts, typename Element>
TPJRT_AVX512 void dots(const Element* w, const float* x, int64_t depth, int64_t width, float* sums) {
  int64_t column = 0;
  for (; column + columns <= width; column += columns) {
    dot<rows, columns, parts>(w + column * depth, x, depth, sums + column, width);
  }
  for (; column < width; ++column) dot<rows, 1, parts>(w + column * depth, x, depth, sums + column, width);
}

// Adds so many rows of w, `stride` apart, each times its factor, to the sums of each row of x. The processor foresees what it reads
// in none of so many rows: those after them are fetched meanwhile, to the second cache (24 GB/s of a core instead of 15).
template <int64_t many, typename Element>
TPJRT_AVX512 void add_rows(const Element* w, int64_t stride, const float* x, int64_t rows, int64_t depth, int64_t width,
                           float* sums) {
  for (int64_t i = 0; i < width; i += 2 * kLanes) {  // a line of the cache
    const __mmask16 mask = first(width - i), other_mask = first(width - i - kLanes);
    __m512 line[many], other_line[many];
#pragma GCC unroll 8
    for (int64_t k = 0; k < many; ++k) {
      const Element* place = w + k * stride + i;
      _mm_prefetch(reinterpret_cast<const char*>(place + many * stride), _MM_HINT_T1);
      line[k] = floats(place, mask);
      other_line[k] = floats(place + kLanes, other_mask);
    }
    for (int64_t r = 0; r < rows; ++r) {
      float* place = sums + r * width + i;
      __m512 sum = _mm512_maskz_loadu_ps(mask, place), other = _mm512_maskz_loadu_ps(other_mask, place + kLanes);
#pragma GCC unroll 8
      for (int64_t k = 0; k < many; ++k) {
        const __m512 factor = _mm512_set1_ps(x[r * depth + k]);
        sum = _mm512_fmadd_ps(line[k], factor, sum);
        other = _mm512_fmadd_ps(other_line[k], factor, other);
      }
      _mm512_mask_storeu_ps(place, mask, sum);
      _mm512_mask_storeu_ps(place + kLanes, other_mask, other);
    }
  }
}

// The columns [begin, begin + width) of one product, for at most kMost rows of x, behind which zeros lie up to kMost.
template <typename Element>
void multiply(const Element* w, bool transposed, const float* x, int64_t rows, int64_t depth, int64_t columns,
              int64_t begin, int64_t width, float* sums) {
  if (transposed) {
    const Element* place = w + begin * depth;
    if (rows == 1) return dots<1, 1, 8>(place, x, depth, width, sums);
    if (rows == 2) return dots<2, 1, 4>(place, x, depth, width, sums);
    if (rows <= 4) return dots<4, 2, 2>(place, x, depth, width, sums);
    return dots<kMost, 2, 1>(place, x, depth, width, sums);
  }
  constexpr int64_t kMany = 8;
  std::fill(sums, sums + rows * width, 0.0F);
  int64_t k = 0;
  for (; k + kMany <= depth; k += kMany) {
    add_rows<kMany>(w + k * columns + begin, columns, x + k, rows, depth, width, sums);
  }
  for (; k < depth; ++k) add_rows<1>(w + k * columns + begin, columns, x + k, rows, depth, width, sums);
}

bool is_dense(const at::Tensor& x, int64_t inner, int64_t outer) {
  const int64_t rows = x.size(outer), columns = x.size(inner);
  return (x.stride(inner) == 1 || columns == 1) && (x.stride(outer) == columns || rows == 1) &&
         (x.dim() == 2 || x.size(0) == 1 || x.stride(0) == rows * columns);
}

// x: float32, (batch, rows rounded up to kMost, depth).
template <typename Element>
void multiply_all(const at::Tensor& x, const at::Tensor& b, bool transposed, const std::optional<Addend>& added,
                  const at::Tensor& result) {
  const int64_t depth = b.size(-2), columns = b.size(-1), rows = result.size(-2), padded = x.size(1);
  std::optional<at::Tensor> other;
  if (added && added->beta != 0) other = added->x.expand(result.sizes()).contiguous();
  const float alpha = added ? static_cast<float>(added->alpha) : 1, beta = added ? static_cast<float>(added->beta) : 0;
  const auto* w = b.const_data_ptr<Element>();
  const auto* factors = x.const_data_ptr<float>();
  const auto* addends = other ? other->const_data_ptr<Element>() : nullptr;
  auto* results = result.mutable_data_ptr<Element>();
  const int64_t groups = (columns + kGroup - 1) / kGroup;
  // What is read for several rows after each other stays in the second cache.
  const int64_t most = transposed && rows > kMost ? kGroup : kBlock;
  constexpr int64_t kWork = 1 << 18;  // multiplications that are worth a thread
  const int64_t grain = std::max<int64_t>(1, kWork / std::max<int64_t>(1, rows * depth * kGroup));
  at::parallel_for(0, x.size(0) * groups, grain, [&](int64_t from, int64_t to) {
    std::vector<float> sums(static_cast<size_t>(kMost * std::min(columns, most)));
    for (int64_t next = from; from < to; from = next) {
      const int64_t one = from / groups, begin = from % groups * kGroup;
      next = std::min({to, from + most / kGroup, (one + 1) * groups});
      const int64_t width = std::min(columns - begin, (next - from) * kGroup);
      for (int64_t row = 0; row < rows; row += kMost) {
        const int64_t count = std::min(kMost, rows - row);
        multiply(w + one * depth * columns, transposed, factors + (one * padded + row) * depth, count, depth, columns,
                 begin, width, sums.data());
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

// In float32, with rows of zeros up to a multiple of kMost.
at::Tensor padded(const at::Tensor& a) {
  const int64_t rows = a.size(-2), batch = a.dim() == 3 ? a.size(0) : 1;
  if (rows == 1) return a.to(at::kFloat).contiguous().view({batch, 1, a.size(-1)});
  const at::Tensor x =
      at::zeros({batch, (rows + kMost - 1) / kMost * kMost, a.size(-1)}, a.options().dtype(at::kFloat));
  x.narrow(1, 0, rows).copy_(a.dim() == 3 ? a : a.unsqueeze(0));
  return x;
}

}  // namespace

bool multiply_few_rows(const at::Tensor& a, const at::Tensor& b, const std::optional<Addend>& added,
                       const at::Tensor& result) {
  static const bool has_avx512 = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  const at::ScalarType dtype = a.scalar_type();
  const bool is_half = dtype == at::kBFloat16 || dtype == at::kHalf;
  if (!has_avx512 || !is_half || b.scalar_type() != dtype || result.scalar_type() != dtype) return false;
  const bool straight = is_dense(b, -1, -2);
  if (!straight && !is_dense(b, -2, -1)) return false;
  const at::Tensor x = padded(a);
  dtype == at::kHalf ? multiply_all<at::Half>(x, b, !straight, added, result)
                     : multiply_all<at::BFloat16>(x, b, !straight, added, result);
  return true;
}

#else

bool multiply_few_rows(const at::Tensor& /*a*/, const at::Tensor& /*b*/, const std::optional<Addend>& /*added*/,
                       const at::Tensor& /*result*/) {
  return false;
}

#endif

}  // namespace tpjrt::kernels
