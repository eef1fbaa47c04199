// Bindings for programs that are half ours: traces for another compiler, its functions in our graphs, its memory.
#pragma once

#include <pybind11/pybind11.h>

namespace tpjrt::python {
void bind_foreign(pybind11::module_& m);
}
