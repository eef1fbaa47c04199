// slice_scatter and select_scatter of dense tensors: a clone, which shares the value, and a write to a part of it. PyTorch's
// kernels clone the memory instead, as a flat tensor, and so hide what is written (graph/box.h).
#include <ATen/ops/select_scatter_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/slice_scatter_compositeexplicitautogradnonfunctional_dispatch.h>
#include <torch/library.h>

namespace tpjrt::device {
namespace {

at::Tensor slice_scatter(const at::Tensor& self, const at::Tensor& src, int64_t dim, std::optional<int64_t> start,
                         std::optional<int64_t> end, int64_t step) {
  if (self.is_non_overlapping_and_dense()) {
    at::Tensor result = self.clone();
    const at::Tensor part = result.slice(dim, start, end, step);
    if (part.sizes() == src.sizes()) return part.copy_(src), result;
  }
  return at::compositeexplicitautogradnonfunctional::slice_scatter(self, src, dim, start, end, step);
}

at::Tensor select_scatter(const at::Tensor& self, const at::Tensor& src, int64_t dim, int64_t index) {
  if (self.is_non_overlapping_and_dense()) {
    at::Tensor result = self.clone();
    const at::Tensor part = result.select(dim, index);
    if (part.sizes() == src.sizes()) return part.copy_(src), result;
  }
  return at::compositeexplicitautogradnonfunctional::select_scatter(self, src, dim, index);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("slice_scatter", &slice_scatter);
  m.impl("select_scatter", &select_scatter);
}

}  // namespace
}  // namespace tpjrt::device
