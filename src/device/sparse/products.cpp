// aten::mm, addmm, addmv, bmm, sparse_sampled_addmm and _sparse_sparse_matmul of sparse matrices. Other calls run on
// the host, which also reports invalid ones.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <torch/library.h>

#include "device/sparse/sparse.h"
#include "device/sparse/under_cpu.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

bool is_strided(const at::Tensor& x, int64_t dim) {
  return is_pjrt(x) && x.layout() == c10::kStrided && x.dim() == dim;
}

bool is_sparse_matrix(const at::Tensor& x) {
  if (!is_pjrt(x) || x.dim() != 2 || x.layout() == c10::kStrided) return false;
  return !x.is_sparse() || x.sparse_dim() == 2;
}

// Returns whether PyTorch's kernels multiply such a matrix on that side, and in that dtype: MKL's blocks are squares.
bool multiplies(const at::Tensor& sparse, bool on_the_left) {
  const c10::ScalarType dtype = sparse.scalar_type();
  bool is_mkls = dtype == c10::kFloat || dtype == c10::kDouble || c10::isComplexType(dtype);
  if (sparse.layout() == c10::kSparseBsr || sparse.layout() == c10::kSparseBsc) {
    const at::Tensor values = sparse.values();
    is_mkls = is_mkls && values.size(1) == values.size(2);
  }
  switch (sparse.layout()) {
    case c10::kSparse: return on_the_left && dtype != c10::kBool && dtype != c10::kComplexHalf;
    case c10::kSparseCsr:
    case c10::kSparseCsc: return is_mkls;
    case c10::kSparseBsr: return is_mkls && on_the_left;
    default: return is_mkls && !on_the_left;
  }
}

// Returns beta * self + alpha * product, like torch.addmm: self is ignored if beta is 0.
at::Tensor combined(const at::Tensor& self, const at::Tensor& product, const at::Scalar& beta,
                    const at::Scalar& alpha) {
  const at::Tensor scaled = alpha.equal(1) ? product : at::mul(product, alpha).to(product.scalar_type());
  if (beta.equal(0)) return scaled;
  return at::add(scaled, beta.equal(1) ? self : at::mul(self, beta).to(self.scalar_type()));
}

bool is_without_blocks(const at::Tensor& x) { return x.layout() == c10::kSparseCsr || x.layout() == c10::kSparseCsc; }

// Returns the product of a sparse and a strided matrix, in either order; undefined for other operands.
at::Tensor product_of(const at::Tensor& mat1, const at::Tensor& mat2) {
  const bool on_the_left = is_sparse_matrix(mat1) && is_strided(mat2, 2);
  const bool on_the_right = is_strided(mat1, 2) && is_sparse_matrix(mat2);
  if (!on_the_left && !on_the_right) return {};
  const at::Tensor& sparse = on_the_left ? mat1 : mat2;
  if (mat1.size(1) != mat2.size(0) || mat1.scalar_type() != mat2.scalar_type()) return {};
  if (mat1.device() != mat2.device() || !multiplies(sparse, on_the_left)) return {};
  if (on_the_left) return sparse_mm(parts_of(sparse), mat2, sparse.layout(), sparse.size(0));
  Parts parts = parts_of(sparse);
  c10::Layout layout = sparse.layout();
  switch (layout) {  // (a b)ᵀ = bᵀ aᵀ, and the transpose of a layout is another layout
    case c10::kSparseCsr: layout = c10::kSparseCsc; break;
    case c10::kSparseCsc: layout = c10::kSparseCsr; break;
    default:
      layout = layout == c10::kSparseBsr ? c10::kSparseBsc : c10::kSparseBsr;
      parts.values = parts.values.transpose(1, 2);
  }
  return sparse_mm(parts, mat1.t(), layout, sparse.size(1)).t().contiguous();
}

// Returns whether the CPU multiplies two sparse matrices of this dtype.
bool has_sparse_product(c10::ScalarType dtype) {
  return (c10::isFloatingType(dtype) || c10::isComplexType(dtype)) && c10::elementSize(dtype) >= 4 &&
         dtype != c10::kComplexHalf;
}

// Returns whether these are two compressed matrices that the CPU multiplies into CSR.
bool are_csr_factors(const at::Tensor& mat1, const at::Tensor& mat2) {
  const c10::ScalarType dtype = mat1.scalar_type();
  return is_sparse_matrix(mat1) && is_sparse_matrix(mat2) && is_without_blocks(mat1) && is_without_blocks(mat2) &&
         mat1.dense_dim() == 0 && mat2.dense_dim() == 0 && mat1.size(1) == mat2.size(0) &&
         mat1.device() == mat2.device() && mat2.scalar_type() == dtype && has_sparse_product(dtype) &&
         parts_of(mat1).plain.scalar_type() == parts_of(mat2).plain.scalar_type();
}

bool fits(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2) {
  if (!is_pjrt(self) || self.layout() != c10::kStrided || self.scalar_type() != mat1.scalar_type()) return false;
  return at::is_expandable_to(self.sizes(), {mat1.size(0), mat2.size(1)});
}

// Returns whether self is a CSR matrix of the product's sizes.
bool may_be_added_to(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2) {
  return is_pjrt(self) && self.layout() == c10::kSparseCsr && mat1.layout() == c10::kSparseCsr &&
         mat2.layout() == c10::kSparseCsr && self.scalar_type() == mat1.scalar_type() &&
         self.sizes() == at::IntArrayRef({mat1.size(0), mat2.size(1)}) &&
         self.col_indices().scalar_type() == mat1.col_indices().scalar_type();
}

// Returns beta * self + alpha * the product of two CSR matrices, strided or CSR like self; undefined for other
// operands.
at::Tensor sum_with_csr(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                        const at::Scalar& alpha) {
  if (!are_csr_factors(mat1, mat2) || mat1.layout() != c10::kSparseCsr || mat2.layout() != c10::kSparseCsr) return {};
  if (fits(self, mat1, mat2)) return combined(self, product_of_sparse(mat1, mat2).to_dense(), beta, alpha);
  if (!may_be_added_to(self, mat1, mat2)) return {};
  const at::Tensor product = csr_of(product_of_sparse(mat1, mat2), parts_of(mat1).plain.scalar_type()),
                   scaled = alpha.equal(1) ? product : product.mul(alpha);
  const at::Tensor sum = beta.equal(0) ? scaled : at::add(beta.equal(1) ? self : self.mul(beta), scaled);
  return with_own_places(parts_of(sum), sum.sizes(), c10::kSparseCsr);
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                 const at::Scalar& alpha) {
  if (mat1.dim() == 2 && mat2.dim() == 2 && fits(self, mat1, mat2)) {
    if (const at::Tensor product = product_of(mat1, mat2); product.defined()) {
      return combined(self, product, beta, alpha);
    }
  }
  if (const at::Tensor sum = sum_with_csr(self, mat1, mat2, beta, alpha); sum.defined()) return sum;
  return on_host<at::Tensor>("aten::addmm", "", self, mat1, mat2, beta, alpha);
}

at::Tensor& addmm_out(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                      const at::Scalar& alpha, at::Tensor& out) {
  if (mat1.dim() == 2 && mat2.dim() == 2 && fits(self, mat1, mat2) && is_strided(out, out.dim()) &&
      out.scalar_type() == mat1.scalar_type()) {
    if (const at::Tensor product = product_of(mat1, mat2); product.defined()) {
      return written(out, combined(self, product, beta, alpha));
    }
  }
  if (are_csr_factors(mat1, mat2) && (is_strided(out, 2) ? fits(out, mat1, mat2) : may_be_added_to(out, mat1, mat2))) {
    const at::Tensor sum = sum_with_csr(self, mat1, mat2, beta, alpha);
    if (sum.defined() && sum.layout() == out.layout()) return is_strided(out, 2) ? written(out, sum) : give(sum, out);
  }
  out = on_host<at::Tensor>("aten::addmm", "out", self, mat1, mat2, beta, alpha, out);
  return out;
}

at::Tensor& addmm_(at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                   const at::Scalar& alpha) {
  if (mat1.dim() == 2 && mat2.dim() == 2 && self.sizes() == at::IntArrayRef({mat1.size(0), mat2.size(1)})) {
    return addmm_out(self, mat1, mat2, beta, alpha, self);
  }
  self = on_host<at::Tensor>("aten::addmm_", "", self, mat1, mat2, beta, alpha);
  return self;
}

at::Tensor& addmv_out(const at::Tensor& self, const at::Tensor& mat, const at::Tensor& vec, const at::Scalar& beta,
                      const at::Scalar& alpha, at::Tensor& out) {
  const bool is_known = is_sparse_matrix(mat) && is_strided(vec, 1) && is_strided(self, self.dim()) &&
                        is_strided(out, out.dim()) && self.dim() <= 1 && self.scalar_type() == mat.scalar_type() &&
                        out.scalar_type() == mat.scalar_type() && at::is_expandable_to(self.sizes(), {mat.size(0)}) &&
                        (mat.layout() == c10::kSparseCsr || mat.layout() == c10::kSparseCsc);
  const at::Tensor product = is_known ? product_of(mat, vec.unsqueeze(1)) : at::Tensor();
  if (!product.defined()) {
    out = on_host<at::Tensor>("aten::addmv", "out", self, mat, vec, beta, alpha, out);
    return out;
  }
  return written(out, combined(self, product.squeeze(1), beta, alpha));
}

// Multiplies a batch of matrices as one matrix, which has them along its diagonal.
at::Tensor bmm_coo(const at::Tensor& self, const at::Tensor& mat2) {
  const bool is_known = is_pjrt(self) && self.is_sparse() && self.dim() == 3 && self.sparse_dim() == 3 &&
                        is_strided(mat2, 3) && self.size(0) == mat2.size(0) && self.size(2) == mat2.size(1) &&
                        self.scalar_type() == mat2.scalar_type() && c10::isFloatingType(self.scalar_type()) &&
                        !c10::isReducedFloatingType(self.scalar_type());
  if (!is_known) return on_host<at::Tensor>("aten::bmm", "", self, mat2);
  const at::Tensor batch = self._indices().select(0, 0).to(c10::kLong);
  const int64_t n = self.size(0), rows = self.size(1), columns = self.size(2);
  const Parts parts{batch.mul(rows).add(self._indices().select(0, 1)),
                    batch.mul(columns).add(self._indices().select(0, 2)), self._values()};
  return sparse_mm(parts, mat2.reshape({n * columns, mat2.size(2)}), c10::kSparse, n * rows)
      .reshape({n, rows, mat2.size(2)});
}

at::Tensor& bmm_out(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  if (!is_strided(out, 3) || out.scalar_type() != self.scalar_type()) {
    out = on_host<at::Tensor>("aten::bmm", "out", self, mat2, out);
    return out;
  }
  return written(out, bmm_coo(self, mat2));
}

// aten::sparse_sampled_addmm: alpha * (mat1 @ mat2) where self has elements, + beta * self.
at::Tensor sampled_addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                         const at::Scalar& alpha) {
  const bool is_known = is_pjrt(self) && self.layout() == c10::kSparseCsr && self.dim() == 2 && is_strided(mat1, 2) &&
                        is_strided(mat2, 2) && mat1.size(1) == mat2.size(0) && self.size(0) == mat1.size(0) &&
                        self.size(1) == mat2.size(1) && self.scalar_type() == mat1.scalar_type() &&
                        mat1.scalar_type() == mat2.scalar_type() &&
                        (self.scalar_type() == c10::kFloat || self.scalar_type() == c10::kDouble);
  if (!is_known) return on_host<at::Tensor>("aten::sparse_sampled_addmm", "", self, mat1, mat2, beta, alpha);
  const Parts parts = parts_of(self);
  const at::Tensor values = combined(parts.values, sparse_sampled_mm(parts, mat1, mat2, self.layout()), beta, alpha);
  return with_own_places({parts.compressed, parts.plain, values}, self.sizes(), c10::kSparseCsr);
}

// aten::mm of compressed matrices. PyTorch's shared kernel would first convert CSC to CSR, in many ops.
at::Tensor mm_compressed(const at::Tensor& mat1, const at::Tensor& mat2) {
  const bool are_matrices = mat1.dim() == 2 && mat2.dim() == 2;
  if (const at::Tensor product = are_matrices ? product_of(mat1, mat2) : at::Tensor(); product.defined())
    return product;
  if (are_csr_factors(mat1, mat2)) return csr_of(product_of_sparse(mat1, mat2), c10::kLong);
  return shared_kernel<at::Tensor>(c10::DispatchKey::SparseCsrCPU, "aten::mm", "", mat1, mat2);
}

// aten::_sparse_sparse_matmul(Tensor self, Tensor other), of COO matrices.
at::Tensor matmul_coo(const at::Tensor& self, const at::Tensor& other) {
  const c10::ScalarType dtype = self.scalar_type();
  const bool is_known = is_pjrt(self) && is_pjrt(other) && self.is_sparse() && other.is_sparse() && self.dim() == 2 &&
                        other.dim() == 2 && self.sparse_dim() == 2 && other.sparse_dim() == 2 &&
                        self.size(1) == other.size(0) && other.scalar_type() == dtype && has_sparse_product(dtype);
  if (!is_known) return on_host<at::Tensor>("aten::_sparse_sparse_matmul", "", self, other);
  return product_of_sparse(self, other);
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("addmm", TORCH_FN(addmm));
  m.impl("addmm.out", TORCH_FN(addmm_out));
  m.impl("addmm_", TORCH_FN(addmm_));
  m.impl("_sparse_sparse_matmul", TORCH_FN(matmul_coo));
  m.impl("bmm", TORCH_FN(bmm_coo));
  m.impl("bmm.out", TORCH_FN(bmm_out));
}
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("mm", TORCH_FN(mm_compressed));
  m.impl("addmm", TORCH_FN(addmm));
  m.impl("addmm.out", TORCH_FN(addmm_out));
  m.impl("addmv.out", TORCH_FN(addmv_out));
  m.impl("sparse_sampled_addmm", TORCH_FN(sampled_addmm));
}

}  // namespace

}  // namespace tpjrt::device
