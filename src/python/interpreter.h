// What the core asks of the Python interpreter: user locations, decompositions, plugins, and to let go of the GIL.
#pragma once

#include <pybind11/pybind11.h>

namespace tpjrt::python {

void install_interpreter();
// plugins() -> list of (name, path), best first. decompose(op_name, overload, args, kwargs) -> results or None.
void set_python_sources(pybind11::function plugins, pybind11::function decompose);

}  // namespace tpjrt::python
