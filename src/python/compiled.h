// Bindings of traced functions (engine/compiled_call/compiled_graph.h).
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <memory>
#include <span>
#include <vector>

#include "engine/compiled_call/compiled_graph.h"

namespace tpjrt::python {

// The results of a traced function: tensors, and constants that are the same in every call.
struct Program {
  std::shared_ptr<engine::CompiledGraph> graph;
  std::vector<pybind11::object> constants;  // null: the next tensor
};

using Objects = pybind11::typing::Tuple<pybind11::object, pybind11::ellipsis>;

// Converts a tensor, a number or None to an argument of a call. A tensor is borrowed.
engine::Given given_of(PyObject* object);

// Returns whether there is no memory to run a program on: PyTorch is tracing (a FakeTensorMode, make_fx), or an
// argument is a fake tensor or otherwise intercepts its operations.
bool has_no_values(std::span<PyObject* const> arguments);
bool has_no_values(const at::Tensor& tensor);
bool is_traced_by_pytorch();

void bind_compiled(pybind11::module_& m);
// Binds traces as texts for files, and programs in files (exported.cpp).
void bind_exported(pybind11::module_& m);

}  // namespace tpjrt::python
