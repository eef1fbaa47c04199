// The elements of a strided matrix where a sparse one has some (Note [Elements that are looked at]).
#pragma once

#include "device/sparse/product.h"

namespace tpjrt::device {

// (nnz), or of blocks (nnz, height, width) as `parts.values` has them, in the dtype of `matrix`, which has two dimensions.
at::Tensor elements_at(const at::Tensor& matrix, const Parts& parts, c10::Layout layout);

// Are both known to have the same values, whatever these are? False where that takes long to see.
bool are_same(const at::Tensor& a, const at::Tensor& b);

}  // namespace tpjrt::device
