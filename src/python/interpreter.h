// What the core asks of the Python interpreter: user locations, decompositions, plugins, and to let go of the GIL.
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
// The interpreter is about to end: a thread but this one that comes out of the engine stops there, for ever.
void stop_other_threads();
// plugins() -> list of (name, path), best first. decompose(op_name, overload, args, kwargs) -> results or NotImplemented.
using PluginsSource = pybind11::typing::Callable<std::vector<std::pair<std::string, std::string>>()>;
using DecomposeSource = pybind11::typing::Callable<pybind11::object(pybind11::ellipsis)>;
void set_python_sources(PluginsSource plugins, DecomposeSource decompose);

// truth(condition that is traced) -> what the branch on it goes on with, or None (device/services/traced_assertions.h).
using TruthSource = pybind11::typing::Callable<std::optional<bool>(at::Tensor)>;
void set_truth_source(TruthSource truth);

// What the core asks of a framework whose traces torch code is in the middle of. value_needed(placeholder's address, cause)
// -> what the error says, or "". before_write(tensor that is sealed, op) raises, or lifts the seal.
using ValueNeeded = pybind11::typing::Callable<std::string(pybind11::int_, std::string)>;
using BeforeWrite = pybind11::typing::Callable<void(at::Tensor, std::string)>;
void set_foreign_trace(ValueNeeded value_needed, BeforeWrite before_write);

}  // namespace tpjrt::python
