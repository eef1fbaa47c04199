// Bindings of the composites that are asked for.
#pragma once

#include <pybind11/pybind11.h>

namespace tpjrt::python {

void bind_composites(pybind11::module& m);

}  // namespace tpjrt::python
