// Sparse matrices made of others. Their number of elements is data, and is read (Note [Data-dependent sizes]).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "device/sparse/product.h"

namespace tpjrt::device {

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
