// torch_pjrt._C: bindings, no logic.
#include <ATen/dlpack.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>

#include "device/backend/accelerator.h"
#include "device/backend/register.h"
#include "device/collectives/backend.h"
#include "device/host/host.h"
#include "device/host/shared_memory.h"
#include "device/override/autocast.h"
#include "device/process_group/backend.h"
#include "device/process_group/host_backend.h"
#include "device/services/counters.h"
#include "device/services/modes.h"
#include "device/services/python_hooks.h"
#include "device/start/backward.h"
#include "device/start/eager.h"
#include "device/start/eager_fast_path.h"
#include "device/start/iterations.h"
#include "device/start/optimizer_step.h"
#include "device/tensor/access.h"
#include "device/tensor/factory.h"
#include "device/tensor/generator.h"
#include "device/tensor/storage.h"
#include "engine/executable/unfinished.h"
#include "engine/lower/call_lowering.h"
#include "engine/memory/cuda.h"
#include "engine/memory/host_memory.h"
#include "engine/run/lazy_engine.h"
#include "engine/session/key_values.h"
#include "graph/node.h"
#include "graph/print.h"
#include "graph/signature.h"
#include "graph/world.h"
#include "ops/claims/claims.h"
#include "ops/rule/call.h"
#include "python/bindings.h"

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

std::vector<graph::StorageSlot*> slots_of(const std::vector<at::Tensor>& tensors) {
  std::vector<graph::StorageSlot*> slots;
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(device::is_pjrt(tensor), "expected tensors on a pjrt device, got one on ", tensor.device());
    slots.push_back(&device::storage_of(tensor)->slot);
  }
  return slots;
}

py::typing::Dict<std::string, py::object> metrics() {
  auto& engine = engine::Session::instance().metrics;
  auto& device = device::counters();
  py::dict result;
  result["ops_recorded"] = device.ops_recorded.load();
  result["graphs_compiled"] = engine.graphs_compiled.load();
  result["graphs_loaded_from_disk"] = engine.graphs_loaded_from_disk.load();
  result["executions"] = engine.executions.load();
  result["graphs_interpreted"] = engine.graphs_interpreted.load();
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
  m.def("set_truth_source", &set_truth_source, py::arg("truth"),
        "Sets the callback for branches on traced tensors. It returns the side to take, or None to refuse.");
  m.def("set_python_sources", &set_python_sources, py::arg("plugins"), py::arg("decompose"),
        "Sets the callbacks of the core: ``plugins()`` returns names and paths of installed plugins, ``decompose`` "
        "PyTorch's decomposition of an op.");
  m.def("keep_accelerator", &device::keep_accelerator,
        "Keeps PyTorch's accelerator, such as CUDA, as the one that autograd asks. Must be called before \"pjrt\" is "
        "registered.");
  m.def("set_accelerator_here", &device::set_accelerator_here,
        "Makes \"pjrt\" the accelerator in this thread, or undoes it. Returns the previous setting.");
  m.def(
      "init", [&session](const std::string& name, const std::string& path) { session.init({name, path}); },
      "Starts the client of the plugin with this name and path. Raises RuntimeError if it can't be loaded or another "
      "one is running.");
  m.def(
      "is_initialized", [&session] { return session.started_client() != nullptr; },
      "Returns whether a client is running.");
  m.def(
      "platform_name", [&session] { return session.client().platform_name(); },
      "Returns the plugin's platform name, such as \"cpu\" or \"cuda\". Starts the client.");
  m.def(
      "platform_version", [&session] { return session.client().platform_version(); },
      "Returns the plugin's version text. Starts the client.");
  m.def(
      "plugin", [&session] { return std::make_pair(session.plugin().name, session.plugin().path); },
      "Returns the plugin's name and path. Starts the client.");
  m.def(
      "most_devices", [&session] { return static_cast<int>(session.most_devices()); },
      "Returns the number of devices, or an upper bound of it while no client is running.");
  m.def(
      "device_count", [&session] { return static_cast<int>(session.device_count()); },
      "Returns the number of devices that this process can use. Starts the client.");
  m.def(
      "device_properties",
      [&session](size_t index) -> py::typing::Dict<std::string, py::object> {
        const auto& device = session.client().devices().at(index);
        py::dict properties;
        properties["kind"] = device.kind;
        properties["attributes"] = device.attributes;
        properties["is_host_memory"] = session.client().is_host_memory();
        return properties;
      },
      "Returns the kind, the plugin's attributes and ``is_host_memory`` of a device. Raises IndexError if there is "
      "none.");
  m.def(
      "plugin_memory", [&engine](int index) { return engine.memory(static_cast<c10::DeviceIndex>(index)).plugin; },
      "Returns the plugin's own memory statistics of a device, in bytes unless the name says otherwise.");
  const auto type_of = [](const py::object& dtype) {
    TORCH_CHECK_TYPE(THPDtype_Check(dtype.ptr()), "expected a torch.dtype");
    return reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
  };
  m.def(
      "calls_libraries", [&session] { return session.calls_libraries(); },
      "Returns whether programs may call the CPU's libraries.");
  m.def(
      "is_claimed",
      [type_of](const std::string& op, const py::object& dtype, int64_t work, int64_t rows, int64_t stride,
                int64_t size) {
        const auto heavy = ops::heavy_of(op);
        TORCH_CHECK_VALUE(heavy, "no claims are made for '", op, "'");
        return ops::is_claimed(*heavy, ops::element_of(type_of(dtype)), {work, rows},
                               ops::layout_of_stride(stride, size));
      },
      py::arg("op"), py::arg("dtype"), py::arg("work"), py::arg("rows") = 1, py::arg("stride") = 1, py::arg("size") = 1,
      "Returns whether a library computes this op of so many multiplications. ``stride`` and ``size`` are those of the "
      "result's last dimension.");
  m.def(
      "is_host_memory", [&session] { return session.client().is_host_memory(); },
      "Returns whether device memory is the host's memory. Starts the client.");
  m.def(
      "is_shared", [&session](c10::Device device) { return engine::cuda::is_shared(session.client(), device.type()); },
      "Returns whether this device of PyTorch, such as \"cuda:0\", is also a device of the plugin.");
  m.def("is_copied", &engine::is_copied,
        "Returns whether each call of a compiled function would copy this CPU tensor.");
  m.def(
      "host_view", [](const at::Tensor& tensor) { return device::host_tensor(tensor, "DLPack"); },
      "Returns a CPU tensor with the values of a pjrt tensor. It must not be written to: where device memory is the "
      "host's, it is the device's own memory.");
  m.def(
      "borrow",
      [](const at::Tensor& tensor, int index) -> std::optional<at::Tensor> {
        at::Tensor result = device::borrowing_tensor(tensor, static_cast<c10::DeviceIndex>(index));
        return result.defined() ? std::optional(result) : std::nullopt;
      },
      "Returns a pjrt tensor over the memory of a CPU tensor, or None if that would need a copy.");
  m.def(
      "mark_read_only",
      [](const py::object& dlpack) {
        const auto capsule = dlpack.cast<py::capsule>();
        TORCH_CHECK(std::string_view(capsule.name()) == "dltensor_versioned", "expected a versioned DLPack capsule");
        capsule.get_pointer<DLManagedTensorVersioned>()->flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
      },
      "Sets the read-only flag of a versioned DLPack capsule. Raises RuntimeError for other capsules.");
  m.def("follow_cpus_autocast", &device::follow_cpus_autocast, py::arg("follow"),
        "Sets whether autocast on \"pjrt\" casts the ops that it casts on the CPU, in this thread; returns whether it "
        "did.");
  m.def("eager", &device::eager, "Returns whether every call runs as soon as it is recorded.");
  m.def("set_eager", &device::set_eager, "Sets whether every call runs as soon as it is recorded.");
  m.def(
      "set_compile_policy",
      [](const std::string& name) {
        engine::set_compile_policy(engine::compile_policy_named(name));
        device::forget_intervals();
      },
      "Sets when graphs are compiled, by a value of ``TORCH_PJRT_COMPILE``. Raises RuntimeError for any other name.");
  m.def("set_interprets_growing", &engine::set_interprets_growing,
        "Sets whether ``first`` interprets graphs that differ from two earlier ones in sizes alone; the default is "
        "True.");
  // Runs after the handlers that compiles have registered so far. If Python has no room for it, the handler that the
  // first compile registered applies.
  Py_AtExit(&engine::end_despite_unfinished);
  m.def("in_forked_child", &engine::in_forked_child,
        "Returns whether this process was forked from one that used the device, and so can't use it.");
  m.def("stop_other_threads", &stop_other_threads,
        "Prepares for the end of the interpreter: other threads that return from the engine stop there.");
  m.def(
      "current_device", [] { return static_cast<int>(device::current_device()); },
      "Returns the index of this thread's current device.");
  m.def(
      "set_device",
      [](int64_t index) {
        if (index >= 0) device::set_current_device(device::device_index(index));
      },
      "Sets this thread's current device. A negative index changes nothing.");
  m.def("device_index", &device::device_index, "Returns the index. Raises RuntimeError if there is no such device.");
  m.def(
      "finish",
      [&session] {
        session.without_gil([&session] { session.await_all(); });
        return session.assertions.unreported();
      },
      "Waits for all running work. Returns the messages of runtime assertions that failed and were not raised.");
  m.def(
      "wait", [&session](int index) { session.wait(*session.now(static_cast<c10::DeviceIndex>(index))); },
      "Waits for the work that was started on a device.");
  m.def(
      "sync",
      [&engine](const std::vector<at::Tensor>& tensors, const std::string& cause) {
        engine.sync(slots_of(tensors), cause.c_str());
      },
      "Starts the pending work that pjrt tensors depend on, without waiting. The cause is counted in "
      "``metrics()[\"syncs_by_cause\"]``.");
  const auto attendance = [](c10::intrusive_ptr<c10d::Store> store, std::vector<int64_t> ranks, int64_t rank) {
    auto made = std::make_shared<device::Attendance>();
    made->store = std::move(store);
    made->ranks = std::move(ranks);
    made->own = rank;
    return made;
  };
  py::class_<device::Attendance, std::shared_ptr<device::Attendance>>(
      m, "Attendance",
      "The ranks of a process group and the store in which they announce themselves, to name those that are late.")
      .def(py::init(attendance), py::arg("store"), py::arg("ranks"), py::arg("rank"),
           "Takes the store of a process group, the global ranks in it, and this process's rank.");
  m.def("host_backend", &device::make_host_backend, py::arg("host"), py::arg("attendance"),
        "Returns a process group backend for pjrt tensors that uses ``host``, a backend of CPU tensors.");
  m.def("host_of", &device::processes::host_of, py::arg("backend"),
        "Returns the part of a backend for pjrt tensors that takes CPU tensors, too: itself if it is a host_backend.");
  m.def(
      "begin_world",
      [](size_t size) {
        engine::Session::instance().begin_world(size);
        device::world::take_functional_collectives();
      },
      py::arg("size"),
      "Makes the first ``size`` devices a world: one process, in which each tensor has a value on each device (Note "
      "[World]).");
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
      "Starts this process's part of a client that spans several processes. Returns False, and starts nothing, if the "
      "plugin is not for GPUs.");
  m.def(
      "process", [] { return engine::Session::instance().process(); },
      "Returns the index of this process and the number of processes that share the client; None if it is this "
      "process's alone.");
  m.def("backend_of_processes", &device::processes::make_backend, py::arg("ranks"), py::arg("host"),
        py::arg("attendance"),
        "Returns a process group backend whose collectives are programs of several processes. ``host`` serves the "
        "others.");
  m.def("complete_backend_of_processes", &device::processes::complete_backend, py::arg("backend"), py::arg("groups"),
        "Sets all groups of the same kind, as lists of ranks. The backend's collectives need them.");
  m.def(
      "world_size", [] { return graph::world_size().load(); },
      "Returns the number of ranks of the world; 1 without one.");
  m.def("world_backend", &device::world::make_backend, py::arg("ranks"),
        "Returns a process group backend for a group of ranks of the world.");
  m.def("complete_world_backend", &device::world::complete_backend, py::arg("backend"), py::arg("groups"),
        "Sets all groups of the same kind, as lists of ranks. The backend's collectives need them.");
  m.def("per_rank", &device::world::per_rank, py::arg("values"),
        "Returns a 0-d int64 tensor that is ``values[rank]`` on each rank of the world.");
  m.def("promised_equal", &device::world::promised_equal, py::arg("tensor"),
        "Returns the same values, marked as equal on all ranks of the world. A read compares them, and raises "
        "RuntimeError if they differ.");
  m.def(
      "groups_of",
      [](c10d::ProcessGroup& group) {
        const device::world::Groups groups = device::world::groups_of(group);
        return std::pair(groups.ranks, groups.size);
      },
      py::arg("group"),
      "Returns all groups of the same kind as a group of the world: their ranks in one list, and the size of each.");
  m.def("has_one_value", &device::has_one_value, py::arg("tensor"),
        "Returns whether a tensor has the same values on all ranks of the world.");
  m.def("values_of_rank", &device::values_of_rank, py::arg("tensor"), py::arg("rank"),
        "Returns a copy on the CPU of a tensor's values on one rank of the world.");
  m.def("begin_optimizer_step", &device::begin_optimizer_step,
        "Marks the beginning of an optimizer's step. The argument says whether it is the first, which makes the "
        "optimizer's state.");
  m.def(
      "end_optimizer_step",
      [&engine](const std::vector<at::Tensor>& parameters) {
        struct End {
          ~End() { device::end_optimizer_step(); }
        } end;
        if (parameters.empty()) return;
        engine.sync(slots_of(parameters), "optimizer step");
        device::end_iteration_after_step();
      },
      "Marks the end of an optimizer's step, and starts the work that its parameters depend on.");
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
      py::arg("engine"), py::arg("args"), py::arg("how"),
      "Calls the autograd engine with ``args``, the roots first, and keyword arguments ``how`` (Note [Backward]).");
  m.def(
      "drop_older_programs", [&session] { session.programs.drop_older(); },
      "Drops the least recently used half of the compiled programs from memory, not from disk.");
  m.def(
      "forget_programs", [&session] { session.programs.forget(); },
      "Drops all compiled programs that nothing uses from memory, and forgets which scalars varied.");
  m.def(
      "start_all", [&engine](const std::string& cause) { engine.start(cause.c_str(), graph::kEver, {}); },
      "Starts all pending work on every device. The cause is counted in ``metrics()[\"syncs_by_cause\"]``.");
  m.def(
      "stablehlo",
      [&session](const std::vector<at::Tensor>& tensors, bool for_cpu, bool knows_composites) {
        return session.programs.stablehlo(values_of(tensors), for_cpu ? session.target() : ops::Target::kAny,
                                          knows_composites);
      },
      py::arg("tensors"), py::arg("for_cpu") = false, py::arg("knows_composites") = true,
      "Returns the StableHLO module that computes these tensors. ``for_cpu``: with the lowerings specific to XLA:CPU. "
      "``knows_composites``: composites are ``stablehlo.composite``; otherwise calls.");
  m.def(
      "graph", [](const std::vector<at::Tensor>& tensors) { return graph::print(values_of(tensors)); },
      "Returns the pending graph of these tensors as text, one call a line.");
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
      "Returns the name of each pending call that these tensors depend on, and what executes it: a rule, a "
      "decomposition or a kernel.");
  m.def(
      "set_program_listener",
      [&session](engine::ProgramListener listener) { session.programs.set_listener(std::move(listener)); },
      "Sets the callback for each program that is about to be compiled. It takes the graph and the StableHLO text.");
  m.def(
      "set_run_listener",
      [&session](engine::RunListener listener) { session.programs.set_run_listener(std::move(listener)); },
      "Sets the callback for each program that is about to run. It takes the StableHLO text.");
  m.def(
      "is_pending",
      [](const at::Tensor& tensor) {
        std::lock_guard lock(graph::graph_lock());
        const graph::Value& value = device::storage_of(tensor)->slot.value();
        return value && !value.is_leaf();
      },
      "Returns whether a pjrt tensor's value is recorded and not yet computed.");
  m.def(
      "newest_node_id",
      [] {
        const std::lock_guard lock(graph::graph_lock());
        return graph::newest_id();
      },
      "Returns the number of the newest node. Nodes are numbered in the order of recording.");
  m.def(
      "node_id",
      [](const at::Tensor& tensor) -> std::optional<uint64_t> {
        std::lock_guard lock(graph::graph_lock());
        const graph::Value& value = device::storage_of(tensor)->slot.value();
        if (!value || (value.is_leaf() && !value.node->data)) return std::nullopt;
        return value.is_leaf() ? 0 : value.node->id;
      },
      "Returns the number of the node that computes a pjrt tensor; 0 if it was computed already; None if it is a "
      "placeholder or has no value.");
  m.def("metrics", &metrics, "Returns the counters that ``torch_pjrt.metrics()`` documents.");
  m.def(
      "reset_metrics",
      [&session] {
        session.metrics.reset();
        device::counters().reset();
        device::copies_on_write() = 0;
      },
      "Sets every counter to zero.");
  m.def(
      "default_generator", [](int index) { return device::default_generator(static_cast<c10::DeviceIndex>(index)); },
      "Returns the random generator of a device.");
  m.def("strict", &device::strict, "Returns whether host fallbacks raise.");
  m.def("set_strict", &device::set_strict, "Sets whether host fallbacks raise.");
  m.def("set_tracing", &device::set_tracing, "Sets whether this thread traces a function.");
  m.def("tracing", &device::tracing,
        "Returns whether this thread traces a function. Then an op that would run on the host raises.");
  m.def(
      "user_location",
      [] {
        const device::Location location = device::user_location();
        return std::make_pair(location.file, location.line);
      },
      "Returns the file and line of the user's code that is being executed; an empty file if there is none.");
  m.def(
      "set_location", [](std::string file, int line) { device::set_location({std::move(file), line}); },
      "Overrides user_location() in this thread; an empty file ends that.");
  m.def(
      "count_fallback", [](const std::string& op) { return device::counters().count_fallback(op); },
      "Counts a call of an op that ran on the host. Returns whether it was the first of this op.");
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
