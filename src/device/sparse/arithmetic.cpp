// Sums, products and masks of COO tensors. As on CUDA, nothing is read: a sum of two has the elements of both, uncoalesced, and a
// product those of one of them, zeros among them.
#include <ATen/ExpandUtils.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <numeric>

#include "device/sparse/coordinates.h"
#include "device/sparse/under_cpu.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {
namespace {

bool is_sparse_here(const at::Tensor& x) { return x.is_sparse() && is_pjrt(x); }

int64_t places_of(const at::Tensor& sparse) {
  const auto sizes = sparse.sizes().slice(0, static_cast<size_t>(sparse.sparse_dim()));
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// A strided tensor of the sizes of `sparse` as (places, dense…).
at::Tensor by_place(const at::Tensor& strided, const at::Tensor& sparse) {
  std::vector<int64_t> sizes{places_of(sparse)};
  for (int64_t dim = sparse.sparse_dim(); dim < sparse.dim(); ++dim) sizes.push_back(sparse.size(dim));
  return strided.reshape(sizes);
}

// out = self + alpha * other, of which self and out are strided.
void add_to_strided(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& out) {
  const c10::ScalarType dtype = at::result_type(self, other);
  at::Tensor values = other._values().to(dtype);
  if (!alpha.equal(1)) values = values.mul(alpha);
  const at::Tensor places = flat_places(other);
  const bool in_place = out.is_same(self) && self.scalar_type() == dtype && self.is_contiguous() &&
                        !c10::isReducedFloatingType(dtype) && dtype != c10::kBool;
  if (in_place) {
    by_place(out, other).index_add_(0, places, values);
    return;
  }
  at::Tensor sum;
  if (c10::isReducedFloatingType(dtype) || dtype == c10::kBool) {
    sum = at::add(self, summed_at(places, values, places_of(other)).reshape(self.sizes()));
  } else {
    sum = by_place(self.to(dtype), other).index_add(0, places, values).reshape(self.sizes());
  }
  written(out, sum);
}

void add_sparse(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& out) {
  const c10::ScalarType dtype = out.scalar_type();
  const auto scaled = [&] {
    const at::Tensor values = other._values().to(dtype);
    return alpha.equal(1) ? values : values.mul(alpha);
  };
  at::Tensor indices, values;
  bool is_coalesced = false;
  if (other._nnz() == 0) {
    indices = self._indices().clone();
    values = self._values().to(dtype, /*non_blocking=*/false, /*copy=*/true);
    is_coalesced = self.is_coalesced();
  } else if (self._nnz() == 0) {
    indices = other._indices().clone();
    values = scaled().clone();
    is_coalesced = other.is_coalesced();
  } else {
    indices = at::cat({self._indices(), other._indices()}, 1);
    values = at::cat({self._values().to(dtype), scaled()}, 0);
  }
  become(out, self.sizes(), indices, values, is_coalesced);
  if (out._nnz() > out.numel()) {  // what is added to again and again doesn't grow for ever
    const at::Tensor all = out.coalesce();
    become(out, self.sizes(), all._indices(), all._values(), true);
  }
}

// aten::add.out
at::Tensor& add_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& out) {
  const bool is_known = is_pjrt(self) && is_sparse_here(other) && is_pjrt(out) && self.sizes() == other.sizes() &&
                        at::canCast(at::result_type(self, other), out.scalar_type()) &&
                        (c10::isFloatingType(other.scalar_type()) || c10::isComplexType(other.scalar_type()) ||
                         alpha.isIntegral(/*includeBool=*/false));
  if (is_known && self.layout() == c10::kStrided && out.layout() == c10::kStrided) {
    add_to_strided(self, other, alpha, out);
    return out;
  }
  if (is_known && self.is_sparse() && out.is_sparse() && at::sparse::is_same_density(self, other)) {
    add_sparse(self, other, alpha, out);
    return out;
  }
  out = on_host<at::Tensor>("aten::add", "out", self, other, alpha, out);
  return out;
}

// x * y of one sparse and dense dimensions each, broadcast in the dense ones: the elements of the one that may be uncoalesced, each
// times what the other has there.
void intersect(at::Tensor& result, const at::Tensor& x, const at::Tensor& y) {
  const bool swaps = y.is_coalesced() && (!x.is_coalesced() || y._nnz() > x._nnz());
  const at::Tensor one = (swaps ? y : x).coalesce();
  const at::Tensor& source = swaps ? x : y;
  const c10::ScalarType dtype = result.scalar_type();
  const std::vector<int64_t> sizes = at::infer_size(x.sizes(), y.sizes());
  const Found found = find_in(flat_places(one), flat_places(source));
  const at::Tensor product =
      at::mul(one._values().to(dtype).index_select(0, found.position), source._values().to(dtype));
  become(result, sizes, source._indices().clone(), where_chosen(found.is_there, product), source.is_coalesced());
}

// aten::mul.out: what is no product of two COO tensors of the same sizes is written by PyTorch in ops, the CPU's as CUDA's.
at::Tensor& mul_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  const bool both = is_sparse_here(self) && is_sparse_here(other) && is_sparse_here(out);
  if (both && self.dim() > 0 && self.sizes() == other.sizes() && at::sparse::is_same_density(self, other) &&
      self._nnz() > 0 && other._nnz() > 0 && at::canCast(at::result_type(self, other), out.scalar_type())) {
    intersect(out, self, other);
    return out;
  }
  out = shared_kernel<at::Tensor>(c10::DispatchKey::SparseCPU, "aten::mul", "out", self, other, out);
  return out;
}

bool is_masked_here(const at::Tensor& self, const at::Tensor& mask) {
  return is_pjrt(self) && is_sparse_here(mask) && self.sizes() == mask.sizes() && mask.numel() > 0;
}

// aten::sparse_mask(Tensor self, Tensor mask): the mask's places, with what self has there.
at::Tensor sparse_mask(const at::Tensor& self, const at::Tensor& mask) {
  if (is_masked_here(self, mask) && self.layout() == c10::kStrided) {
    return with_values(mask, by_place(self, mask).index_select(0, flat_places(mask)));
  }
  if (is_masked_here(self, mask) && self.is_sparse() && self.sparse_dim() == mask.sparse_dim()) {
    if (self._nnz() == 0 || mask._nnz() == 0) {
      std::vector<int64_t> sizes = self._values().sizes().vec();
      sizes[0] = mask._nnz();
      return with_values(mask, at::zeros(sizes, self._values().options()));
    }
    const at::Tensor all = self.coalesce();
    const Found found = find_in(flat_places(all), flat_places(mask));
    return with_values(mask, where_chosen(found.is_there, all._values().index_select(0, found.position)));
  }
  return on_host<at::Tensor>("aten::sparse_mask", "", self, mask);
}

// aten::_sparse_mask_projection(Tensor self, Tensor mask, bool accumulate_matches): self's places, with its values where the mask
// has an element, times how many if matches are accumulated.
at::Tensor mask_projection(const at::Tensor& self, const at::Tensor& mask, bool accumulate_matches) {
  const bool is_known = is_masked_here(self, mask) && is_sparse_here(self) && self.sparse_dim() == mask.sparse_dim() &&
                        self._nnz() > 0 && mask._nnz() > 0;
  if (!is_known) return on_host<at::Tensor>("aten::_sparse_mask_projection", "", self, mask, accumulate_matches);
  const at::Tensor one = at::_sparse_coo_tensor_unsafe(
      mask._indices(), at::ones({mask._nnz()}, mask._values().options().dtype(c10::kLong)),
      mask.sizes().slice(0, static_cast<size_t>(mask.sparse_dim())),
      mask._values().options().dtype(c10::kLong).layout(c10::kSparse));
  const at::Tensor all = mask.is_coalesced() ? one._coalesced_(true) : one.coalesce();
  const Found found = find_in(flat_places(all), flat_places(self));
  at::Tensor values = self._values();
  if (accumulate_matches) {
    std::vector<int64_t> sizes(static_cast<size_t>(values.dim()), 1);
    sizes[0] = self._nnz();
    const at::Tensor matches = all._values().index_select(0, found.position);
    values = values.mul(matches.reshape(sizes)).to(values.scalar_type());
  }
  return with_values(self, where_chosen(found.is_there, values));
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("add.out", TORCH_FN(add_out));
  m.impl("mul.out", TORCH_FN(mul_out));
  m.impl("sparse_mask", TORCH_FN(sparse_mask));
  m.impl("_sparse_mask_projection", TORCH_FN(mask_projection));
}

}  // namespace

void multiply_sparse(at::Tensor& result, const at::Tensor& x, const at::Tensor& y) { intersect(result, x, y); }

}  // namespace tpjrt::device

namespace at::native {
using mul_sparse_sparse_out_fn = void (*)(Tensor& res, const Tensor& x, const Tensor& y);
DECLARE_DISPATCH(mul_sparse_sparse_out_fn, mul_sparse_sparse_out_stub)
REGISTER_PRIVATEUSE1_DISPATCH(mul_sparse_sparse_out_stub, &tpjrt::device::multiply_sparse)
}  // namespace at::native
