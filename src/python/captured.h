// Calls of captured functions: programs whose state arguments are looked up in their containers at every call.
#pragma once

#include <pybind11/pybind11.h>

namespace tpjrt::python {

void bind_captured(pybind11::module_& m);

}  // namespace tpjrt::python
