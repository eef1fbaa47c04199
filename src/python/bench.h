// Measurements that must be made in C++, and the bare PJRT runner for comparison.
#pragma once

#include <pybind11/pybind11.h>

namespace tpjrt::python {
void bind_bench(pybind11::module_& m);
}
