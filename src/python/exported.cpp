// ExportedTrace: the program that Python writes into a file. FileProgram: an opened one.
#include <pybind11/stl.h>
#include <pybind11/typing.h>
#include <torch/csrc/utils/pybind.h>

#include "engine/call/export_trace.h"
#include "engine/call/file_program.h"
#include "engine/session/session.h"
#include "python/compiled.h"

namespace py = pybind11;

namespace tpjrt::python {
namespace {

using Options = std::map<std::string, std::variant<std::string, bool, int64_t, double>>;

Options options_of(const engine::ExportedText& exported) { return exported.options.overrides; }

}  // namespace

void bind_exported(py::module_& m) {
  using engine::ExportedText;
  using engine::ExportedTrace;
  using engine::ProgramRequirement;
  py::class_<ProgramRequirement>(m, "Requirement", "what a program requires of its data")
      .def_readonly("low", &ProgramRequirement::low)
      .def_readonly("high", &ProgramRequirement::high)
      .def_readonly("message", &ProgramRequirement::message)
      .def_property_readonly("index_error",
                             [](const ProgramRequirement& r) { return r.raises == ops::Raises::kIndexError; })
      .def_readonly("op", &ProgramRequirement::op);
  py::class_<ExportedText>(m, "ExportedText", "a program that leaves this process, as text")
      .def_readonly("platform", &ExportedText::platform)
      .def_readonly("text", &ExportedText::text)
      .def_readonly("draws", &ExportedText::draws)
      .def_readonly("requirements", &ExportedText::requirements)
      .def_property_readonly("composites",
                             [](const ExportedText& e) {
                               std::vector<std::tuple<std::string, std::string, uint32_t>> list;
                               for (const auto& [key, count] : e.composites)
                                 list.emplace_back(key.first, key.second, count);
                               return list;
                             })
      .def_property_readonly("options", &options_of)
      .def_property_readonly("hints", [](const ExportedText& e) { return e.options.hints; });
  py::class_<ExportedTrace>(m, "ExportedTrace", "a trace as a program that leaves this process")
      .def_readonly("texts", &ExportedTrace::texts)
      .def_readonly("parameters", &ExportedTrace::parameters)
      .def_readonly("constants", &ExportedTrace::constants)
      .def_readonly("updated", &ExportedTrace::updated);
  m.def(
      "export_trace",
      [](const engine::Trace& trace, const std::vector<at::Tensor>& results) {
        return engine::export_trace(engine::Session::instance(), trace, results);
      },
      py::arg("trace"), py::arg("results"));
  using engine::FileProgram;
  py::class_<FileProgram>(m, "FileProgram", "a program in a file")
      .def(py::init([](const std::string& path, const std::string& weights, const std::vector<std::string>& kernels,
                       int device) {
             torch_pjrt::Options options;
             options.weights = weights;
             options.kernels = kernels;
             options.device = device;
             return std::make_unique<FileProgram>(engine::Session::instance(), path, options);
           }),
           py::arg("path"), py::arg("weights"), py::arg("kernels"), py::arg("device"))
      .def("call", &FileProgram::call, py::arg("entry"), py::arg("arguments"), py::arg("on_device"))
      .def("prepare", [](const FileProgram& f, const std::string& entry) { f.program().prepare(entry); })
      .def("state", &FileProgram::state, py::arg("name"))
      .def("set_state", &FileProgram::set_state, py::arg("name"), py::arg("value"))
      .def("save_state", [](const FileProgram& f, const std::string& path) { f.program().save_state(path); })
      .def("load_state",
           [](const FileProgram& f, const std::string& path, bool partial) { f.program().load_state(path, partial); })
      .def("describe", [](const FileProgram& f) { return f.program().describe(); });
}

}  // namespace tpjrt::python
