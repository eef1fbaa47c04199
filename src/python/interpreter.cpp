// Calls from the core into Python.
#include "python/bindings.h"

#include <c10/util/ScopeExit.h>
#include <pybind11/stl.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/csrc/utils/pybind.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "device/services/foreign_trace.h"
#include "device/services/python_hooks.h"
#include "device/services/trace_assertions.h"
#include "device/start/eager.h"
#include "device/start/iterations.h"
#include "engine/executable/progress.h"
#include "engine/lower/call_lowering.h"
#include "engine/memory/host_memory.h"
#include "engine/run/lazy_engine.h"

namespace py = pybind11;

// Declared here because torch/csrc/jit/python/pybind_utils.h takes longer to compile than this whole room.
namespace torch::jit {
TORCH_PYTHON_API c10::IValue toIValue(py::handle obj, const c10::TypePtr& type, std::optional<int32_t> N);
TORCH_PYTHON_API py::object toPyObject(c10::IValue ivalue);
}  // namespace torch::jit

namespace tpjrt::python {
namespace {

// Leaked, because they may be needed while the interpreter shuts down.
py::function* plugins_source = nullptr;
py::function* decompose_source = nullptr;

std::vector<engine::PluginChoice> plugins() {
  py::gil_scoped_acquire gil;
  TORCH_CHECK(plugins_source, "torch_pjrt is not imported");
  std::vector<engine::PluginChoice> choices;
  for (const auto& [name, path] : (*plugins_source)().cast<std::vector<std::pair<std::string, std::string>>>()) {
    choices.push_back({name, path});
  }
  return choices;
}

bool decompose(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  py::gil_scoped_acquire gil;
  if (!decompose_source) return false;
  const auto& schema = op.schema();
  py::list args;
  py::dict kwargs;
  const size_t first = stack.size() - schema.arguments().size();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto& argument = schema.arguments()[i];
    py::object value = torch::jit::toPyObject(stack[first + i]);
    // A dtype is an int in a stack.
    const c10::Type* type = argument.real_type().get();
    const auto* optional = type->castRaw<c10::OptionalType>();
    if (optional) type = optional->getElementType().get();
    if (type->kind() == c10::TypeKind::ScalarTypeType && !stack[first + i].isNone()) {
      value = py::reinterpret_borrow<py::object>(
          reinterpret_cast<PyObject*>(torch::getTHPDtype(stack[first + i].toScalarType())));
    }
    if (argument.kwarg_only()) {
      kwargs[py::str(argument.name())] = value;
    } else {
      args.append(value);
    }
  }
  py::object result = (*decompose_source)(schema.name(), schema.overload_name(), args, kwargs);
  if (result.ptr() == Py_NotImplemented) return false;
  stack.resize(first);
  if (schema.returns().empty()) return true;
  if (schema.returns().size() == 1 || !py::isinstance<py::tuple>(result)) {
    stack.push_back(torch::jit::toIValue(result, schema.returns().at(0).type(), std::nullopt));
    return true;
  }
  const auto results = result.cast<py::tuple>();
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    py::object one = results[i];
    stack.push_back(one.is_none() ? c10::IValue(at::Tensor())
                                  : torch::jit::toIValue(one, schema.returns()[i].type(), std::nullopt));
  }
  return true;
}

void report_wait(const std::string& line) {
  if (!Py_IsInitialized()) return;
  py::gil_scoped_acquire gil;
  py::module_::import("torch_pjrt.messages").attr("inform")("torch_pjrt.program", line);
}

void warn_in_log(const char* logger, const std::string& line) {
  if (!Py_IsInitialized()) return;
  py::gil_scoped_acquire gil;
  py::module_::import("torch_pjrt.messages").attr("warn")(logger, line);
}

// Set once torch_pjrt.jax is imported.
py::function* value_needed_source = nullptr;
py::function* before_write_source = nullptr;

py::function* truth_source = nullptr;

std::optional<bool> truth(const at::Tensor& condition) {
  const py::gil_scoped_acquire gil;
  if (!truth_source) return std::nullopt;
  return (*truth_source)(condition).cast<std::optional<bool>>();
}

std::string value_needed(const void* placeholder, const char* cause) {
  py::gil_scoped_acquire gil;
  if (!value_needed_source) return {};
  return (*value_needed_source)(reinterpret_cast<uint64_t>(placeholder), cause).cast<std::string>();
}

void before_write(const at::Tensor& sealed, const char* op) {
  py::gil_scoped_acquire gil;
  if (before_write_source) (*before_write_source)(sealed, op);
}

// The folders of torch and this package: frames in them are not the user's.
std::vector<std::string>* library_folders = nullptr;

bool is_library(const std::string& file) {
  if (file.starts_with("<frozen")) return true;
  if (!library_folders) return false;
  const auto inside = [&](const std::string& folder) { return file.starts_with(folder); };
  return std::any_of(library_folders->begin(), library_folders->end(), inside);
}

// Visits frames from the innermost outwards, until `visit(frame, code)` returns false. Needs the GIL.
template <typename Visit>
void visit_frames(const Visit& visit) {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  while (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const bool goes_on = visit(frame, code);
    Py_DECREF(code);
    PyFrameObject* back = goes_on ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = back;
  }
}

std::string file_of(const PyCodeObject* code) {
  return py::reinterpret_borrow<py::object>(code->co_filename).cast<std::string>();
}

device::Location user_location() {
  if (!Py_IsInitialized()) return {};
  py::gil_scoped_acquire gil;
  device::Location location;
  visit_frames([&](PyFrameObject* frame, const PyCodeObject* code) {
    std::string file = file_of(code);
    if (is_library(file)) return true;
    location = {std::move(file), PyFrame_GetLineNumber(frame)};
    return false;
  });
  return location;
}

// The code object of nn.Module's __call__.
PyObject* module_call = nullptr;

device::Place place() {
  if (!Py_IsInitialized()) return {};
  py::gil_scoped_acquire gil;
  device::Place place;
  visit_frames([&](PyFrameObject* frame, const PyCodeObject* code) {
    if (!place.code && !is_library(file_of(code))) {
      place.code = code;
      place.line = PyFrame_GetLineNumber(frame);
    }
    place.in_module = reinterpret_cast<const PyObject*>(code) == module_call;
    return !place.in_module;
  });
  return place;
}

std::atomic<std::thread::id> ending_thread{};

// Stops the thread for ever if the interpreter is ending, as Python 3.14 does. Earlier versions end a thread that
// wants the GIL then by unwinding it. PyTorch's destructors don't let that through, and the process would be aborted.
void stop_if_ending() {
  const std::thread::id ends = ending_thread;
  while (C10_UNLIKELY(ends != std::thread::id{}) && ends != std::this_thread::get_id()) pause();
}

void without_gil(c10::function_ref<void()> work) {
  std::optional<py::gil_scoped_release> release;
  if (Py_IsInitialized() && PyGILState_Check()) release.emplace();
  const auto stop = c10::make_scope_exit(&stop_if_ending);
  work();
}

// Takes the GIL only in the main thread, where Python runs signal handlers.
void check_signals() {
  if (!device::in_main_thread() || !Py_IsInitialized()) return;
  py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// Returns whether the current exception is an interrupt. Must be called in a catch block.
bool is_interrupt() {
  const auto is_error = [](PyObject* type) { return type && PyErr_GivenExceptionMatches(type, PyExc_Exception); };
  try {
    throw;
  } catch (const py::error_already_set& error) {
    py::gil_scoped_acquire gil;
    return !is_error(error.type().ptr());
  } catch (const python_error& error) {
    py::gil_scoped_acquire gil;
    return error.type && !is_error(error.type);
  } catch (...) {
    return false;
  }
}

device::Subclass subclass_of(const at::Tensor& tensor) {
  py::gil_scoped_acquire gil;
  const auto object = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
  const std::string_view name = Py_TYPE(object.ptr())->tp_name;
  if (name == "FakeTensor" || name == "FunctionalTensor") return device::Subclass::kNone;
  return name == "DTensor" ? device::Subclass::kDTensor : device::Subclass::kOther;
}

// Returns the function with which PyTorch frees a slice of a storage. It has no name, so a slice is asked for it.
c10::DeleterFnPtr deleter_of_slices() {
  const py::object slice = py::module_::import("torch").attr("UntypedStorage")(2)[py::slice(1, 2, 1)];
  return torch::createStorage(slice.ptr()).data_ptr().get_deleter();
}

}  // namespace

void set_python_sources(PluginsSource plugins_function, DecomposeSource decompose_function) {
  library_folders = new std::vector<std::string>;
  for (const char* name : {"torch", "torch_pjrt"}) {
    const auto file = py::module_::import(name).attr("__file__").cast<std::string>();
    library_folders->push_back(file.substr(0, file.rfind('/') + 1));
  }
  module_call =
      py::object(py::module_::import("torch.nn").attr("Module").attr("_call_impl").attr("__code__")).release().ptr();
  plugins_source = new py::function(std::move(plugins_function));
  decompose_source = new py::function(std::move(decompose_function));
}

void set_foreign_trace(ValueNeeded value_needed_function, BeforeWrite before_write_function) {
  value_needed_source = new py::function(std::move(value_needed_function));
  before_write_source = new py::function(std::move(before_write_function));
}

void set_truth_source(TruthSource truth_function) { truth_source = new py::function(std::move(truth_function)); }

void stop_other_threads() {
  ending_thread = std::this_thread::get_id();
  device::set_eager(true);  // makes every call of theirs enter the engine
}

void install_interpreter() {
  device::install_foreign_trace({&value_needed, &before_write});
  device::install_location_source(&user_location);
  device::install_truth_source(&truth);
  engine::install_decomposer(&decompose);
  engine::install_wait_listener(&report_wait);
  engine::set_deleter_of_slices(deleter_of_slices());
  device::install_place_source(&place);
  device::install_interrupt_test(&is_interrupt);
  device::install_signal_check(&check_signals);
  device::install_message_sink(&warn_in_log);
  device::install_subclass_source(&subclass_of);
  engine::Session::instance().install(&plugins, &without_gil, &check_signals);
  engine::LazyEngine::instance().install();
  // The client starts on first use. torch 2.11's torch.accelerator.synchronize() does nothing before a device is
  // initialized.
  torch::utils::set_requires_device_init(c10::DeviceType::PrivateUse1, false);
}

}  // namespace tpjrt::python
