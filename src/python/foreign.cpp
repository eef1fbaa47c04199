// Bindings of placeholders, hand_over, ForeignFunction and shared memory.
#include "python/foreign.h"

#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/utils/pybind.h>

#include "device/host/shared_memory.h"
#include "device/tensor/seal.h"
#include "engine/lower/foreign_call.h"
#include "engine/lower/handed_over.h"
#include "python/interpreter.h"

namespace py = pybind11;

namespace tpjrt::python {
namespace {

using DtypeAndSizes = std::pair<py::handle, std::vector<int64_t>>;  // dtype, sizes

std::vector<graph::TypePtr> contiguous_types(const std::vector<DtypeAndSizes>& forms) {
  std::vector<graph::TypePtr> types;
  for (const auto& [dtype, sizes] : forms) {
    TORCH_CHECK_TYPE(THPDtype_Check(dtype.ptr()), "expected a torch.dtype");
    types.push_back(graph::intern_contiguous(reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type, sizes));
  }
  return types;
}

}  // namespace

void bind_foreign(py::module_& m) {
  py::class_<engine::Placeholder>(m, "Placeholder", "what a tensor that has no value stands for")
      .def(py::init<const at::Tensor&>(), py::arg("tensor"))
      .def_property_readonly("address", &engine::Placeholder::address)
      .def("tensor", &engine::Placeholder::tensor, "another tensor that stands for it")
      .def_property_readonly("is_alive", &engine::Placeholder::is_alive, "does anything rest on it?");
  m.def("placeholders_below", &engine::placeholders_below, py::arg("tensors"),
        "the addresses of the placeholders that the tensors rest on");
  m.def(
      "hand_over",
      [](const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& results, std::optional<size_t> key) {
        engine::HandedOver module = engine::hand_over(inputs, results, key);
        return std::make_pair(module.text, module.constants);
      },
      py::arg("inputs"), py::arg("results"), py::arg("key") = std::nullopt,
      "a trace as StableHLO: the text, and the constants that @main takes after the inputs");
  py::class_<engine::ForeignFunction>(m, "ForeignFunction", "a function in StableHLO, to be called by nodes")
      .def(py::init([](const std::string& label, std::string name, std::string functions,
                       const std::vector<DtypeAndSizes>& operands, const std::vector<DtypeAndSizes>& results,
                       int device) {
             return engine::ForeignFunction(label, std::move(name), std::move(functions), contiguous_types(operands),
                                            contiguous_types(results), static_cast<c10::DeviceIndex>(device));
           }),
           py::arg("label"), py::arg("name"), py::arg("functions"), py::arg("operands"), py::arg("results"),
           py::arg("device"))
      .def("__call__", &engine::ForeignFunction::call, py::arg("operands"));
  m.def("set_foreign_trace", &set_foreign_trace, py::arg("value_needed"), py::arg("before_write"),
        "who is asked where torch code is in the middle of another framework's trace");
  m.def("rests_on", &engine::rests_on, py::arg("tensor"), py::arg("others"));
  py::class_<device::Seal, std::shared_ptr<device::Seal>>(m, "Seal", "what is not to be written: what has a value now")
      .def(py::init<>())
      .def("covers", &device::Seal::covers, py::arg("tensor"));
  using Seal = std::optional<std::shared_ptr<device::Seal>>;
  m.def("seal", [] { return device::seal() ? Seal(device::seal()) : std::nullopt; });
  m.def("set_seal", [](const Seal& seal) { device::set_seal(seal.value_or(nullptr)); }, py::arg("seal"));
  m.def("write_protected", &device::write_protected,
        "a tensor over the same memory; a write copies it first, and counts it");
  m.def("snapshot", &device::snapshot, "a tensor over the same memory, as it stays when the given one is written to");
}

}  // namespace tpjrt::python
