// A row times a matrix, of bfloat16, as each product is when a language model makes one token at a time.
//
// It takes what reading the matrix takes, which oneDNN does at a third of the speed of its float32 where it has no tiles, and at half
// of it where the matrix lies transposed in memory that isn't cached. Sums are float32, rounded once, as oneDNN's are.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tpjrt::kernels {

// What is added to the product: beta * it + alpha * product. It broadcasts to the result.
struct Addend {
  at::Tensor x;
  double beta, alpha;
};

// a (1, k) and b (k, n), both with a batch before that or none, into a dense result. False, and nothing done: they are of another
// dtype or shape, neither b nor what it is the transpose of is dense, or the processor has no AVX-512.
bool multiply_row(const at::Tensor& a, const at::Tensor& b, const std::optional<Addend>& added,
                  const at::Tensor& result);

}  // namespace tpjrt::kernels
