// Sums and products of COO tensors. Nothing is read, like on CUDA: a sum of two has the elements of both,
// uncoalesced, and a product those of one operand, including zeros.
//
// Kernels of sparse tensors that are PyTorch's own.
//
// Note [Sparse kernels]: a sparse tensor is a SparseTensorImpl or SparseCsrTensorImpl over ordinary tensors of the
// device. A kernel that PyTorch registers for SparseCPU and SparseCUDA as one function doesn't depend on the device:
// it is written in ops on indices and values, which are recorded like all others. The device uses such kernels
// unchanged, under the CPU's key. The tables below name them. A test (tests/sparse/test_kernels.py) compares them
// with PyTorch's native_functions.yaml, because the CPU's other kernels read memory that a lazy tensor doesn't have.
// Ops with such kernels have one of this project beside this file, or run on the host (on_host.cpp).
#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/result_type.h>
#include <torch/library.h>

#include <string>

#include "device/sparse/coordinates.h"
#include "device/sparse/under_cpu.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

template <c10::DispatchKey key>
void as_under(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.callBoxedForDispatchKey(key, *stack);
}

// Ops that map values, and have the forms f, f_ and f.out.
constexpr const char* kUnary[] = {"abs",    "asin",  "asinh", "atan", "atanh", "ceil", "deg2rad", "erf",
                                  "erfinv", "expm1", "floor", "frac", "log1p", "neg",  "rad2deg", "round",
                                  "sgn",    "sign",  "sin",   "sinh", "sqrt",  "tan",  "tanh",    "trunc"};

constexpr const char* kCoo[] = {
    // clang-format off
    "nan_to_num", "nan_to_num_", "nan_to_num.out", "view_as_real", "view_as_complex", "conj_physical.out", "relu", "relu_", "isnan",
    "isinf", "isposinf", "isposinf.out", "isneginf", "isneginf.out", "signbit", "signbit.out", "pow.Tensor_Scalar",
    "pow.Tensor_Scalar_out", "threshold_backward", "threshold_backward.grad_input",
    "add.Tensor", "add_.Tensor", "sub.Tensor", "sub_.Tensor", "sub.out", "mul.Tensor", "mul_.Tensor", "div.Tensor", "div_.Tensor",
    "div.out", "div.Tensor_mode", "div_.Tensor_mode", "div.out_mode", "floor_divide", "floor_divide_.Tensor", "floor_divide.out",
    "mm", "mm.out", "mv", "sum", "sum.dim_IntList", "any", "native_norm", "native_norm.ScalarOpt_dim_dtype", "norm.ScalarOpt_dim",
    "norm.ScalarOpt_dim_dtype",
    "_sparse_broadcast_to", "cat", "narrow_copy", "permute", "unsqueeze",
    "empty.memory_format", "empty_like", "zeros.out", "clone", "copy_", "copy_sparse_to_sparse_", "zero_", "resize_as_sparse_",
    "sparse_resize_", "sparse_resize_and_clear_", "_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors",
    "sparse_dim", "_dimI", "dense_dim", "_dimV", "_nnz", "is_coalesced", "_coalesced_", "indices", "_indices", "values", "_values",
    "_to_dense", "_to_sparse", "_to_sparse.sparse_dim", "_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc",
    // clang-format on
};

constexpr const char* kCompressed[] = {
    // clang-format off
    "angle", "angle.out", "_conj_physical", "conj_physical_", "conj_physical.out", "relu", "relu_", "isnan", "isinf", "isposinf",
    "isposinf.out", "isneginf", "isneginf.out", "signbit", "signbit.out", "threshold_backward", "threshold_backward.grad_input",
    "add.Tensor", "add_.Tensor", "mul.Tensor", "mul_.Tensor", "mul.out", "mul.Scalar", "mul_.Scalar", "mm.out", "sum",
    "sum.dim_IntList", "select.int", "select_copy.int",
    "empty.memory_format", "empty_like", "clone", "copy_", "fill_.Scalar", "zero_", "normal_", "resize_", "resize_as_sparse_",
    "sparse_dim", "dense_dim", "_nnz", "values", "crow_indices", "col_indices", "ccol_indices", "row_indices",
    "_to_sparse", "_to_sparse.sparse_dim", "_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc",
    // clang-format on
};

// Ops on strided tensors.
constexpr const char* kStrided[] = {"_to_sparse",     "_to_sparse.sparse_dim", "_to_sparse_csr",
                                    "_to_sparse_csc", "_to_sparse_bsr",        "_to_sparse_bsc"};

template <c10::DispatchKey key>
void take(torch::Library& m, c10::ArrayRef<const char*> names) {
  for (const char* name : names) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&as_under<key>>());
}

template <c10::DispatchKey key>
void take_unary(torch::Library& m) {
  for (const std::string name : kUnary) {
    for (const char* form : {"", "_", ".out"}) {
      m.impl((name + form).c_str(), torch::CppFunction::makeFromBoxedFunction<&as_under<key>>());
    }
  }
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  take<c10::DispatchKey::SparseCPU>(m, kCoo);
  take_unary<c10::DispatchKey::SparseCPU>(m);
}
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  take<c10::DispatchKey::SparseCsrCPU>(m, kCompressed);
  take_unary<c10::DispatchKey::SparseCsrCPU>(m);
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { take<c10::DispatchKey::CPU>(m, kStrided); }

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
