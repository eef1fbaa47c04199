// The core's interface to the Python interpreter: user locations, decompositions, plugins, and releasing the GIL.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tpjrt::python {

void install_interpreter();
// Prepares for the end of the interpreter: any other thread that comes out of the engine stops there, for ever.
void stop_other_threads();
// plugins() -> list of (name, path), best first. decompose(op_name, overload, args, kwargs) -> results or
// NotImplemented.
using PluginsSource = pybind11::typing::Callable<std::vector<std::pair<std::string, std::string>>()>;
using DecomposeSource = pybind11::typing::Callable<pybind11::object(pybind11::ellipsis)>;
void set_python_sources(PluginsSource plugins, DecomposeSource decompose);

// truth(traced condition) -> the side with which a branch continues, or None (device/services/traces.h).
using TruthSource = pybind11::typing::Callable<std::optional<bool>(at::Tensor)>;
void set_truth_source(TruthSource truth);

// Callbacks of a framework that is tracing around torch code. value_needed(placeholder's address, cause) ->
// the error's text, or "". before_write(sealed tensor, op) raises, or lifts the seal.
using ValueNeeded = pybind11::typing::Callable<std::string(pybind11::int_, std::string)>;
using BeforeWrite = pybind11::typing::Callable<void(at::Tensor, std::string)>;
void set_foreign_trace(ValueNeeded value_needed, BeforeWrite before_write);

}  // namespace tpjrt::python
