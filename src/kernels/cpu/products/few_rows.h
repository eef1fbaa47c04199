// A few rows times a matrix, of bfloat16 or float16, as products are when a language model makes one token at a time.
//
// They take what reading the matrix takes. oneDNN takes three times as long for one row where it has no tiles, and twice where the
// matrix lies transposed in memory that isn't cached; it multiplies float16 with AVX512-FP16 alone. Sums are float32, rounded
// once, as oneDNN's are.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tpjrt::kernels {

// What is added to the product: beta * it + alpha * product. It broadcasts to the result.
struct Addend {
  at::Tensor x;
  double beta, alpha;
};

// a (m, k) and b (k, n), both with a batch before that or none, into a dense result. False, and nothing done: they are of another
// dtype, neither b nor what it is the transpose of is dense, or the processor has no AVX2.
bool multiply_few_rows(const at::Tensor& a, const at::Tensor& b, const std::optional<Addend>& added,
                       const at::Tensor& result);

}  // namespace tpjrt::kernels
