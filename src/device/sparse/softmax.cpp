// aten::_sparse_softmax, _sparse_log_softmax and their backwards of COO tensors: missing elements count as minus
// infinity. They are ops on segments, the elements that differ in the softmax's dimension only.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <limits>

#include "device/services/python_hooks.h"
#include "device/sparse/sparse.h"
#include "device/sparse/under_cpu.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {
namespace {

struct Segments {
  at::Tensor of;  // the segment of each element: (nnz)
  int64_t count = 1;
};

Segments segments(const at::Tensor& sparse, int64_t dim) {
  Segments all;
  const at::Tensor indices = sparse._indices().to(c10::kLong);
  all.of = at::zeros({indices.size(1)}, indices.options());
  for (int64_t d = 0; d < sparse.sparse_dim(); ++d) {
    if (d == dim) continue;
    all.of = all.of.mul(sparse.size(d)).add(indices.select(0, d));
    all.count *= sparse.size(d);
  }
  return all;
}

at::Tensor sum_of(const Segments& segments, const at::Tensor& values) {
  return summed_at(segments.of, values, segments.count).index_select(0, segments.of);
}

at::Tensor maximum_of(const Segments& segments, const at::Tensor& values) {
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes[0] = segments.count;
  const at::Tensor least = at::full(sizes, -std::numeric_limits<double>::infinity(), values.options());
  const Unheard of_beta;
  return least.index_reduce(0, segments.of, values, "amax").index_select(0, segments.of);
}

// Returns whether there are few enough segments to number them all. A matrix's rows are; more dimensions may have as
// many segments as elements.
bool may_be_segmented(const at::Tensor& x, int64_t dim) {
  constexpr int64_t kMostSegments = int64_t{1} << 28;
  if (!is_pjrt(x) || !x.is_sparse() || x.dim() == 0 || dim < -x.dim() || dim >= x.dim() || x._nnz() == 0) return false;
  const c10::ScalarType dtype = x.scalar_type();
  if (dtype != c10::kFloat && dtype != c10::kDouble) return false;
  int64_t count = 1;
  for (int64_t d = 0; d < x.sparse_dim(); ++d) count *= d == at::maybe_wrap_dim(dim, x.dim()) ? 1 : x.size(d);
  return count <= kMostSegments;
}

template <bool is_log>
at::Tensor softmax(const at::Tensor& self, int64_t dim, bool half_to_float) {
  if (!may_be_segmented(self, dim) || half_to_float) {
    return on_host<at::Tensor>(is_log ? "aten::_sparse_log_softmax" : "aten::_sparse_softmax", "", self, dim,
                               half_to_float);
  }
  dim = at::maybe_wrap_dim(dim, self.dim());
  const at::Tensor x = self.coalesce();
  if (dim >= x.sparse_dim()) {
    const int64_t of_values = dim - x.sparse_dim() + 1;
    return with_values(
        x, is_log ? at::_log_softmax(x._values(), of_values, false) : at::_softmax(x._values(), of_values, false));
  }
  const Segments rows = segments(x, dim);
  const at::Tensor shifted = x._values().sub(maximum_of(rows, x._values()));
  const at::Tensor powers = shifted.exp(), sum = sum_of(rows, powers);
  return with_values(x, is_log ? shifted.sub(sum.log()) : powers.div(sum));
}

template <bool is_log>
at::Tensor softmax_backward(const at::Tensor& gradient, const at::Tensor& output, int64_t dim, const at::Tensor& self) {
  const bool fits = may_be_segmented(output, dim) && may_be_segmented(gradient, dim) &&
                    gradient.sizes() == output.sizes() && gradient.sparse_dim() == output.sparse_dim() &&
                    output.is_coalesced();
  if (!fits) {
    return on_host<at::Tensor>(
        is_log ? "aten::_sparse_log_softmax_backward_data" : "aten::_sparse_softmax_backward_data", "", gradient,
        output, dim, self);
  }
  dim = at::maybe_wrap_dim(dim, output.dim());
  const at::Tensor all = gradient.coalesce(), y = output._values();
  const Found found = find_in(flat_places(all), flat_places(output));
  const at::Tensor g = where_chosen(found.is_there, all._values().index_select(0, found.position));
  const at::Tensor terms = is_log ? g : g.mul(y);
  const at::Tensor sum = dim < output.sparse_dim() ? sum_of(segments(output, dim), terms)
                                                   : terms.sum(dim - output.sparse_dim() + 1, /*keepdim=*/true);
  return with_values(output, is_log ? g.sub(y.exp().mul(sum)) : y.mul(g.sub(sum)));
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_softmax", TORCH_FN(softmax<false>));
  m.impl("_sparse_log_softmax", TORCH_FN(softmax<true>));
  m.impl("_sparse_softmax_backward_data", TORCH_FN(softmax_backward<false>));
  m.impl("_sparse_log_softmax_backward_data", TORCH_FN(softmax_backward<true>));
}

}  // namespace
}  // namespace tpjrt::device
