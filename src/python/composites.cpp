// Bindings of the composites that are asked for.
#include <pybind11/stl.h>
#include <pybind11/typing.h>
#include <torch/csrc/utils/pybind.h>

#include "engine/lower/emit_composite.h"
#include "engine/lower/group.h"
#include "graph/composites.h"
#include "hlo/type.h"
#include "kernels/table.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace tpjrt::python {

void bind_composites(py::module& m) {
  py::class_<graph::Composites, std::unique_ptr<graph::Composites, py::nodelete>>(
      m, "Composites", "A set of composites that programs keep whole. Equal sets are the same object.")
      .def_readonly("all", &graph::Composites::all, "Whether every composite is kept.")
      .def_readonly("names", &graph::Composites::names, "Names of the composites that are kept.")
      .def_readonly("renamed", &graph::Composites::renamed,
                    "The name that each composite has in a program's text, where it differs.")
      .def("contains", &graph::Composites::contains, "Returns whether the composite of this name is kept.");
  m.def(
      "make_composites",
      [](bool all, std::set<std::string> names, std::map<std::string, std::string> renamed) {
        graph::Composites asked;
        asked.all = all;
        asked.names = std::move(names);
        asked.renamed = std::move(renamed);
        return graph::intern(asked);
      },
      py::return_value_policy::reference,
      "Returns the set with these names (or all composites) and these names in programs; None for the empty set.");
  m.def(
      "asked_composites", [] { return graph::asked_composites().load(); }, py::return_value_policy::reference,
      "Returns the composites that are kept now, including those of registered kernels; None if there are none.");
  m.def("composites_switch", &kernels::composites_switch, py::return_value_policy::reference,
        "Returns the set that was last given to set_composites_switch.");
  m.def("set_composites_switch", &kernels::set_composites_switch, py::arg("asked"),
        "Sets which composites are kept in programs that are recorded from now on.");
  m.def("default_composites", &kernels::default_composites, py::return_value_policy::reference,
        "Returns the composites that a registered kernel can replace.");
  m.def(
      "attribute", [](bool value) { return hlo::attribute(value); }, py::arg("value").noconvert(),
      "Returns a value as an attribute in MLIR syntax.");
  m.def(
      "attribute", [](int64_t value) { return hlo::attribute(value); }, py::arg("value").noconvert(),
      "Returns a value as an attribute in MLIR syntax.");
  m.def(
      "attribute", [](double value) { return hlo::attribute(value); }, py::arg("value").noconvert(),
      "Returns a value as an attribute in MLIR syntax.");
  m.def(
      "attribute", [](const std::string& value) { return hlo::attribute(value); },
      "Returns a value as an attribute in MLIR syntax.");
  m.def(
      "attribute", [](const std::vector<bool>& values) { return hlo::attribute(values); }, py::arg("value").noconvert(),
      "Returns a value as an attribute in MLIR syntax.");
  m.def(
      "attribute", [](const std::vector<int64_t>& values) { return hlo::attribute(hlo::Dims(values)); },
      py::arg("value").noconvert(), "Returns a value as an attribute in MLIR syntax.");
  m.def(
      "attribute", [](const std::vector<double>& values) { return hlo::attribute(values); },
      py::arg("value").noconvert(), "Returns a value as an attribute in MLIR syntax.");
  m.def(
      "attribute", [](const std::vector<std::string>& values) { return hlo::attribute(values); },
      "Returns a value as an attribute in MLIR syntax.");
  m.def("longer", &hlo::longer, py::arg("list"), py::arg("values"),
        "Appends strings to a list of strings in MLIR syntax.");
  py::class_<engine::Group>(m, "Group", "A function that is traced to become one node: a composite.")
      .def(py::init<const std::vector<at::Tensor>&>(), py::arg("operands"),
           "Begins a group with a placeholder for each operand.")
      .def_property_readonly("placeholders", &engine::Group::placeholders,
                             "Tensors that stand for the operands inside the group.")
      .def("written", &engine::Group::written,
           "Returns the indices of the operands that were written to so far; -1 stands for any other tensor.")
      .def("record", &engine::Group::record, py::arg("name"), py::arg("attributes"), py::arg("results"),
           "Records the group as one node with this composite name and these attributes in MLIR syntax. Returns its "
           "results. Raises RuntimeError if the function draws random numbers.")
      .def("end", &engine::Group::end, "Ends the group and restores the previous values of tensors that it wrote to.");
  m.def("composite_names", &engine::composite_names, "Returns the names of all composites that are ATen ops.");
}

}  // namespace tpjrt::python
