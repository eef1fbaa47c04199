// The run log's entries as Python dictionaries, from which python/torch_pjrt/report/report.py makes its dataclasses.
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include "engine/session/session.h"
#include "python/bindings.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace tpjrt::python {

namespace {

py::dict to_python(const engine::Description& description) {
  static constexpr const char* kKinds[] = {"tensor", "attribute", "number", "input", "pinned"};
  const auto source = [](const engine::Description::Source& s) { return py::make_tuple(s.call, s.index); };
  py::list calls, results;
  for (const auto& call : description.calls) {
    py::list fields;
    for (const auto& field : call.fields) {
      fields.append(py::make_tuple(field.name, kKinds[static_cast<size_t>(field.kind)], field.text,
                                   field.kind == engine::Description::Field::Kind::kTensor && field.text != "none"
                                       ? py::object(source(field.source))
                                       : py::none()));
    }
    calls.append(py::dict("op"_a = call.op, "file"_a = call.file, "line"_a = call.line, "fields"_a = fields));
  }
  for (const auto& result : description.results) results.append(source(result));
  py::list composites, kernels;
  for (const auto& [composite, count] : description.composites) {
    composites.append(py::make_tuple(composite.first, count, composite.second));
  }
  for (const auto& [call, count] : description.kernels) {
    kernels.append(py::make_tuple(call.first, count, call.second));
  }
  return py::dict("graph"_a = description.graph, "calls"_a = calls, "arguments"_a = description.arguments,
                  "results"_a = results, "composites"_a = composites, "kernels"_a = kernels,
                  "reused"_a = description.reused);
}

py::dict to_python(const engine::GraphRun& run) {
  py::dict entry("when"_a = run.when, "graph"_a = run.graph, "cause"_a = run.cause, "file"_a = run.where.file,
                 "line"_a = run.where.line, "nodes"_a = run.nodes, "arguments"_a = run.arguments,
                 "results"_a = run.results, "argument_bytes"_a = run.argument_bytes,
                 "result_bytes"_a = run.result_bytes, "copied_bytes"_a = run.copied_bytes,
                 "execute_seconds"_a = run.execute_seconds, "interpreted"_a = run.interpreted);
  if (run.work) {
    const engine::Work& work = *run.work;
    entry["work"] = py::dict("calls"_a = work.calls, "tensors"_a = work.tensors, "bytes"_a = work.bytes,
                             "arguments"_a = work.arguments, "ops"_a = work.ops, "repeated"_a = work.repeated);
    entry["cpu_seconds"] = run.cpu_seconds;
  }
  if (run.making) {
    entry["from_disk"] = run.making->from_disk;
    entry["compile_seconds"] = run.making->seconds;
    entry["compile_cpu_seconds"] = run.making->cpu_seconds;
    entry["description"] = to_python(run.making->description);
    entry["resembles"] = run.making->resembles ? py::object(to_python(*run.making->resembles)) : py::none();
  }
  return entry;
}

py::dict to_python(const engine::HostCall& call) {
  return py::dict("when"_a = call.when, "op"_a = call.op, "reason"_a = call.reason, "file"_a = call.where.file,
                  "line"_a = call.where.line);
}

}  // namespace

void bind_run_log(py::module_& m) {
  auto& log = engine::Session::instance().run_log;
  m.def("start_log", [&log] { log.start(); }, "Starts the log that ``explain()`` reads.");
  m.def("stop_log", [&log] { log.stop(); }, "Stops the log.");
  m.def(
      "take_log",
      [&log]() -> py::typing::List<py::typing::Dict<std::string, py::object>> {
        py::list entries;
        for (const engine::LogEntry& entry : log.take()) {
          entries.append(std::visit([](const auto& e) { return to_python(e); }, entry));
        }
        return entries;
      },
      "Returns the log's entries as dictionaries, oldest first, and empties it.");
}

}  // namespace tpjrt::python
