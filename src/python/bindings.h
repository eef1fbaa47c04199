// Functions that add bindings to the module, one for each subject.
#pragma once

#include <pybind11/pybind11.h>
#include <torch/csrc/utils/pybind.h>

namespace tpjrt::python {

void bind_bench(pybind11::module_& m);

void bind_captured(pybind11::module_& m);

void bind_composites(pybind11::module& m);

void bind_foreign(pybind11::module_& m);

void bind_kernels(pybind11::module& m);

void install_profiler();

void bind_run_log(pybind11::module_& m);

}  // namespace tpjrt::python
