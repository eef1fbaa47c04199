// Matrix products by oneDNN, called as PyTorch calls it, in the results' memory. Few rows of 16-bit floats take
// skinny_gemm.h instead.
#include <ATen/Version.h>
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>

#include <string_view>

#include "kernels/cpu/handlers.h"
#include "kernels/cpu/products/skinny_gemm.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/tensors.h"

// oneDNN's product of matrices or batches of them: computes beta * result + alpha * a · b into `result`. PyTorch
// calls MKL for float32, which is half as fast on processors that aren't Intel's. The symbol is null in versions of
// torch without it. It fails on machines whose oneDNN multiplies no bfloat16.
namespace at::native {
__attribute__((weak, visibility("default"))) void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result,
                                                                float beta, float alpha);
}  // namespace at::native

namespace tpjrt::kernels {
namespace {

// The number of multiplications from which several threads are worth it.
constexpr int64_t kLarge = 1 << 20;

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

// Operands: a (m, k) and b (k, n), both with one batch dimension or none; either may be transposed. An optional
// addend is broadcast to the result: beta * it + alpha * a · b. The attribute `by` names the
// kernel: "skinny", "onednn" or "aten".
void do_product(const Tensors& tensors, const xla::ffi::Dictionary& attributes) {
  const at::Tensor& result = tensors.results.at(0);
  if (result.numel() == 0) return;
  const int64_t depth = tensors.operands.at(0).numel() / std::max<int64_t>(1, result.numel() / result.size(-1));
  compute(result.numel() * depth >= kLarge, [&] {
    const c10::InferenceMode inference;
    const auto operand = [&](size_t i, const char* transposed) {
      const at::Tensor& x = tensors.operands.at(i);
      return *attributes.get<bool>(transposed) ? transpose_of(x) : x;
    };
    const at::Tensor a = operand(0, "a_transposed");
    at::Tensor b = operand(1, "b_transposed");
    std::optional<Addend> added;
    if (tensors.operands.size() > 2) {
      added = {tensors.operands[2], *attributes.get<double>("beta"), *attributes.get<double>("alpha")};
    }
    const auto by = *attributes.get<std::string_view>("by");
    if (by == "skinny" && multiply_skinny(a, b, added, result)) return;
    if (result.is_floating_point()) b = b.to(a.scalar_type());  // 8-bit numbers
    const bool by_onednn = by == "onednn" && a.scalar_type() == at::kFloat && depth > 0 && has_onednn();
    added ? multiply_and_add(*added, a, b, result, by_onednn) : multiply(a, b, result, by_onednn);
  });
}

}  // namespace

XLA_FFI_Error* product(XLA_FFI_CallFrame* frame) { return called<do_product>(frame); }

}  // namespace tpjrt::kernels
