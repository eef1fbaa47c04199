// Kernels of sparse tensors that are PyTorch's own.
//
// Note [Sparse kernels]: a sparse tensor is a SparseTensorImpl or SparseCsrTensorImpl over ordinary tensors of the
// device. A kernel that PyTorch registers for SparseCPU and SparseCUDA as one function doesn't depend on the device:
// it is written in ops on indices and values, which are recorded like all others. The device uses such kernels
// unchanged, under the CPU's key. The tables below name them. A test (tests/sparse/test_kernels.py) compares them
// with PyTorch's native_functions.yaml, because the CPU's other kernels read memory that a lazy tensor doesn't have.
// Ops with such kernels have one of this project beside this file, or run on the host (on_host.cpp).
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>

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

}  // namespace
}  // namespace tpjrt::device
