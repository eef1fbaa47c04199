// torch_pjrt._C: bindings, no logic.
#include <ATen/dlpack.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>

#include "device/backend/accelerator.h"
#include "device/backend/guard.h"
#include "device/backend/register.h"
#include "device/host/host.h"
#include "device/host/process_group.h"
#include "device/host/shared_memory.h"
#include "device/processes/backend.h"
#include "device/services/counters.h"
#include "device/services/location.h"
#include "device/services/modes.h"
#include "device/start/at_once.h"
#include "device/start/backward.h"
#include "device/start/eager.h"
#include "device/start/optimizer_step.h"
#include "device/start/rounds.h"
#include "device/tensor/access.h"
#include "device/tensor/current_device.h"
#include "device/tensor/generator.h"
#include "device/tensor/storage.h"
#include "device/world/backend.h"
#include "engine/lower/call_lowering.h"
#include "engine/memory/cuda.h"
#include "engine/memory/host_memory.h"
#include "engine/program/unfinished.h"
#include "engine/run/lazy_engine.h"
#include "engine/session/key_values.h"
#include "graph/order.h"
#include "graph/print.h"
#include "graph/world/world.h"
#include "python/bench.h"
#include "python/captured.h"
#include "python/compiled.h"
#include "python/composites.h"
#include "python/foreign.h"
#include "python/interpreter.h"
#include "python/kernels.h"
#include "python/profiler.h"
#include "python/run_log.h"

namespace py = pybind11;

namespace tpjrt::python {
namespace {

std::vector<graph::Value> values_of(const std::vector<at::Tensor>& tensors) {
  std::vector<graph::Value> values;
  std::lock_guard lock(graph::graph_lock());
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(device::is_pjrt(tensor), "expected tensors on a pjrt device, got one on ", tensor.device());
    values.push_back(device::read(tensor));
  }
  return values;
}

std::vector<graph::Cell*> cells_of(const std::vector<at::Tensor>& tensors) {
  std::vector<graph::Cell*> cells;
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(device::is_pjrt(tensor), "expected tensors on a pjrt device, got one on ", tensor.device());
    cells.push_back(&device::storage_of(tensor)->cell);
  }
  return cells;
}

py::typing::Dict<std::string, py::object> metrics() {
  auto& engine = engine::Session::instance().metrics;
  auto& device = device::counters();
  py::dict result;
  result["ops_recorded"] = device.ops_recorded.load();
  result["graphs_compiled"] = engine.graphs_compiled.load();
  result["graphs_loaded_from_disk"] = engine.graphs_loaded_from_disk.load();
  result["executions"] = engine.executions.load();
  result["graphs_run_by_calls"] = engine.graphs_run_by_calls.load();
  result["calls_on_host"] = engine.calls_on_host.load();
  result["host_fallbacks"] = device.fallbacks();
  py::dict collectives, bytes;
  for (const auto& [name, counted] : engine.collectives()) {
    collectives[py::str(name)] = counted.calls;
    bytes[py::str(name)] = counted.bytes;
  }
  for (const auto& [name, counted] : device.exchanges()) {
    collectives[py::str(name)] = counted.calls;
    bytes[py::str(name)] = counted.bytes;
  }
  result["collectives"] = collectives;
  result["collective_bytes"] = bytes;
  result["syncs"] = engine.syncs();
  result["syncs_by_cause"] = engine.syncs_by_cause();
  result["nodes_executed"] = engine.nodes_executed.load();
  result["host_transfer_bytes"] = device.host_transfer_bytes.load();
  result["copies_on_write"] = device::copies_on_write().load();
  result["record_seconds"] = device.record_seconds();
  result["compile_seconds"] = static_cast<double>(engine.compile_ns.load()) * 1e-9;
  result["prepare_seconds"] = static_cast<double>(engine.prepare_ns.load()) * 1e-9;
  result["execute_seconds"] = static_cast<double>(engine.execute_ns.load()) * 1e-9;
  return result;
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "The C++ core of torch_pjrt.";
  device::register_device();
  install_interpreter();
  install_profiler();
  auto& session = engine::Session::instance();
  auto& engine = engine::LazyEngine::instance();
  m.def("set_truth_source", &set_truth_source, py::arg("truth"), "who is asked about branches on what is traced");
  m.def("set_python_sources", &set_python_sources, py::arg("plugins"), py::arg("decompose"),
        "what the core asks of the package");
  m.def("keep_accelerator", &device::keep_accelerator);
  m.def("set_accelerator_here", &device::set_accelerator_here);
  m.def("init", [&session](const std::string& name, const std::string& path) { session.init({name, path}); });
  m.def("is_initialized", [&session] { return session.started_client() != nullptr; });
  m.def("platform_name", [&session] { return session.client().platform_name(); });
  m.def("platform_version", [&session] { return session.client().platform_version(); });
  m.def("plugin", [&session] { return std::make_pair(session.plugin().name, session.plugin().path); });
  m.def("most_devices", [&session] { return static_cast<int>(session.most_devices()); });
  m.def("device_count", [&session] { return static_cast<int>(session.device_count()); });
  m.def("device_properties", [&session](size_t index) -> py::typing::Dict<std::string, py::object> {
    const auto& device = session.client().devices().at(index);
    py::dict properties;
    properties["kind"] = device.kind;
    properties["attributes"] = device.attributes;
    properties["is_host_memory"] = session.client().is_host_memory();
    return properties;
  });
  m.def("plugin_memory", [&engine](int index) { return engine.memory(static_cast<c10::DeviceIndex>(index)).plugin; });
  const auto type_of = [](const py::object& dtype) {
    TORCH_CHECK_TYPE(THPDtype_Check(dtype.ptr()), "expected a torch.dtype");
    return reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
  };
  m.def("freezes_convolutions",
        [&session, type_of](const py::object& dtype) { return session.freezes_convolutions(type_of(dtype)); });
  m.def("has_library_convolutions",
        [&session, type_of](const py::object& dtype) { return session.has_library_convolutions(type_of(dtype)); });
  m.def(
      "is_convolution_worth_a_call",
      [type_of](const py::object& dtype, int64_t multiplications, int64_t stride, int64_t size) {
        return engine::Session::is_convolution_worth_a_call(type_of(dtype), multiplications, stride, size);
      },
      py::arg("dtype"), py::arg("multiplications"), py::arg("stride"), py::arg("size"),
      "does oneDNN do it right, and save more than a call costs? By the stride and size of the result's last "
      "dimension");
  m.def("is_host_memory", [&session] { return session.client().is_host_memory(); });
  m.def(
      "is_shared", [&session](c10::Device device) { return engine::cuda::is_shared(session.client(), device.type()); },
      "is this device of PyTorch's own the plugin's, too?");
  m.def("is_copied", &engine::is_copied, "would each call of a compiled function copy this argument?");
  m.def(
      "host_view", [](const at::Tensor& tensor) { return device::host_tensor(tensor, "DLPack"); },
      "a CPU tensor with the values; over the device's own memory where that is the host's, so not to be written");
  m.def("borrow", [](const at::Tensor& tensor, int index) -> std::optional<at::Tensor> {
    at::Tensor result = device::borrowing_tensor(tensor, static_cast<c10::DeviceIndex>(index));
    return result.defined() ? std::optional(result) : std::nullopt;
  });
  m.def("mark_read_only", [](const py::object& dlpack) {
    const auto capsule = dlpack.cast<py::capsule>();
    TORCH_CHECK(std::string_view(capsule.name()) == "dltensor_versioned", "expected a versioned DLPack capsule");
    capsule.get_pointer<DLManagedTensorVersioned>()->flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
  });
  m.def("eager", &device::eager);
  m.def("set_eager", &device::set_eager);
  m.def("set_compile_policy", [](const std::string& name) {
    engine::set_compile_policy(engine::compile_policy_named(name));
    device::forget_stretches();
  });
  // Runs after the handlers that compiles have registered so far. If Python has no room for it, the handler that the
  // first compile registered applies.
  Py_AtExit(&engine::end_despite_unfinished);
  m.def("in_forked_child", &engine::in_forked_child);
  m.def("stop_other_threads", &stop_other_threads);
  m.def("current_device", [] { return static_cast<int>(device::current_device()); });
  m.def("set_device", [](int64_t index) {
    if (index >= 0) device::set_current_device(device::device_index(index));
  });
  m.def("device_index", &device::device_index, "the index, if there is such a device");
  m.def(
      "finish",
      [&session] {
        session.without_gil([&session] { session.await_all(); });
        return session.requirements.untold();
      },
      "waits for all that is under way; gives the errors that nobody was told of");
  m.def("wait", [&session](int index) { session.wait(*session.now(static_cast<c10::DeviceIndex>(index))); });
  m.def("sync", [&engine](const std::vector<at::Tensor>& tensors, const std::string& cause) {
    engine.sync(cells_of(tensors), cause.c_str());
  });
  const auto attendance = [](c10::intrusive_ptr<c10d::Store> store, std::vector<int64_t> ranks, int64_t rank) {
    auto made = std::make_shared<device::Attendance>();
    made->store = std::move(store);
    made->ranks = std::move(ranks);
    made->own = rank;
    return made;
  };
  py::class_<device::Attendance, std::shared_ptr<device::Attendance>>(m, "Attendance")
      .def(py::init(attendance), py::arg("store"), py::arg("ranks"), py::arg("rank"),
           "of a group: its store and its ranks, of which this is one");
  m.def("host_backend", &device::make_host_backend, py::arg("host"), py::arg("attendance"));
  m.def("host_of", &device::processes::host_of, py::arg("backend"));
  m.def(
      "begin_world",
      [](size_t size) {
        engine::Session::instance().begin_world(size);
        device::world::take_functional_collectives();
      },
      py::arg("size"), "makes the first devices a world (Note [World])");
  m.def(
      "begin_processes",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
         const std::function<std::pair<int, int>()>& place_on_host) {
        return engine::Session::instance().begin_processes([&] {
          const auto [local_rank, local_size] = place_on_host();
          return pjrt::Node{rank, size, rank - local_rank, local_size, 0, engine::key_values_in(store)};
        });
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("place_on_host"),
      "starts this process's part of a client of several, where the plugin is for GPUs; did it?");
  m.def(
      "process", [] { return engine::Session::instance().process(); },
      "which of how many processes have the client together; None where it is this one's alone");
  m.def("backend_of_processes", &device::processes::make_backend, py::arg("ranks"), py::arg("host"),
        py::arg("attendance"));
  m.def("complete_backend_of_processes", &device::processes::complete_backend, py::arg("backend"), py::arg("groups"));
  m.def("world_size", [] { return graph::world_size().load(); }, "on how many devices a tensor lies");
  m.def("world_backend", &device::world::make_backend, py::arg("ranks"));
  m.def("complete_world_backend", &device::world::complete_backend, py::arg("backend"), py::arg("groups"));
  m.def("per_rank", &device::world::per_rank, py::arg("values"),
        "a 0-d int64 tensor that is values[rank] on each rank of the world");
  m.def("promised_equal", &device::world::promised_equal, py::arg("tensor"),
        "the same values, said to be equal on all ranks of the world: whoever reads them compares");
  m.def(
      "groups_of",
      [](c10d::ProcessGroup& group) {
        const device::world::Groups groups = device::world::groups_of(group);
        return std::pair(groups.ranks, groups.size);
      },
      py::arg("group"), "of a group of the world: all groups of its kind, one behind the other, and their size");
  m.def("has_one_value", &device::has_one_value, py::arg("tensor"),
        "whether all ranks of the world have the same values of it");
  m.def("values_of_rank", &device::values_of_rank, py::arg("tensor"), py::arg("rank"),
        "a copy on the CPU of what one rank of the world has");
  m.def("begin_optimizer_step", &device::begin_optimizer_step);
  m.def("end_optimizer_step", [&engine](const std::vector<at::Tensor>& parameters) {
    struct End {
      ~End() { device::end_optimizer_step(); }
    } end;
    if (parameters.empty()) return;
    engine.sync(cells_of(parameters), "optimizer step");
    device::end_round_after_step();
  });
  m.def(
      "run_backward",
      [](const py::typing::Callable<py::object(py::ellipsis)>& engine,
         const py::typing::Tuple<py::object, py::ellipsis>& args, const py::typing::Dict<py::str, py::object>& how) {
        std::vector<at::Tensor> roots;
        for (const py::handle root : args[0]) {
          if (THPVariable_Check(root.ptr())) roots.push_back(THPVariable_Unpack(root.ptr()));  // else a GradientEdge
        }
        const device::Backward backward(roots);
        return engine(*args, **how);
      },
      py::arg("engine"), py::arg("args"), py::arg("how"), "calls the autograd engine: roots first (Note [Backward])");
  m.def("drop_older_programs", [&session] { session.programs.drop_older(); });
  m.def("forget_programs", [&session] { session.programs.forget(); });
  m.def("start_all", [&engine](const std::string& cause) { engine.start(cause.c_str(), graph::kEver, {}); });
  m.def(
      "stablehlo",
      [&session](const std::vector<at::Tensor>& tensors, bool for_cpu, bool knows_composites) {
        return session.programs.stablehlo(values_of(tensors), for_cpu ? session.target() : ops::Target::kAny,
                                          knows_composites);
      },
      py::arg("tensors"), py::arg("for_cpu") = false, py::arg("knows_composites") = true);
  m.def("graph", [](const std::vector<at::Tensor>& tensors) { return graph::print(values_of(tensors)); });
  m.def(
      "ways",
      [](const std::vector<at::Tensor>& tensors) {
        std::vector<std::pair<std::string, std::string>> ways;
        for (const graph::Node* node : graph::topological_order(values_of(tensors))) {
          if (node->is_leaf()) continue;
          if (const char* way = engine::way_of(*node->signature); *way) ways.emplace_back(node->signature->name, way);
        }
        return ways;
      },
      py::arg("tensors"),
      "the pending calls that they depend on, and what does each: a rule, a decomposition or a kernel");
  m.def("set_program_listener",
        [&session](engine::ProgramListener listener) { session.programs.set_listener(std::move(listener)); });
  m.def("set_run_listener",
        [&session](engine::RunListener listener) { session.programs.set_run_listener(std::move(listener)); });
  m.def("is_pending", [](const at::Tensor& tensor) {
    std::lock_guard lock(graph::graph_lock());
    const graph::Value& value = device::storage_of(tensor)->cell.value();
    return value && !value.is_leaf();
  });
  m.def("newest_node_id", [] {
    const std::lock_guard lock(graph::graph_lock());
    return graph::newest_id();
  });
  m.def(
      "node_id",
      [](const at::Tensor& tensor) -> std::optional<uint64_t> {
        std::lock_guard lock(graph::graph_lock());
        const graph::Value& value = device::storage_of(tensor)->cell.value();
        if (!value || (value.is_leaf() && !value.node->data)) return std::nullopt;
        return value.is_leaf() ? 0 : value.node->id;
      },
      "nodes are numbered as they are recorded; 0: it was computed already; None: it is a placeholder, or has no "
      "value");
  m.def("metrics", &metrics);
  m.def("reset_metrics", [&session] {
    session.metrics.reset();
    device::counters().reset();
    device::copies_on_write() = 0;
  });
  m.def("default_generator", [](int index) { return device::default_generator(static_cast<c10::DeviceIndex>(index)); });
  m.def("strict", &device::strict);
  m.def("set_strict", &device::set_strict);
  m.def("set_tracing", &device::set_tracing);
  m.def("tracing", &device::tracing, "is a function being traced in this thread?");
  m.def("user_location", [] {
    const device::Location location = device::user_location();
    return std::make_pair(location.file, location.line);
  });
  m.def("set_location", [](std::string file, int line) { device::set_location({std::move(file), line}); });
  m.def(
      "count_fallback", [](const std::string& op) { return device::counters().count_fallback(op); },
      "counts it; whether it was the first of this op");
  bind_run_log(m);
  bind_bench(m);
  bind_compiled(m);
  bind_foreign(m);
  bind_exported(m);
  bind_captured(m);
  bind_composites(m);
  bind_kernels(m);
}

}  // namespace tpjrt::python
