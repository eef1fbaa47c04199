// Matrix products by oneDNN and MKL, as PyTorch calls them.
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>

#include "kernels/cpu/handlers.h"
#include "kernels/cpu/tensors.h"

namespace tpjrt::kernels {
namespace {

// Operands: a (…, m, k) and b (…, k, n), with a batch before that or none; either may lie transposed. And perhaps what is added,
// which is broadcast to the result: beta * it + alpha * a · b.
void multiply(const Tensors& tensors, const xla::ffi::Dictionary& attributes) {
  const auto operand = [&](size_t i, const char* transposed) {
    const at::Tensor& x = tensors.operands.at(i);
    return *attributes.get<bool>(transposed) ? x.transpose(-1, -2) : x;
  };
  const at::Tensor a = operand(0, "a_transposed"), b = operand(1, "b_transposed");
  at::Tensor result = tensors.results.at(0);
  const bool batched = result.dim() == 3;
  if (tensors.operands.size() < 3) {
    batched ? at::bmm_out(result, a, b) : at::mm_out(result, a, b);
    return;
  }
  const double beta = *attributes.get<double>("beta"), alpha = *attributes.get<double>("alpha");
  const at::Tensor& added = tensors.operands[2];
  batched ? at::baddbmm_out(result, added, a, b, beta, alpha) : at::addmm_out(result, added, a, b, beta, alpha);
}

}  // namespace

XLA_FFI_Error* product(XLA_FFI_CallFrame* frame) { return called<multiply>(frame); }

}  // namespace tpjrt::kernels
