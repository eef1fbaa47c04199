// Bindings for programs shared with another framework: traces for another compiler, its functions in this project's
// graphs, its memory.
#pragma once

#include <pybind11/pybind11.h>

namespace tpjrt::python {
void bind_foreign(pybind11::module_& m);
}
