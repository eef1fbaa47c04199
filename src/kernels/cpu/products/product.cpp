// torch_pjrt::matrix_product: products by oneDNN, called as PyTorch calls it, by PyTorch, or for few rows of 16-bit
// floats by skinny_gemm.h.
#include <ATen/Version.h>
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

#include "kernels/cpu/products/skinny_gemm.h"

// oneDNN's product of matrices or batches of them: computes beta * result + alpha * a · b into `result`. PyTorch
// calls MKL for float32, which is half as fast on processors that aren't Intel's. The symbol is null in versions of
// torch without it. It fails on machines whose oneDNN multiplies no bfloat16.
namespace at::native {
__attribute__((weak, visibility("default"))) void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result,
                                                                float beta, float alpha);
}  // namespace at::native

namespace tpjrt::kernels {
namespace {

// Whether PyTorch lets mkldnn_matmul run: it asks for what bfloat16 needs, whatever the dtype.
bool has_onednn() {
  static const bool has = at::native::mkldnn_matmul != nullptr && at::get_cpu_capability() == "AVX512" &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512dq");
  return has;
}

void multiply(const at::Tensor& a, const at::Tensor& b, at::Tensor result, bool by_onednn) {
  if (result.scalar_type() == at::kInt) {
    at::_int_mm_out(result, a, b);
  } else if (by_onednn) {
    at::native::mkldnn_matmul(a, b, result, 0, 1);
  } else {
    result.dim() == 3 ? at::bmm_out(result, a, b) : at::mm_out(result, a, b);
  }
}

void multiply_and_add(const Addend& added, const at::Tensor& a, const at::Tensor& b, at::Tensor result,
                      bool by_onednn) {
  const auto& [x, beta, alpha] = added;
  if (by_onednn) {
    result.copy_(x);
    at::native::mkldnn_matmul(a, b, result, static_cast<float>(beta), static_cast<float>(alpha));
  } else {
    result.dim() == 3 ? at::baddbmm_out(result, x, a, b, beta, alpha) : at::addmm_out(result, x, a, b, beta, alpha);
  }
}

// Returns the transpose. A single row or column keeps its strides: oneDNN misreads strides of 1 and 1 (_int_mm).
at::Tensor transpose_of(const at::Tensor& x) {
  const at::Tensor y = x.transpose(-1, -2);
  return x.size(-1) == 1 || x.size(-2) == 1 ? x.view(y.sizes()) : y;
}

// Multiplies a (m, k) and b (k, n), both with one batch dimension or none; either may be transposed. An optional addend
// is broadcast to the result: beta * it + alpha * a · b. `by`: "skinny", "onednn" or "aten".
at::Tensor& matrix_product_out(const at::Tensor& given_a, const at::Tensor& given_b,
                               const std::optional<at::Tensor>& added, bool a_transposed, bool b_transposed,
                               c10::string_view by, double beta, double alpha, at::Tensor& result) {
  if (result.numel() == 0) return result;
  const at::Tensor a = a_transposed ? transpose_of(given_a) : given_a;
  at::Tensor b = b_transposed ? transpose_of(given_b) : given_b;
  std::optional<Addend> addend;
  if (added) addend = {*added, beta, alpha};
  if (by == "skinny" && multiply_skinny(a, b, addend, result)) return result;
  if (result.is_floating_point()) b = b.to(a.scalar_type());  // 8-bit numbers
  const bool by_onednn = by == "onednn" && a.scalar_type() == at::kFloat && a.size(-1) > 0 && has_onednn();
  addend ? multiply_and_add(*addend, a, b, result, by_onednn) : multiply(a, b, result, by_onednn);
  return result;
}

TORCH_LIBRARY_FRAGMENT(torch_pjrt, m) {
  m.def(
      "matrix_product(Tensor a, Tensor b, Tensor? added, bool a_transposed, bool b_transposed, str by, float beta, "
      "float alpha) -> Tensor");
  m.def(
      "matrix_product.out(Tensor a, Tensor b, Tensor? added, bool a_transposed, bool b_transposed, str by, float beta, "
      "float alpha, *, Tensor(a!) out) -> Tensor(a!)");
}
TORCH_LIBRARY_IMPL(torch_pjrt, CPU, m) { m.impl("matrix_product.out", TORCH_FN(matrix_product_out)); }

}  // namespace
}  // namespace tpjrt::kernels
