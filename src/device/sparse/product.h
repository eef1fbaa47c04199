// Products with the parts of a sparse matrix (Note [Sparse products]).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace tpjrt::device {

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

}  // namespace tpjrt::device
