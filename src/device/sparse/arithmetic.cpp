// Sums and products of COO tensors. Nothing is read, like on CUDA: a sum of two has the elements of both,
// uncoalesced, and a product those of one operand, including zeros.
#include <ATen/ExpandUtils.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/result_type.h>
#include <torch/library.h>

#include "device/sparse/sparse.h"
#include "device/sparse/under_cpu.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

bool is_sparse_here(const at::Tensor& x) { return x.is_sparse() && is_pjrt(x); }

// Computes out = self + alpha * other, where self and out are strided.
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
  if (out._nnz() > out.numel()) {  // bounds a tensor that is added to repeatedly
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

// Computes x * y for operands with equal numbers of sparse and dense dimensions, broadcast in the dense ones: the
// elements of the operand that may be uncoalesced, each times the other's element there.
void intersect(at::Tensor& result, const at::Tensor& x, const at::Tensor& y) {
  const c10::ScalarType dtype = at::result_type(x, y);
  TORCH_CHECK(at::canCast(dtype, result.scalar_type()), "Can't convert result type ", dtype, " to output ",
              result.scalar_type());
  const bool swaps = y.is_coalesced() && (!x.is_coalesced() || y._nnz() > x._nnz());
  const at::Tensor one = (swaps ? y : x).to(dtype).coalesce();
  const at::Tensor& source = swaps ? x : y;
  const std::vector<int64_t> sizes = at::infer_size(x.sizes(), y.sizes());
  const Found found = find_in(flat_places(one), flat_places(source));
  const at::Tensor product =
      at::mul(one._values().index_select(0, found.position), source._values().to(dtype)).to(result.scalar_type());
  become(result, sizes, source._indices().clone(), where_chosen(found.is_there, product), source.is_coalesced());
}

// aten::mul.out: other products than of two COO tensors of the same sizes are written in ops by PyTorch, for the CPU
// and CUDA alike.
at::Tensor& mul_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  const bool both = is_sparse_here(self) && is_sparse_here(other) && is_sparse_here(out);
  if (both && self.dim() > 0 && self.sizes() == other.sizes() && at::sparse::is_same_density(self, other) &&
      self._nnz() > 0 && other._nnz() > 0) {
    intersect(out, self, other);
    return out;
  }
  out = shared_kernel<at::Tensor>(c10::DispatchKey::SparseCPU, "aten::mul", "out", self, other, out);
  return out;
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("add.out", TORCH_FN(add_out));
  m.impl("mul.out", TORCH_FN(mul_out));
}

}  // namespace

void multiply_sparse(at::Tensor& result, const at::Tensor& x, const at::Tensor& y) { intersect(result, x, y); }

}  // namespace tpjrt::device

namespace at::native {

using mul_sparse_sparse_out_fn = void (*)(Tensor& res, const Tensor& x, const Tensor& y);
DECLARE_DISPATCH(mul_sparse_sparse_out_fn, mul_sparse_sparse_out_stub)
REGISTER_PRIVATEUSE1_DISPATCH(mul_sparse_sparse_out_stub, &tpjrt::device::multiply_sparse)

}  // namespace at::native
