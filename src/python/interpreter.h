// What the core asks of the Python interpreter: user locations, decompositions, plugins, and to let go of the GIL.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <string>
#include <utility>
#include <vector>

namespace tpjrt::python {

void install_interpreter();
// plugins() -> list of (name, path), best first. decompose(op_name, overload, args, kwargs) -> results or NotImplemented.
using PluginsSource = pybind11::typing::Callable<std::vector<std::pair<std::string, std::string>>()>;
using DecomposeSource = pybind11::typing::Callable<pybind11::object(pybind11::ellipsis)>;
void set_python_sources(PluginsSource plugins, DecomposeSource decompose);

}  // namespace tpjrt::python
