// Helpers of the kernels of sparse tensors, all in ops on the device: the parts of a tensor, this project's products,
// positions of elements, and matrices made of others.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <vector>

namespace tpjrt::device {

// Products with the parts of a sparse matrix (Note [Sparse products]).

// The parts of a sparse matrix: rows and columns of COO, row ends and columns of CSR and BSR, column ends and rows of
// CSC and BSC.
struct Parts {
  at::Tensor compressed, plain, values;
};
Parts parts_of(const at::Tensor& sparse);
// Returns "csr" for kSparseCsr, and the inverse.
const char* name_of(c10::Layout layout);
c10::Layout layout_of(c10::string_view name);

// Returns rows and columns (of blocks) of the elements.
std::pair<at::Tensor, at::Tensor> rows_and_columns(const Parts& parts, c10::Layout layout);

// Returns a sparse matrix with this number of rows times a strided one: (rows, n).
at::Tensor sparse_mm(const Parts& parts, const at::Tensor& dense, c10::Layout layout, int64_t rows);
// Returns mat1 @ mat2 where the sparse matrix has elements: (nnz).
at::Tensor sparse_sampled_mm(const Parts& parts, const at::Tensor& mat1, const at::Tensor& mat2, c10::Layout layout);

// The device's kernel of such an op: records the call as one node. Without it the composite kernel would replace the
// recorder.
void record_whole(const c10::OperatorHandle& op, torch::jit::Stack* stack);
// Calls this project's op of that name, whose signature the caller knows.
template <class Result, class... Arguments>
Result call_own(const char* name, Arguments... arguments) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Result(Arguments...)>().call(
      std::forward<Arguments>(arguments)...);
}

// Returns the flat number of each element's place among all places of the sparse dimensions, row-major: int64, (nnz).
at::Tensor flat_places(const at::Tensor& indices, c10::IntArrayRef sizes);
at::Tensor flat_places(const at::Tensor& sparse);
// Returns the flat places in a matrix with this number of columns.
at::Tensor flat_places(const at::Tensor& row, const at::Tensor& column, int64_t columns);

// Returns the number of places of the sparse dimensions.
int64_t places_of(const at::Tensor& sparse);
// Returns a strided tensor of the sizes of `sparse` as (places, dense…).
at::Tensor by_place(const at::Tensor& strided, const at::Tensor& sparse);

// The position of each of `wanted` in `sorted`, and whether it is there. `sorted` isn't empty.
struct Found {
  at::Tensor position, is_there;
};
Found find_in(const at::Tensor& sorted, const at::Tensor& wanted);

// Returns values (nnz, …) where `chosen` (nnz) is true, and 0 elsewhere.
at::Tensor where_chosen(const at::Tensor& chosen, const at::Tensor& values);

// Returns (n, dense…): the sums of the values at each of n places. Bools are joined by or, 16-bit floats summed in 32
// bits.
at::Tensor summed_at(const at::Tensor& places, const at::Tensor& values, int64_t n);

// Returns a COO tensor with the places of `pattern` and these values (nnz, dense…).
at::Tensor with_values(const at::Tensor& pattern, const at::Tensor& values);

// Writes a strided result to `out`, and resizes it. Returns `out`.
at::Tensor& written(at::Tensor& out, const at::Tensor& result);

// Turns `sparse` into a COO tensor of `sizes` with these indices and values.
void become(const at::Tensor& sparse, c10::IntArrayRef sizes, const at::Tensor& indices, const at::Tensor& values,
            bool is_coalesced);

// Returns the elements (nnz), or blocks (nnz, height, width) like `parts.values`, in the dtype of `matrix`, which has
// two dimensions.
at::Tensor elements_at(const at::Tensor& matrix, const Parts& parts, c10::Layout layout);

// Returns whether both are known to have the same values. Returns false if that takes long to decide.
bool are_same(const at::Tensor& a, const at::Tensor& b);

// Sparse matrices made of others. Their number of elements is data, and is read (Note [Data-dependent sizes]).

// Expands `counts` (n): item i appears counts[i] times, in order. `of` is the item's index, `within` the number of
// the appearance. Both have the rounded count; entries beyond the count are false in `is_one`, with the indices of
// some real item.
struct Spread {
  at::Tensor of, within, is_one;
  int64_t count = 0;
};
// `n` must not be 0. Reads the count, unless `size` is given as an upper bound; then `count` stays 0.
Spread spread(const at::Tensor& counts, std::optional<int64_t> size = std::nullopt);

// Returns a CSR matrix with the elements of a coalesced COO one, and indices of that dtype.
at::Tensor csr_of(const at::Tensor& coalesced, c10::ScalarType indices);
// Returns a compressed matrix of these parts, like PyTorch makes new ones: with its own 64-bit indices, whatever the
// parts have.
at::Tensor with_own_places(const Parts& parts, c10::IntArrayRef sizes, c10::Layout layout);
// Returns a COO matrix with the elements of a CSR or CSC one.
at::Tensor coo_of(const at::Tensor& compressed);

// Gives the CSR matrix `out` the elements of `result`. Returns `out`.
at::Tensor& give(const at::Tensor& result, at::Tensor& out);

// Returns the product of two sparse matrices, COO or compressed without blocks, as coalesced COO.
at::Tensor product_of_sparse(const at::Tensor& a, const at::Tensor& b);

}  // namespace tpjrt::device
