// Bindings for torch_pjrt.explain().
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace tpjrt::python {

void bind_run_log(pybind11::module_& m);

}  // namespace tpjrt::python
