// The functions that add bindings to the module, traced functions, and the interface of the core to the interpreter.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>
#include <pybind11/typing.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/compiled_call/compiled_graph.h"

namespace tpjrt::python {

void bind_bench(pybind11::module_& m);

void bind_captured(pybind11::module_& m);

void bind_composites(pybind11::module& m);

void bind_foreign(pybind11::module_& m);

void bind_kernels(pybind11::module& m);

void install_profiler();

void bind_run_log(pybind11::module_& m);

// Bindings of traced functions (engine/compiled_call/compiled_graph.h).

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

// The core's interface to the Python interpreter: user locations, decompositions, plugins, and releasing the GIL.

void install_interpreter();
// Prepares for the end of the interpreter: any other thread that comes out of the engine stops there, for ever.
void stop_other_threads();
// plugins() -> list of (name, path), best first. decompose(op_name, overload, args, kwargs) -> results or
// NotImplemented.
using PluginsSource = pybind11::typing::Callable<std::vector<std::pair<std::string, std::string>>()>;
using DecomposeSource = pybind11::typing::Callable<pybind11::object(pybind11::ellipsis)>;
void set_python_sources(PluginsSource plugins, DecomposeSource decompose);

// truth(traced condition) -> the side with which a branch continues, or None (device/services/trace_assertions.h).
using TruthSource = pybind11::typing::Callable<std::optional<bool>(at::Tensor)>;
void set_truth_source(TruthSource truth);

// Callbacks of a framework that is tracing around torch code. value_needed(placeholder's address, cause) ->
// the error's text, or "". before_write(sealed tensor, op) raises, or lifts the seal.
using ValueNeeded = pybind11::typing::Callable<std::string(pybind11::int_, std::string)>;
using BeforeWrite = pybind11::typing::Callable<void(at::Tensor, std::string)>;
void set_foreign_trace(ValueNeeded value_needed, BeforeWrite before_write);

}  // namespace tpjrt::python
