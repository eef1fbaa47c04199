// Index helpers of the COO kernels, all in ops on the device.
//
// The elements of a strided matrix where a sparse one has some (Note [Elements that are looked at]).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "device/sparse/product.h"

namespace tpjrt::device {

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

}  // namespace tpjrt::device
