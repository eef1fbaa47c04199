// Bindings of placeholders, hand_over, ForeignFunction and shared memory.
#include <pybind11/stl.h>
#include <pybind11/typing.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/utils/pybind.h>

#include "device/host/shared_memory.h"
#include "device/tensor/seal.h"
#include "engine/lower/foreign_module.h"
#include "graph/type.h"
#include "python/bindings.h"

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
  py::class_<engine::Placeholder>(m, "Placeholder",
                                  "The identity of a tensor that has no value, in a trace of another framework.")
      .def(py::init<const at::Tensor&>(), py::arg("tensor"), "Takes a tensor that has no value.")
      .def_property_readonly("address", &engine::Placeholder::address,
                             "A number that identifies the placeholder in this process.")
      .def("tensor", &engine::Placeholder::tensor, "Returns another tensor that stands for the same value.")
      .def_property_readonly("is_alive", &engine::Placeholder::is_alive,
                             "Whether a tensor or a pending call still depends on it.");
  m.def("placeholders_below", &engine::placeholders_below, py::arg("tensors"),
        "Returns the addresses of the placeholders that these tensors depend on.");
  m.def(
      "hand_over",
      [](const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& results, std::optional<size_t> key) {
        engine::HandedOver module = engine::hand_over(inputs, results, key);
        return std::make_pair(module.text, module.constants);
      },
      py::arg("inputs"), py::arg("results"), py::arg("key") = std::nullopt,
      "Returns a trace as StableHLO: the text, and the constants that ``@main`` takes after the inputs. ``key``: the "
      "index of the input that is the random key.");
  py::class_<engine::ForeignFunction>(m, "ForeignFunction",
                                      "A function given as StableHLO text, whose calls are recorded as nodes.")
      .def(py::init([](const std::string& label, std::string name, std::string functions,
                       const std::vector<DtypeAndSizes>& operands, const std::vector<DtypeAndSizes>& results,
                       int device) {
             return engine::ForeignFunction(label, std::move(name), std::move(functions), contiguous_types(operands),
                                            contiguous_types(results), static_cast<c10::DeviceIndex>(device));
           }),
           py::arg("label"), py::arg("name"), py::arg("functions"), py::arg("operands"), py::arg("results"),
           py::arg("device"),
           "``functions`` is StableHLO text that defines ``name``. ``operands`` and ``results`` are their dtypes and "
           "sizes; all arrays are row-major. ``label`` names the function in errors.")
      .def("__call__", &engine::ForeignFunction::call, py::arg("operands"),
           "Records a call. Takes pjrt tensors of the operands' dtypes and sizes, and returns the results as tensors.");
  m.def("set_foreign_trace", &set_foreign_trace, py::arg("value_needed"), py::arg("before_write"),
        "Sets the callbacks for torch code inside another framework's trace. ``value_needed(address, cause)`` returns "
        "the "
        "error to raise when a placeholder's value is read, or \"\". ``before_write(tensor, op)`` raises if the tensor "
        "may "
        "not be written.");
  m.def("rests_on", &engine::rests_on, py::arg("tensor"), py::arg("others"),
        "Returns whether ``tensor`` was computed from one of the others.");
  py::class_<device::Seal, std::shared_ptr<device::Seal>>(
      m, "Seal",
      "The set of tensors that had a value when it was made. While it is set, writes to them raise RuntimeError.")
      .def(py::init<>(), "Makes a seal over every tensor that has a value now.")
      .def("covers", &device::Seal::covers, py::arg("tensor"),
           "Returns whether the tensor had a value when the seal was made.");
  using Seal = std::optional<std::shared_ptr<device::Seal>>;
  m.def(
      "seal", [] { return device::seal() ? Seal(device::seal()) : std::nullopt; },
      "Returns this thread's seal, or None.");
  m.def(
      "set_seal", [](const Seal& seal) { device::set_seal(seal.value_or(nullptr)); }, py::arg("seal"),
      "Sets this thread's seal; None removes it.");
  m.def("write_protected", &device::write_protected,
        "Returns a tensor over the same memory. A write to it copies the memory first and is counted in "
        "``metrics()[\"copies_on_write\"]``. Returns None if this PyTorch has no such hook.");
  m.def("snapshot", &device::snapshot,
        "Returns a tensor over the same memory, which keeps its values when the given one is written to. Returns None "
        "if the tensor doesn't own its memory or this PyTorch has no such hook.");
}

}  // namespace tpjrt::python
