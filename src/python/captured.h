// Calling a captured function: a program whose first arguments are state that is found where it lives at every call.
#pragma once

#include <pybind11/pybind11.h>

namespace tpjrt::python {

void bind_captured(pybind11::module_& m);

}  // namespace tpjrt::python
