// Bindings of Trace (placeholders for arguments, then a program) and Function (the programs of one function, one for
// each set of sizes).
#include "python/bindings.h"

#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <algorithm>
#include <utility>

#include "device/services/trace_assertions.h"
#include "device/tensor/storage.h"
#include "engine/compiled_call/compiled_graph.h"
#include "engine/compiled_call/overlaps.h"
#include "engine/lower/control_flow.h"
#include "engine/session/session.h"
#include "graph/errors.h"

namespace py = pybind11;

namespace tpjrt::python {

using engine::Given;
using engine::Trace;

Given given_of(PyObject* object) {
  Given given;
  if (THPVariable_Check(object)) {
    given.tensor = &THPVariable_Unpack(object);
  } else if (PyBool_Check(object)) {
    given.number = object == Py_True;
  } else if (PyFloat_Check(object)) {
    given.number = PyFloat_AS_DOUBLE(object);
  } else if (object != Py_None) {
    given.number = py::reinterpret_borrow<py::object>(object).cast<int64_t>();
  }
  return given;
}

bool is_traced_by_pytorch() {
  using Modes = c10::impl::TorchDispatchModeTLS;
  using Key = c10::impl::TorchDispatchModeKey;
  if (!Modes::any_modes_set()) return false;
  return Modes::get_mode(Key::FAKE) || Modes::get_mode(Key::PROXY) || Modes::get_mode(Key::FUNCTIONAL);
}

bool has_no_values(const at::Tensor& tensor) {
  return tensor.key_set().has_any(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::Functionalize}));
}

bool has_no_values(std::span<PyObject* const> arguments) {
  return is_traced_by_pytorch() || std::any_of(arguments.begin(), arguments.end(), [](PyObject* argument) {
           return THPVariable_Check(argument) ? has_no_values(THPVariable_Unpack(argument))
                                              : torch::is_symint(py::handle(argument));
         });
}

namespace {

at::Tensor add_tensor(Trace& trace, c10::Device device, py::handle dtype, const std::vector<int64_t>& sizes,
                      const std::vector<int64_t>& strides, bool conjugate, bool negative) {
  TORCH_CHECK_TYPE(THPDtype_Check(dtype.ptr()), "expected a torch.dtype");
  return trace.add_tensor(device, reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type, sizes, strides, conjugate,
                          negative);
}

// Compiles a trace, which is empty afterwards. `devices`: where the caller wants each result that is a tensor.
// `random_device`: the device whose generator calls draw from. `also`: values that are computed without being
// results.
std::shared_ptr<Program> compile(Trace& trace, const py::typing::Iterable<py::object>& results,
                                 const std::vector<c10::Device>& devices, c10::Device random_device,
                                 const std::vector<at::Tensor>& also) {
  auto program = std::make_shared<Program>();
  std::vector<engine::TracedResult> tensors;
  for (const auto& value : results) {
    if (!THPVariable_Check(value.ptr())) {
      program->constants.push_back(py::reinterpret_borrow<py::object>(value));
      continue;
    }
    program->constants.emplace_back();
    const at::Tensor& tensor = THPVariable_Unpack(value.ptr());  // a conjugate is materialized when it leaves
    tensors.push_back({tensor.resolve_conj().resolve_neg(), devices.at(tensors.size())});
    TORCH_CHECK(device::is_pjrt(tensors.back().tensor), "a traced function gave a tensor on ",
                tensors.back().tensor.device());
  }
  const Trace finished = std::exchange(trace, Trace());
  program->graph =
      std::make_shared<engine::CompiledGraph>(engine::Session::instance(), finished, tensors, random_device, also);
  return program;
}

std::span<PyObject* const> items_of(const py::object& sequence) {  // a list or a tuple
  return {PySequence_Fast_ITEMS(sequence.ptr()), static_cast<size_t>(PySequence_Fast_GET_SIZE(sequence.ptr()))};
}

// Returns whether forward-mode automatic differentiation goes through an argument. Levels don't nest: there is one,
// or none.
bool has_tangents(std::span<PyObject* const> arguments) {
  if (!torch::autograd::ForwardADLevel::try_get_by_idx(0)) return false;
  return std::any_of(arguments.begin(), arguments.end(), [](PyObject* argument) {
    return THPVariable_Check(argument) && THPVariable_Unpack(argument)._fw_grad(0).defined();
  });
}

using List = py::typing::List<py::object>;

class Function {
 public:
  using Specialize = py::typing::Callable<std::shared_ptr<Program>(py::ellipsis)>;
  using Plain = py::typing::Callable<py::typing::Iterable<py::object>(py::ellipsis)>;

  // `specialize(arguments)` returns the Program for arguments that have none yet. `plain(arguments)` does the same as
  // the programs by PyTorch's own calls. It runs for arguments without values, and for those with tangents, which a
  // program would drop.
  Function(Specialize specialize, Plain plain) : specialize_(std::move(specialize)), plain_(std::move(plain)) {}

  // Takes a list, which is empty afterwards (PyTorch's boxed calling convention), so arguments are released early.
  List call(const List& arguments) {
    py::list results = run(arguments);
    PyList_SetSlice(arguments.ptr(), 0, PyList_GET_SIZE(arguments.ptr()), nullptr);
    return results;
  }

  List call_with(const py::Args<py::object>& arguments) {
    const at::NoGradGuard no_grad;
    return run(arguments);
  }

  void add(std::shared_ptr<Program> program) {
    programs_.insert(programs_.begin(), std::move(program));
    if (programs_.size() > kMostPrograms) programs_.pop_back();
  }
  const std::vector<std::shared_ptr<Program>>& programs() const { return programs_; }

 private:
  py::list run(const auto& arguments) {
    const auto items = items_of(arguments);
    if (has_no_values(items) || has_tangents(items)) return py::list(plain_(arguments));
    std::vector<Given> given;
    given.reserve(arguments.size());
    for (const py::handle argument : arguments) given.push_back(given_of(argument.ptr()));
    const std::shared_ptr<Program> program = find(arguments, given);
    std::vector<at::Tensor> tensors;
    try {
      program->graph->call(given, tensors, /*may_record=*/true);
    } catch (const graph::DependsOnData&) {  // thrown before anything runs
      return py::list(plain_(arguments));
    }
    py::list results(program->constants.size());
    size_t next = 0;
    for (size_t i = 0; i < program->constants.size(); ++i) {
      PyObject* value = program->constants[i] ? py::object(program->constants[i]).release().ptr()
                                              : THPVariable_Wrap(std::move(tensors[next++]));
      PyList_SET_ITEM(results.ptr(), static_cast<Py_ssize_t>(i), value);
    }
    return results;
  }

  std::shared_ptr<Program> find(const py::object& arguments, const std::vector<Given>& given) {
    for (auto it = programs_.begin(); it != programs_.end(); ++it) {
      if (!(*it)->graph->matches(given)) continue;
      std::rotate(programs_.begin(), it, it + 1);  // the latest comes first
      return programs_.front();
    }
    auto program = specialize_(arguments).cast<std::shared_ptr<Program>>();
    TORCH_INTERNAL_ASSERT(program->graph->matches(given), "a traced function does not fit its own arguments");
    add(program);
    return program;
  }

  // A number that counts up makes a Program for each value. They share an executable, so another one costs a trace.
  static constexpr size_t kMostPrograms = 256;
  py::function specialize_, plain_;
  std::vector<std::shared_ptr<Program>> programs_;
};

// A compiled function that is valid while its arguments share memory as they did when it was compiled.
class Shared {
 public:
  using Otherwise = py::typing::Callable<py::object(size_t, size_t, Objects)>;

  // `updated`, `groups`: as for Overlaps; a group is named by its first argument. `offsets`: what the storage offset of
  // each argument of a group was. `otherwise(a, b, arguments)` runs instead if memory is shared in another way, first
  // by arguments a and b.
  Shared(py::object compiled, Otherwise otherwise, const std::vector<uint32_t>& updated, const std::vector<int>& groups,
         std::vector<int64_t> offsets)
      : compiled_(std::move(compiled)),
        otherwise_(std::move(otherwise)),
        groups_(groups),
        offsets_(std::move(offsets)),
        overlaps_(updated, groups.size(), groups) {}

  py::object call(const py::Args<py::object>& arguments) {
    const auto items = items_of(arguments);
    std::vector<const at::Tensor*> tensors(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      if (THPVariable_Check(items[i])) tensors[i] = &THPVariable_Unpack(items[i]);
    }
    std::optional<std::pair<size_t, size_t>> changed = moved(tensors);
    if (!changed) changed = overlaps_.find(tensors);
    if (changed) return otherwise_(changed->first, changed->second, arguments);
    PyObject* result = PyObject_Call(compiled_.ptr(), arguments.ptr(), nullptr);
    if (!result) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(result);
  }

 private:
  // Returns two arguments of a group that are no longer at the same places of one storage.
  std::optional<std::pair<size_t, size_t>> moved(const std::vector<const at::Tensor*>& tensors) const {
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (groups_[i] < 0) continue;
      const auto first = static_cast<size_t>(groups_[i]);
      const auto stays = [&](size_t k) { return tensors[k]->storage_offset() == offsets_[k]; };
      if (i != first && !(tensors[i]->is_alias_of(*tensors[first]) && stays(i) && stays(first))) {
        return std::pair(first, i);
      }
    }
    return std::nullopt;
  }

  py::object compiled_;
  py::function otherwise_;
  std::vector<int> groups_;
  std::vector<int64_t> offsets_;
  engine::Overlaps overlaps_;  // guarded by the GIL
};

}  // namespace

void bind_compiled(py::module_& m) {
  m.def(
      "has_no_values", [](const Objects& arguments) { return has_no_values(items_of(arguments)); },
      "Returns whether a call has nothing to compute with: PyTorch is tracing, or an argument is a fake tensor or a "
      "symbolic integer.");
  m.def("begin_assertions", &device::begin_assertions,
        "Opens a scope of assertions: a part of a trace that computes its own, such as the body of a loop.");
  m.def("end_assertions", &device::end_assertions, "Closes the innermost scope of assertions.");
  m.def("assert_zero", &device::assert_zero, py::arg("violations"), py::arg("error"), py::arg("message"),
        "Asserts that ``violations``, a tensor of integers or booleans, is zero whenever the traced function runs. "
        "Otherwise the exception type named by ``error`` is raised; ``{}`` in ``message`` is the first element that "
        "isn't zero, ``{index}`` its index.");
  m.def(
      "take_assertions",
      []() -> std::optional<at::Tensor> {
        const at::Tensor token = device::take_assertions();
        return token.defined() ? std::optional(token) : std::nullopt;
      },
      "Returns a tensor that depends on every assertion of the scope, and clears them. Returns None if there are "
      "none.");
  m.def(
      "depending", &device::depending, py::arg("result"), py::arg("taken"),
      "Returns ``result``, made to depend on ``taken``, so that a program which returns it evaluates the assertions.");
  py::class_<Program, std::shared_ptr<Program>>(
      m, "Program", "A traced function, compiled for arguments of given dtypes, sizes and strides.")
      .def_property_readonly(
          "mutated", [](const Program& p) { return p.graph->mutated(); },
          "Indices of the arguments that a call updates in place.");
  py::class_<Trace>(
      m, "Trace",
      "Records a function: first placeholders for its arguments, then the calls made on them, then the program.")
      .def(py::init<std::optional<c10::DeviceIndex>>(), py::arg("device") = std::nullopt,
           "Begins a trace on the pjrt device with this index. Default: the current one.")
      .def("tensor", &add_tensor, py::arg("device"), py::arg("dtype"), py::arg("sizes"), py::arg("strides"),
           py::arg("conjugate") = false, py::arg("negative") = false,
           "Adds a tensor argument. Returns its placeholder, a pjrt tensor with this dtype, these sizes and strides.")
      .def(
          "number", [](Trace& trace, py::handle value) { trace.add_number(given_of(value.ptr()).number); },
          "Adds a Python bool, int or float as an argument.")
      .def("changed", &Trace::changed, "Returns for each argument whether its memory has a new value.")
      .def("reached", &Trace::reached,
           "Returns for each argument whether the given tensors depend on its initial value.")
      .def("alias", &Trace::alias, "Returns another tensor with the initial value of the argument with this index.")
      .def_static("same", &engine::is_same,
                  "Returns whether two tensors were computed in the same way from the same values.")
      .def_static("is_known", &engine::is_known, "Returns whether a tensor has the same value in every call.")
      .def("keep", &Trace::keep, "Removes the arguments that nothing depends on.")
      .def("compile", &compile, py::arg("results"), py::arg("devices"), py::arg("random_device"),
           py::arg("also") = std::vector<at::Tensor>(),
           "Compiles the trace, which is empty afterwards. ``devices`` has the device of each result that is a tensor. "
           "``random_device``: the device whose generator random calls use. ``also``: values that are computed without "
           "being results. Raises RuntimeError if XLA refuses the program.");
  py::class_<engine::Region>(m, "Region", "A part of a trace that becomes the body of a loop or one side of a branch.")
      .def(py::init<const std::vector<at::Tensor>&>(), py::arg("operands"),
           "Begins a region with a placeholder for each operand.")
      .def_property_readonly("placeholders", &engine::Region::placeholders,
                             "Tensors that stand for the operands inside the region.")
      .def("finish", &engine::Region::finish, py::arg("results"), "Ends the region with these results.");
  m.def("while_loop", &engine::while_loop, py::arg("operands"), py::arg("carried"), py::arg("condition"),
        py::arg("body"),
        "Records a loop. The first ``carried`` operands change from iteration to iteration. ``condition`` returns a "
        "boolean of one element, ``body`` the next carried values. Returns their final values.");
  m.def("if_else", &engine::if_else, py::arg("predicate"), py::arg("operands"), py::arg("on_true"), py::arg("on_false"),
        "Records a branch. ``predicate`` is a boolean of one element. Both regions return the same dtypes and sizes. "
        "Returns the results of the chosen one.");
  py::class_<Shared>(m, "Shared", "A compiled function that is valid while its arguments share memory as they did.")
      .def(
          py::init<py::object, Shared::Otherwise, const std::vector<uint32_t>&, const std::vector<int>&,
                   std::vector<int64_t>>(),
          py::arg("compiled"), py::arg("otherwise"), py::arg("updated"), py::arg("groups"), py::arg("offsets"),
          "``updated``: indices of the arguments that the function updates in place. ``groups``: for each argument the "
          "first of those that shared memory when it was compiled, or -1. ``offsets``: its offset in that memory. "
          "``otherwise(i, j, arguments)`` computes a call in which arguments i and j share memory differently.")
      .def("call", &Shared::call,
           "Calls the compiled function, or ``otherwise`` if arguments share memory differently from the compiled "
           "call.");
  py::class_<Function> function(
      m, "Function", py::dynamic_attr(),
      "A traced function with a program for each set of argument sizes. It takes and returns lists.");
  function
      .def(py::init<Function::Specialize, Function::Plain>(), py::arg("specialize"), py::arg("plain"),
           "``specialize(arguments)`` returns the Program for arguments of new sizes. ``plain(arguments)`` computes "
           "the results with PyTorch's own calls, for fake tensors and for forward-mode differentiation.")
      .def("__call__", &Function::call,
           "Calls with a list of tensors, numbers and None, and returns the list of results. The argument list is "
           "empty afterwards, which releases tensors early.")
      .def("call_with", &Function::call_with,
           "Calls with separate arguments, without recording gradients. Returns the list of results.")
      .def("add", &Function::add,
           "Adds a program. The least recently used one is dropped when there are more than 256.")
      .def_property_readonly("programs", &Function::programs, "The programs, the most recently used first.");
}

}  // namespace tpjrt::python
