// Bindings of traced functions (engine/compiled_graph.h).
#pragma once

#include <pybind11/pybind11.h>

namespace tpjrt::python {

void bind_compiled(pybind11::module_& m);

}  // namespace tpjrt::python
