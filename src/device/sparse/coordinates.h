// What the kernels of COO tensors ask of indices: all in ops on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace tpjrt::device {

// The number of each element's place among all places of the sparse dimensions, row-major: int64, (nnz).
at::Tensor flat_places(const at::Tensor& indices, c10::IntArrayRef sizes);
at::Tensor flat_places(const at::Tensor& sparse);
// The same of a matrix of so many columns.
at::Tensor flat_places(const at::Tensor& row, const at::Tensor& column, int64_t columns);

// How many places the sparse dimensions have.
int64_t places_of(const at::Tensor& sparse);
// A strided tensor of the sizes of `sparse` as (places, dense…).
at::Tensor by_place(const at::Tensor& strided, const at::Tensor& sparse);

// Of each of `wanted`, where in `sorted` it is, and whether it is there at all. `sorted` isn't empty.
struct Found {
  at::Tensor position, is_there;
};
Found find_in(const at::Tensor& sorted, const at::Tensor& wanted);

// values (nnz, …) where `chosen` (nnz) is true, elsewhere 0.
at::Tensor where_chosen(const at::Tensor& chosen, const at::Tensor& values);

// (n, dense…): the sums of the values that are at each of n places. Bools are joined by or, floats of 16 bits summed in 32.
at::Tensor summed_at(const at::Tensor& places, const at::Tensor& values, int64_t n);

// A COO tensor with the places of `pattern`, and with these values (nnz, dense…) there.
at::Tensor with_values(const at::Tensor& pattern, const at::Tensor& values);

// Writes a strided result to `out`, which gets its sizes. Gives `out`.
at::Tensor& written(at::Tensor& out, const at::Tensor& result);

// Makes a COO tensor of `sizes` out of them, in place of what it was.
void become(const at::Tensor& sparse, c10::IntArrayRef sizes, const at::Tensor& indices, const at::Tensor& values,
            bool is_coalesced);

}  // namespace tpjrt::device
