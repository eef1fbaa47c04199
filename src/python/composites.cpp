// Bindings of the composites that are asked for.
#include "python/composites.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "engine/lower/emit_composite.h"
#include "engine/lower/group.h"
#include "graph/composites.h"
#include "hlo/attribute.h"
#include "kernels/table.h"

namespace py = pybind11;

namespace tpjrt::python {

void bind_composites(py::module& m) {
  py::class_<graph::Composites, std::unique_ptr<graph::Composites, py::nodelete>>(
      m, "Composites", "what composites are asked for; equal sets are one object")
      .def_readonly("all", &graph::Composites::all)
      .def_readonly("names", &graph::Composites::names)
      .def_readonly("renamed", &graph::Composites::renamed)
      .def("contains", &graph::Composites::contains);
  m.def(
      "make_composites",
      [](bool all, std::set<std::string> names, std::map<std::string, std::string> renamed) {
        graph::Composites asked;
        asked.all = all;
        asked.names = std::move(names);
        asked.renamed = std::move(renamed);
        return graph::intern(asked);
      },
      py::return_value_policy::reference, "None where they ask for none");
  m.def(
      "asked_composites", [] { return graph::asked_composites().load(); }, py::return_value_policy::reference,
      "with the kernels of now; None: none");
  m.def("composites_switch", &kernels::composites_switch, py::return_value_policy::reference,
        "what was asked for last");
  m.def("set_composites_switch", &kernels::set_composites_switch, py::arg("asked"));
  m.def("default_composites", &kernels::default_composites, py::return_value_policy::reference,
        "those that a kernel can claim");
  m.def("attribute", [](bool value) { return hlo::attribute(value); }, py::arg("value").noconvert());
  m.def("attribute", [](int64_t value) { return hlo::attribute(value); }, py::arg("value").noconvert());
  m.def("attribute", [](double value) { return hlo::attribute(value); }, py::arg("value").noconvert());
  m.def("attribute", [](const std::string& value) { return hlo::attribute(value); });
  m.def(
      "attribute", [](const std::vector<bool>& values) { return hlo::attribute(values); },
      py::arg("value").noconvert());
  m.def(
      "attribute", [](const std::vector<int64_t>& values) { return hlo::attribute(hlo::Dims(values)); },
      py::arg("value").noconvert());
  m.def(
      "attribute", [](const std::vector<double>& values) { return hlo::attribute(values); },
      py::arg("value").noconvert());
  m.def("attribute", [](const std::vector<std::string>& values) { return hlo::attribute(values); });
  m.def("longer", &hlo::longer, py::arg("list"), py::arg("values"));
  py::class_<engine::Group>(m, "Group", "a function that is traced to be one node")
      .def(py::init<const std::vector<at::Tensor>&>(), py::arg("operands"))
      .def_property_readonly("placeholders", &engine::Group::placeholders)
      .def("written", &engine::Group::written, "which operands it has written to so far; -1: another tensor")
      .def("record", &engine::Group::record, py::arg("name"), py::arg("attributes"), py::arg("results"))
      .def("end", &engine::Group::end, "gives what it has written to its values back");
  m.def("composite_names", &engine::composite_names, "those of ops");
}

}  // namespace tpjrt::python
