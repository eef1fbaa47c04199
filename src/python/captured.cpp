// Captured: a Program with the locations of its state. A call looks up every location, checks that the value there is
// what the program was made for, and runs the program, without running Python.
#include "python/bindings.h"

#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "engine/compiled_call/overlaps.h"

namespace py = pybind11;

namespace tpjrt::python {
namespace {

using engine::Given;

// The container of the results.
enum class Form : uint8_t { kSingle, kTuple, kList };

class Captured {
 public:
  // `requires_grad`: one entry for each argument of the program, first the call's, then state; -1 means either.
  // `absent`: state whose .grad must not exist. `cleared`: state whose .grad is released after the call. `followers`:
  // for each CPU tensor that must equal a piece of state before the call, and is set to it afterwards, the index of
  // that piece. `names`: of the program's arguments. `reads_addresses`: whether the function compared memory.
  // `parents`: how many dicts of submodules and of hooks. `readers`: how many modules whose attributes it reads.
  Captured(std::shared_ptr<Program> program, std::vector<int> requires_grad, std::vector<size_t> absent,
           std::vector<size_t> cleared, std::vector<size_t> followers, int form, std::vector<std::string> names,
           bool reads_addresses, Py_ssize_t parents, Py_ssize_t readers)
      : program_(std::move(program)),
        requires_grad_(std::move(requires_grad)),
        absent_(std::move(absent)),
        cleared_(std::move(cleared)),
        followers_(std::move(followers)),
        mutated_(program_->graph->mutated()),
        form_(static_cast<Form>(form)),
        names_(std::move(names)),
        parents_(parents),
        readers_(readers),
        compares_(reads_addresses || !mutated_.empty()),
        overlaps_(reads_addresses ? all(names_.size()) : mutated_, requires_grad_.size()) {}

  // `bound`: first a function to call with the arguments if they don't fit or have names (None: the result is
  // NotImplemented), then a container and a key for each piece of state. A dict or list has its key; a tensor has
  // None and is the state itself, and so has a cell; None has the index of another piece, whose .grad is the state.
  // Followers come next, then dicts of submodules and hooks, each with a tuple of the values that it must hold, and last the
  // dict of each module whose attributes are read, with a tuple of their names and values.
  py::object call(const Objects& bound, const py::Args<py::object>& args, const py::KWArgs<py::object>& kwargs) {
    std::vector<at::Tensor> state, followers;
    std::vector<Given> given;
    if (!kwargs.empty() || !find(bound, args, state, followers, given)) return refuse(bound, args, kwargs);
    check_aliases(given);
    std::vector<at::Tensor> results;
    program_->graph->call(given, results);
    for (const uint32_t index : mutated_) {
      c10::TensorImpl* tensor = given[index].tensor->unsafeGetTensorImpl();
      if (!tensor->is_inference()) tensor->bump_version();
    }
    for (size_t i = 0; i < followers.size(); ++i) {
      const at::Tensor& leader = state[followers_[i]];
      std::memcpy(followers[i].mutable_data_ptr(), leader.const_data_ptr(), leader.nbytes());
      if (!followers[i].is_inference()) followers[i].unsafeGetTensorImpl()->bump_version();
    }
    for (const size_t index : cleared_) {
      if (state[index].grad().defined()) state[index].mutable_grad().reset();
    }
    return hand_over(results);
  }

  // Whether a dict has these values, in a tuple of keys and values. NotImplemented stands for a key that is not there.
  static bool has_values(PyObject* entries, PyObject* values) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); i += 2) {
      PyObject* now = PyDict_GetItemWithError(entries, PyTuple_GET_ITEM(values, i));
      if (!now && PyErr_Occurred()) throw py::error_already_set();
      if (!is_as_before(now ? now : Py_NotImplemented, PyTuple_GET_ITEM(values, i + 1))) return false;
    }
    return true;
  }

 private:
  // Whether an attribute holds the object that it held before, or an equal plain value.
  static bool is_as_before(PyObject* now, PyObject* before) {
    if (now == before) return true;
    if (Py_TYPE(now) != Py_TYPE(before)) return false;
    if (PyFloat_CheckExact(now)) {  // 0.0 == -0.0
      const double values[] = {PyFloat_AS_DOUBLE(now), PyFloat_AS_DOUBLE(before)};
      return std::memcmp(&values[0], &values[1], sizeof(double)) == 0;
    }
    const auto agree = [&](Py_ssize_t count, auto item) {
      for (Py_ssize_t i = 0; i < count; ++i) {
        if (!is_as_before(item(now, i), item(before, i))) return false;
      }
      return true;
    };
    if (PyTuple_Check(now)) {
      return PyTuple_GET_SIZE(now) == PyTuple_GET_SIZE(before) &&
             agree(PyTuple_GET_SIZE(now), [](PyObject* of, Py_ssize_t i) { return PyTuple_GET_ITEM(of, i); });
    }
    if (PyList_CheckExact(now)) {
      return PyList_GET_SIZE(now) == PyList_GET_SIZE(before) &&
             agree(PyList_GET_SIZE(now), [](PyObject* of, Py_ssize_t i) { return PyList_GET_ITEM(of, i); });
    }
    if (!PyLong_CheckExact(now) && !PyUnicode_CheckExact(now)) return false;
    return PyObject_RichCompareBool(now, before, Py_EQ) == 1;
  }

  static at::Tensor lookup(PyObject* container, PyObject* key, const std::vector<at::Tensor>& before) {
    PyObject* found = nullptr;
    if (container == Py_None) return before.at(PyLong_AsSize_t(key)).grad();
    if (PyDict_Check(container)) {
      found = PyDict_GetItemWithError(container, key);
      if (!found && PyErr_Occurred()) throw py::error_already_set();
    } else if (PyList_Check(container)) {
      const Py_ssize_t index = PyLong_AsSsize_t(key);
      if (index >= 0 && index < PyList_GET_SIZE(container)) found = PyList_GET_ITEM(container, index);
    } else if (PyCell_Check(container)) {
      found = PyCell_GET(container);
    } else {
      found = container;
    }
    return found && THPVariable_Check(found) ? THPVariable_Unpack(found) : at::Tensor();
  }

  bool find(const Objects& bound, const py::Args<py::object>& args, std::vector<at::Tensor>& state,
            std::vector<at::Tensor>& followers, std::vector<Given>& given) const {
    if (is_traced_by_pytorch()) return false;
    const auto following = static_cast<Py_ssize_t>(followers_.size());
    const Py_ssize_t places = (PyTuple_GET_SIZE(bound.ptr()) - 1) / 2 - following - parents_ - readers_;
    const Py_ssize_t count = PyTuple_GET_SIZE(args.ptr());
    if (static_cast<size_t>(places + count) != requires_grad_.size()) return false;
    state.reserve(static_cast<size_t>(places));
    given.resize(static_cast<size_t>(places + count));
    for (Py_ssize_t i = 0; i < places; ++i) {
      at::Tensor tensor =
          lookup(PyTuple_GET_ITEM(bound.ptr(), 1 + 2 * i), PyTuple_GET_ITEM(bound.ptr(), 2 + 2 * i), state);
      if (!tensor.defined()) return false;
      state.push_back(std::move(tensor));
      given[static_cast<size_t>(count + i)].tensor = &state.back();  // state is reserved, so the pointer stays valid
    }
    for (Py_ssize_t i = 0; i < following; ++i) {
      const Py_ssize_t at = 1 + 2 * (places + i);
      at::Tensor tensor = lookup(PyTuple_GET_ITEM(bound.ptr(), at), PyTuple_GET_ITEM(bound.ptr(), at + 1), state);
      const at::Tensor& leader = state[followers_[static_cast<size_t>(i)]];
      if (!tensor.defined() || has_no_values(tensor) || !tensor.is_cpu() || !leader.is_cpu() ||
          tensor.dtype() != leader.dtype() || tensor.dim() != 0 || leader.dim() != 0 ||
          std::memcmp(tensor.const_data_ptr(), leader.const_data_ptr(), leader.nbytes()) != 0) {
        return false;
      }
      followers.push_back(std::move(tensor));
    }
    for (Py_ssize_t i = places + following; i < places + following + parents_; ++i) {
      if (!holds(PyTuple_GET_ITEM(bound.ptr(), 1 + 2 * i), PyTuple_GET_ITEM(bound.ptr(), 2 + 2 * i))) return false;
    }
    for (Py_ssize_t i = places + following + parents_; i < places + following + parents_ + readers_; ++i) {
      if (!has_values(PyTuple_GET_ITEM(bound.ptr(), 1 + 2 * i), PyTuple_GET_ITEM(bound.ptr(), 2 + 2 * i))) return false;
    }
    if (PyTuple_GET_ITEM(bound.ptr(), 0) != Py_None && has_one_twice(args)) return false;
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* object = PyTuple_GET_ITEM(args.ptr(), i);
      if (!THPVariable_Check(object)) return false;
      given[static_cast<size_t>(i)].tensor = &THPVariable_Unpack(object);
    }
    for (size_t i = 0; i < given.size(); ++i) {
      const at::Tensor& tensor = *given[i].tensor;
      if (requires_grad_[i] >= 0 && tensor.requires_grad() != (requires_grad_[i] == 1)) return false;
      if (tensor.is_conj() || tensor.is_neg() || has_no_values(tensor)) return false;
    }
    for (const size_t index : absent_) {
      if (state[index].grad().defined()) return false;
    }
    return program_->graph->matches(given);
  }

  // Whether the values of a dict are those of the tuple.
  static bool holds(PyObject* entries, PyObject* values) {
    if (PyDict_GET_SIZE(entries) != PyTuple_GET_SIZE(values)) return false;
    PyObject* value = nullptr;
    for (Py_ssize_t at = 0, i = 0; PyDict_Next(entries, &at, nullptr, &value); ++i) {
      if (value != PyTuple_GET_ITEM(values, i)) return false;
    }
    return true;
  }

  static bool has_one_twice(const py::Args<py::object>& args) {
    c10::SmallVector<PyObject*, 8> objects(PySequence_Fast_ITEMS(args.ptr()),
                                           PySequence_Fast_ITEMS(args.ptr()) + PyTuple_GET_SIZE(args.ptr()));
    std::ranges::sort(objects);
    return std::ranges::adjacent_find(objects) != objects.end();
  }

  static py::object refuse(const Objects& bound, const py::Args<py::object>& args,
                           const py::KWArgs<py::object>& kwargs) {
    PyObject* otherwise = PyTuple_GET_ITEM(bound.ptr(), 0);
    if (otherwise == Py_None) return py::reinterpret_borrow<py::object>(Py_NotImplemented);
    PyObject* result = PyObject_Call(otherwise, args.ptr(), kwargs.ptr());
    if (!result) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(result);
  }

  // Throws if an argument that is updated in place shares memory with another.
  void check_aliases(const std::vector<Given>& given) {
    if (!compares_) return;
    std::vector<const at::Tensor*> tensors(given.size());
    for (size_t i = 0; i < given.size(); ++i) tensors[i] = given[i].tensor;
    const auto shared = overlaps_.find(tensors);
    TORCH_CHECK(!shared, "'", names_[shared->first], "' and '", names_[shared->second],
                "' share memory, and the captured function ",
                mutated_.empty() ? "reads addresses" : "updates memory in place", ". Pass a clone() of one of them");
  }
  static std::vector<uint32_t> all(size_t count) {
    std::vector<uint32_t> indices(count);
    std::iota(indices.begin(), indices.end(), 0);
    return indices;
  }

  py::object hand_over(std::vector<at::Tensor>& tensors) const {
    const auto& constants = program_->constants;
    size_t next = 0;
    const auto result = [&](size_t i) {
      return constants[i] ? py::object(constants[i]).release().ptr() : THPVariable_Wrap(std::move(tensors[next++]));
    };
    if (form_ == Form::kSingle) return py::reinterpret_steal<py::object>(result(0));
    if (form_ == Form::kTuple) {
      py::tuple results(constants.size());
      for (size_t i = 0; i < constants.size(); ++i) {
        PyTuple_SET_ITEM(results.ptr(), static_cast<Py_ssize_t>(i), result(i));
      }
      return results;
    }
    py::list results(constants.size());
    for (size_t i = 0; i < constants.size(); ++i) {
      PyList_SET_ITEM(results.ptr(), static_cast<Py_ssize_t>(i), result(i));
    }
    return results;
  }

  std::shared_ptr<Program> program_;
  std::vector<int> requires_grad_;
  std::vector<size_t> absent_, cleared_, followers_;
  std::vector<uint32_t> mutated_;
  Form form_;
  std::vector<std::string> names_;
  Py_ssize_t parents_, readers_;
  bool compares_;
  engine::Overlaps overlaps_;  // guarded by the GIL
};

}  // namespace

void bind_captured(py::module_& m) {
  py::class_<Captured>(m, "Captured",
                       "A program with the locations of its state, as ``compile_step`` and ``jit`` call it.")
      .def(
          py::init<std::shared_ptr<Program>, std::vector<int>, std::vector<size_t>, std::vector<size_t>,
                   std::vector<size_t>, int, std::vector<std::string>, bool, Py_ssize_t, Py_ssize_t>(),
          py::arg("program"), py::arg("requires_grad"), py::arg("absent"), py::arg("cleared"), py::arg("followers"),
          py::arg("form"), py::arg("names"), py::arg("reads_addresses") = false, py::arg("parents") = 0,
          py::arg("readers") = 0,
          "Takes a program and its conditions. ``requires_grad`` has an entry for each argument of the program, the "
          "call's before the state: 1, 0, or -1 for either. ``absent`` lists state whose ``.grad`` must be None, "
          "``cleared`` state whose ``.grad`` is released after the call. ``followers`` lists, for each CPU scalar that "
          "mirrors a piece of state, the index of that piece. ``form``: 0 returns one result, 1 a tuple, 2 a list. "
          "``names`` are those of the program's arguments.")
      .def("call", &Captured::call,
           "Looks up the state in ``arg0``, verifies it and runs the program without running Python. Returns "
           "NotImplemented, or calls the fallback in ``arg0``, if the arguments don't fit. Raises RuntimeError if an "
           "argument that is updated in place shares memory with another one.")
      .def_static(
          "has_values",
          [](const py::typing::Dict<std::string, py::object>& entries, const Objects& values) {
            return Captured::has_values(entries.ptr(), values.ptr());
          },
          "Returns whether a dict has these values, in a tuple of keys and values in turn: the same objects, or equal "
          "numbers, strings, tuples and lists. NotImplemented stands for a key that is not there.");
}

}  // namespace tpjrt::python
