// Products of a sparse matrix's parts (Note [Sparse products]).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace tpjrt::device {

// What a sparse matrix is made of: rows and columns of COO, row ends and columns of CSR and BSR, column ends and rows of CSC and BSC.
struct Parts {
  at::Tensor compressed, plain, values;
};
Parts parts_of(const at::Tensor& sparse);
// "csr" for kSparseCsr, and back.
const char* name_of(c10::Layout layout);
c10::Layout layout_of(c10::string_view name);

// Rows and columns (of blocks) of the elements.
std::pair<at::Tensor, at::Tensor> rows_and_columns(const Parts& parts, c10::Layout layout);

// The sparse matrix of so many rows times a strided one, (rows, n).
at::Tensor sparse_mm(const Parts& parts, const at::Tensor& dense, c10::Layout layout, int64_t rows);
// mat1 @ mat2 where the sparse matrix has elements: (nnz).
at::Tensor sparse_sampled_mm(const Parts& parts, const at::Tensor& mat1, const at::Tensor& mat2, c10::Layout layout);

// The kernel of such an op on the device: the call goes into the graph whole. The composite kernel would be taken in the recorder's place.
void record_whole(const c10::OperatorHandle& op, torch::jit::Stack* stack);
// The op of this project that is called so, of the signature that the caller knows.
template <class Result, class... Arguments>
Result call_own(const char* name, Arguments... arguments) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Result(Arguments...)>().call(
      std::forward<Arguments>(arguments)...);
}

}  // namespace tpjrt::device
