// The elements of a strided matrix where a sparse one has some (Note [Elements that are looked at]).
#pragma once

#include "device/sparse/product.h"

namespace tpjrt::device {

// Returns the elements (nnz), or blocks (nnz, height, width) like `parts.values`, in the dtype of `matrix`, which has
// two dimensions.
at::Tensor elements_at(const at::Tensor& matrix, const Parts& parts, c10::Layout layout);

// Returns whether both are known to have the same values. Returns false if that takes long to decide.
bool are_same(const at::Tensor& a, const at::Tensor& b);

}  // namespace tpjrt::device
