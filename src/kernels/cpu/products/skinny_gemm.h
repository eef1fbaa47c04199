// Skinny GEMM: a few rows times a matrix of bfloat16, float16 or int8, the products of a language model that decodes
// one token at a time.
//
// These products take as long as reading the matrix. oneDNN takes three times as long for one row if the processor
// has no tiles (AMX), and twice as long for a transposed matrix that isn't cached; it multiplies float16 with
// AVX512-FP16 alone. Sums are float32 and rounded once, like oneDNN's.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tpjrt::kernels {

// An addend: the result is beta * x + alpha * product. It broadcasts to the result.
struct Addend {
  at::Tensor x;
  double beta, alpha;
};

// Multiplies a (m, k) and b (k, n), both with one batch dimension or none, into a dense result. b has a's dtype, or
// int8; then a may be float32. Returns false, without writing, if the dtypes are others, neither b nor its transpose is
// dense, or the processor has no AVX2.
bool multiply_skinny(const at::Tensor& a, const at::Tensor& b, const std::optional<Addend>& added,
                     const at::Tensor& result);

}  // namespace tpjrt::kernels
