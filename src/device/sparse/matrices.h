// Sparse matrices made of others: whose number of elements is data, and is read (Note [Sizes of data]).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "device/sparse/product.h"

namespace tpjrt::device {

// Of each of `counts` (n) so many, one after another: `of` says whose, `within` which of these. Both are of the count rounded up; what is
// behind the count is false in `is_one`, and whose and which are of some that there are.
struct Spread {
  at::Tensor of, within, is_one;
  int64_t count = 0;
};
// `n` isn't 0. Reads the count, but where a size is given that it is not above; `count` stays 0 then.
Spread spread(const at::Tensor& counts, std::optional<int64_t> size = std::nullopt);

// A CSR matrix of a coalesced COO one's elements, with indices of that dtype.
at::Tensor csr_of(const at::Tensor& coalesced, c10::ScalarType indices);
// A compressed matrix of these values, as PyTorch makes new ones: its indices are its own, of 64 bits, whatever the parts have.
at::Tensor with_own_places(const Parts& parts, c10::IntArrayRef sizes, c10::Layout layout);
// A COO matrix of a CSR or CSC one's elements.
at::Tensor coo_of(const at::Tensor& compressed);

// Makes the CSR matrix `out` one with the elements of `result`. Gives `out`.
at::Tensor& give(const at::Tensor& result, at::Tensor& out);

// The product of two sparse matrices, COO or compressed without blocks: coalesced COO.
at::Tensor product_of_sparse(const at::Tensor& a, const at::Tensor& b);

}  // namespace tpjrt::device
