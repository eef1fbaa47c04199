// Products of a sparse matrix's parts (Note [Sparse products]).
#pragma once

#include <ATen/core/Tensor.h>

namespace tpjrt::device {

// What a sparse matrix is made of: rows and columns of COO, row ends and columns of CSR and BSR, column ends and rows of CSC and BSC.
struct Parts {
  at::Tensor compressed, plain, values;
};
Parts parts_of(const at::Tensor& sparse);

// Rows and columns (of blocks) of the elements.
std::pair<at::Tensor, at::Tensor> rows_and_columns(const Parts& parts, c10::Layout layout);

// The sparse matrix of so many rows times a strided one, (rows, n).
at::Tensor sparse_mm(const Parts& parts, const at::Tensor& dense, c10::Layout layout, int64_t rows);
// mat1 @ mat2 where the sparse matrix has elements: (nnz).
at::Tensor sparse_sampled_mm(const Parts& parts, const at::Tensor& mat1, const at::Tensor& mat2, c10::Layout layout);

}  // namespace tpjrt::device
