// slice_scatter and select_scatter of dense tensors: a clone, which shares the value, and a write to a part of it.
// PyTorch's kernels clone the memory as a flat tensor instead, which hides the written part (graph/box.h).
#include <ATen/ops/select_scatter_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/slice_scatter_compositeexplicitautogradnonfunctional_dispatch.h>
#include <torch/library.h>

namespace tpjrt::device {
namespace {

// Returns the result, or undefined where PyTorch's kernel must run: for memory with gaps, and for calls that it
// refuses.
template <typename Part>
at::Tensor written(const at::Tensor& self, const at::Tensor& src, const Part& part_of) {
  if (!self.is_non_overlapping_and_dense()) return {};
  at::Tensor result = self.clone();
  const at::Tensor part = part_of(result);
  if (part.sizes() != src.sizes()) return {};
  part.copy_(src);
  return result;
}

at::Tensor slice_scatter(const at::Tensor& self, const at::Tensor& src, int64_t dim, std::optional<int64_t> start,
                         std::optional<int64_t> end, int64_t step) {
  const auto part = [&](const at::Tensor& whole) { return whole.slice(dim, start, end, step); };
  if (at::Tensor result = written(self, src, part); result.defined()) return result;
  return at::compositeexplicitautogradnonfunctional::slice_scatter(self, src, dim, start, end, step);
}

at::Tensor select_scatter(const at::Tensor& self, const at::Tensor& src, int64_t dim, int64_t index) {
  const auto part = [&](const at::Tensor& whole) { return whole.select(dim, index); };
  if (at::Tensor result = written(self, src, part); result.defined()) return result;
  return at::compositeexplicitautogradnonfunctional::select_scatter(self, src, dim, index);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("slice_scatter", &slice_scatter);
  m.impl("select_scatter", &select_scatter);
}

}  // namespace
}  // namespace tpjrt::device
