// Bindings of kernels, which Python registers and which ask Python for their lowering.
#pragma once

#include <pybind11/pybind11.h>

namespace tpjrt::python {

void bind_kernels(pybind11::module& m);

}  // namespace tpjrt::python
