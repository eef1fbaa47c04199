// ExportedTrace: the program that Python writes into a file. FileProgram: an opened one.
#include <pybind11/stl.h>
#include <pybind11/typing.h>
#include <torch/csrc/utils/pybind.h>

#include "engine/compiled_call/export_trace.h"
#include "engine/compiled_call/file_program.h"
#include "engine/session/session.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace tpjrt::python {

namespace {

using Options = std::map<std::string, std::variant<std::string, bool, int64_t, double>>;

Options options_of(const engine::ExportedText& exported) { return exported.options.overrides; }

}  // namespace

void bind_exported(py::module_& m) {
  using engine::ExportedText;
  using engine::ExportedTrace;
  using engine::ProgramAssertion;
  py::class_<ProgramAssertion>(
      m, "Assertion",
      "A runtime assertion of an exported program: integers in its data must be at least ``low`` and at most ``high``.")
      .def_readonly("low", &ProgramAssertion::low, "The least value allowed.")
      .def_readonly("high", &ProgramAssertion::high, "The greatest value allowed.")
      .def_readonly("message", &ProgramAssertion::message,
                    "The error's message. ``{}`` stands for the value, ``{index}`` for its index.")
      .def_property_readonly(
          "index_error", [](const ProgramAssertion& r) { return r.raises == ops::Raises::kIndexError; },
          "Whether an IndexError is raised; otherwise a RuntimeError.")
      .def_readonly("op", &ProgramAssertion::op, "The ATen op that makes the assertion.");
  py::class_<ExportedText>(m, "ExportedText", "The StableHLO text of an exported program for one platform.")
      .def_readonly("platform", &ExportedText::platform,
                    "The platform's name, such as \"cpu\"; \"any\" for all others.")
      .def_readonly("text", &ExportedText::text, "The module in StableHLO's text form.")
      .def_readonly("draws", &ExportedText::draws,
                    "Whether the program draws random numbers, and so takes their state.")
      .def_readonly("assertions", &ExportedText::assertions, "The runtime assertions, in the order of their results.")
      .def_property_readonly(
          "composites",
          [](const ExportedText& e) {
            std::vector<std::tuple<std::string, std::string, uint32_t>> list;
            for (const auto& [key, count] : e.composites) list.emplace_back(key.first, key.second, count);
            return list;
          },
          "Each composite's name, its implementation and its count.")
      .def_property_readonly("options", &options_of, "Options of XLA that differ from their defaults, by name.")
      .def_property_readonly(
          "hints", [](const ExportedText& e) { return e.options.hints; }, "Options that a plugin may ignore.");
  py::class_<ExportedTrace>(m, "ExportedTrace",
                            "An exported trace: a text for each platform, and the meaning of its parameters.")
      .def_readonly("texts", &ExportedTrace::texts, "One text for each platform.")
      .def_readonly("parameters", &ExportedTrace::parameters,
                    "Indices of the trace's arguments that the program takes.")
      .def_readonly("constants", &ExportedTrace::constants, "Tensors that the program takes after its arguments.")
      .def_readonly("updated", &ExportedTrace::updated, "Indices of the arguments whose new values are results.");
  m.def(
      "export_trace",
      [](const engine::Trace& trace, const std::vector<at::Tensor>& results) {
        return engine::export_trace(engine::Session::instance(), trace, results);
      },
      py::arg("trace"), py::arg("results"),
      "Returns a trace with these results as programs in text form. Nothing is compiled.");
  using engine::FileProgram;
  py::class_<FileProgram>(m, "FileProgram", "A program that was opened from a file. Its state is on one pjrt device.")
      .def(py::init([](const std::string& path, const std::string& weights, const std::vector<std::string>& kernels,
                       int device) {
             torch_pjrt::Options options;
             options.weights = weights;
             options.kernels = kernels;
             options.device = device;
             return std::make_unique<FileProgram>(engine::Session::instance(), path, options);
           }),
           py::arg("path"), py::arg("weights"), py::arg("kernels"), py::arg("device"),
           "Opens the file at ``path``. ``weights``: a file of separate weights, or \"\". ``kernels``: folders of "
           "kernel libraries. ``device``: a pjrt index. Raises RuntimeError if the file is damaged.")
      .def("call", &FileProgram::call, py::arg("entry"), py::arg("arguments"), py::arg("on_device"),
           "Calls an entry with tensors in the order of its signature. Returns its results on the device if "
           "``on_device``, otherwise on the CPU. Raises RuntimeError if dtypes or sizes differ from the signature.")
      .def(
          "prepare", [](const FileProgram& f, const std::string& entry) { f.program().prepare(entry); },
          "Compiles an entry, which the first call would do otherwise.")
      .def("state", &FileProgram::state, py::arg("name"), "Returns a copy of a piece of state, on the CPU.")
      .def("set_state", &FileProgram::set_state, py::arg("name"), py::arg("value"),
           "Sets a piece of state to the values of a tensor of its dtype and sizes. Raises RuntimeError for frozen "
           "state.")
      .def(
          "save_state", [](const FileProgram& f, const std::string& path) { f.program().save_state(path); },
          "Writes the state to a safetensors file.")
      .def(
          "load_state",
          [](const FileProgram& f, const std::string& path, bool partial) { f.program().load_state(path, partial); },
          "Reads the state from a safetensors file. If ``arg1``, the file may lack some of it.")
      .def("describe", [](const FileProgram& f) { return f.program().describe(); }, "Returns the signature as text.");
}

}  // namespace tpjrt::python
