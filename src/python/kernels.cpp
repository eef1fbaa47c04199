// Kernels whose claims are made in Python.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/utils/pybind.h>

#include "graph/type.h"
#include "kernels/cpu/frozen_weights.h"
#include "kernels/cpu/lstm_layer.h"
#include "kernels/table.h"
#include "pjrt/ffi.h"
#include "python/bindings.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace tpjrt::python {

namespace {

// Returns for each type the dtype, the sizes, and the order of dimensions in memory, the fastest first.
py::list to_python(const std::vector<graph::TypePtr>& types) {
  py::list result;
  for (const graph::TypePtr type : types) {
    const size_t rank = type->sizes.size();
    const graph::Sizes order = type->memory_order();
    py::tuple sizes(rank), layout(rank);
    for (size_t i = 0; i < rank; ++i) {
      sizes[i] = py::int_(type->sizes[i]);
      layout[i] = py::int_(order[rank - 1 - i]);
    }
    const auto dtype = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(type->dtype)));
    result.append(py::make_tuple(dtype, sizes, layout));
  }
  return result;
}

// Returns the result of a Python function of tensors.
std::vector<at::Tensor> called(const std::shared_ptr<py::function>& function, const std::vector<at::Tensor>& tensors) {
  const py::gil_scoped_acquire gil;
  return (*function)(tensors).cast<std::vector<at::Tensor>>();
}

class PythonKernel : public kernels::Kernel {
 public:
  // `claim` takes the composite, the platform, attributes, operands, results, the user's file and line. It returns
  // the reason why it declines, or the name and the text of functions, or a function of a list of tensors.
  PythonKernel(std::string composite, std::string platform, std::string label, py::function claim)
      : Kernel(std::move(composite), std::move(platform), std::move(label)), claim_(std::move(claim)) {}

  kernels::Claim claim(const kernels::Offer& offer) const override {
    const py::gil_scoped_acquire gil;
    const py::object said = claim_(offer.composite, offer.platform, offer.attributes, to_python(offer.operands),
                                   to_python(offer.results), offer.file, offer.line);
    kernels::Claim claim;
    if (py::isinstance<py::str>(said)) {
      claim.declined = said.cast<std::string>();
    } else if (py::isinstance<py::tuple>(said)) {
      std::tie(claim.name, claim.functions) = said.cast<std::pair<std::string, std::string>>();
    } else {
      // The function is released under the GIL.
      const std::shared_ptr<py::function> function(new py::function(said.cast<py::function>()), [](auto* one) {
        const py::gil_scoped_acquire last;
        delete one;
      });
      claim.record = [function](const std::vector<at::Tensor>& tensors) { return called(function, tensors); };
    }
    return claim;
  }

 private:
  py::function claim_;
};

XLA_FFI_Handler* handler_at(uintptr_t address) { return reinterpret_cast<XLA_FFI_Handler*>(address); }

}  // namespace

void bind_kernels(py::module& m) {
  py::class_<kernels::Kernel, std::unique_ptr<kernels::Kernel, py::nodelete>>(
      m, "Kernel", "A registered kernel, which may replace a composite. It exists until the process ends.")
      .def_property_readonly("composite", &kernels::Kernel::composite, "The name of the composite that it replaces.")
      .def_property_readonly("platform", &kernels::Kernel::platform,
                             "The platform that it is for, such as \"cpu\" or \"cuda\".")
      .def_property_readonly("label", &kernels::Kernel::label, "The name under which ``explain()`` reports it.")
      .def(
          "remove", [](const kernels::Kernel& kernel) { kernels::remove(&kernel); },
          "Removes the kernel. Programs that already call it keep it.");
  py::class_<kernels::FrozenWeight>(m, "FrozenWeight",
                                    "A frozen convolution weight, which programs find by its number.")
      .def(py::init<>(), "Makes an entry without a weight.")
      .def_property_readonly("number", &kernels::FrozenWeight::number, "The number by which programs find the weight.")
      .def(
          "put",
          [](kernels::FrozenWeight& self, const at::Tensor& weight, std::optional<at::Tensor> bias,
             const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
             const std::vector<int64_t>& dilation, int64_t groups, const std::vector<int64_t>& images) {
            self.put(weight, std::move(bias), {stride, padding, dilation, groups}, images);
          },
          py::arg("weight"), py::arg("bias"), py::arg("stride"), py::arg("padding"), py::arg("dilation"),
          py::arg("groups"), py::arg("images"),
          "Sets the weight, of shape (out, in / groups, height, width), for inputs of the sizes ``images``. Calls that "
          "are running keep the previous one.");
  m.def("lstm_workspace_bytes", &kernels::lstm_workspace_bytes, "length"_a, "batch"_a, "features"_a, "hidden"_a,
        "dtype"_a, "Returns the size of what oneDNN keeps of an LSTM's layer for its backward.");
  m.def(
      "digest",
      [](const std::vector<at::Tensor>& tensors) {
        kernels::Digest made;
        {
          const py::gil_scoped_release release;
          made = kernels::digest(tensors);
        }
        return py::bytes(reinterpret_cast<const char*>(made.data()), sizeof made);
      },
      py::arg("tensors"), "Returns a digest of the bytes of CPU tensors.");
  m.def(
      "add_kernel",
      [](std::string composite, std::string platform, std::string label,
         py::typing::Callable<py::object(py::ellipsis)> claim) {
        return kernels::add(std::make_unique<const PythonKernel>(std::move(composite), std::move(platform),
                                                                 std::move(label), std::move(claim)));
      },
      py::return_value_policy::reference, py::arg("composite"), py::arg("platform"), py::arg("label"), py::arg("claim"),
      "Registers a kernel for a composite on a platform. ``claim`` is called when a program with the composite is "
      "made, and returns the call that replaces it, or None.");
  m.def(
      "add_default_kernel",
      [](std::string composite, std::string platform, std::string label,
         py::typing::Callable<py::object(py::ellipsis)> claim) {
        kernels::add_default(std::make_unique<const PythonKernel>(std::move(composite), std::move(platform),
                                                                  std::move(label), std::move(claim)));
      },
      py::arg("composite"), py::arg("platform"), py::arg("label"), py::arg("claim"),
      "Registers a kernel that is used unless ``TORCH_PJRT_LIBRARY_KERNELS=0`` is set. It can't be removed.");
  m.def(
      "handler_version",
      [](uintptr_t address) {
        const pjrt::FfiVersion version = pjrt::version_of(handler_at(address));
        return std::make_pair(version.major, version.minor);
      },
      py::arg("address"),
      "Returns the version (major, minor) of XLA's FFI that a handler was compiled for; (0, 0) if it doesn't report "
      "one.");
  m.def(
      "register_handler",
      [](const std::string& target, uintptr_t address, const std::string& place) {
        const kernels::Claiming* claiming = kernels::Claiming::current();
        TORCH_CHECK(claiming && claiming->offer(), "handlers are registered while a kernel claims");
        pjrt::register_handler(claiming->client(), target, handler_at(address));
        pjrt::add_place(target, place);
      },
      py::arg("target"), py::arg("address"), py::arg("place"),
      "Registers a handler of XLA's FFI with the plugin, under the name ``target``. ``place`` says where it was found. "
      "Raises RuntimeError unless a kernel is being asked for its claim.");
}

}  // namespace tpjrt::python
