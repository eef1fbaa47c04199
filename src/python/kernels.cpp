// Kernels whose claims are made in Python.
#include "python/kernels.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/utils/pybind.h>

#include "kernels/claiming.h"
#include "kernels/cpu/digest.h"
#include "kernels/cpu/frozen_weights.h"
#include "pjrt/ffi.h"

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
      m, "Kernel", "who may do a composite; lives for the process")
      .def_property_readonly("composite", &kernels::Kernel::composite)
      .def_property_readonly("platform", &kernels::Kernel::platform)
      .def_property_readonly("label", &kernels::Kernel::label)
      .def("remove", [](const kernels::Kernel& kernel) { kernels::remove(&kernel); });
  py::class_<kernels::FrozenWeight>(m, "FrozenWeight", "a convolution's, as programs find it by its number")
      .def(py::init<>())
      .def_property_readonly("number", &kernels::FrozenWeight::number)
      .def(
          "put",
          [](kernels::FrozenWeight& self, const at::Tensor& weight, std::optional<at::Tensor> bias,
             const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
             const std::vector<int64_t>& dilation, int64_t groups, const std::vector<int64_t>& images) {
            self.put(weight, std::move(bias), {stride, padding, dilation, groups}, images);
          },
          py::arg("weight"), py::arg("bias"), py::arg("stride"), py::arg("padding"), py::arg("dilation"),
          py::arg("groups"), py::arg("images"), "from now on it is this one, for images of these sizes");
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
      py::arg("tensors"), "of the content of tensors on the CPU");
  m.def(
      "add_kernel",
      [](std::string composite, std::string platform, std::string label,
         py::typing::Callable<py::object(py::ellipsis)> claim) {
        return kernels::add(std::make_unique<const PythonKernel>(std::move(composite), std::move(platform),
                                                                 std::move(label), std::move(claim)));
      },
      py::return_value_policy::reference, py::arg("composite"), py::arg("platform"), py::arg("label"),
      py::arg("claim"));
  m.def(
      "add_default_kernel",
      [](std::string composite, std::string platform, std::string label,
         py::typing::Callable<py::object(py::ellipsis)> claim) {
        kernels::add_default(std::make_unique<const PythonKernel>(std::move(composite), std::move(platform),
                                                                  std::move(label), std::move(claim)));
      },
      py::arg("composite"), py::arg("platform"), py::arg("label"), py::arg("claim"),
      "one that nobody has to ask for, for the life of the process");
  m.def(
      "handler_version",
      [](uintptr_t address) {
        const pjrt::FfiVersion version = pjrt::version_of(handler_at(address));
        return std::make_pair(version.major, version.minor);
      },
      py::arg("address"), "of XLA's FFI, that the handler was compiled for; (0, 0): it doesn't tell");
  m.def(
      "register_handler",
      [](const std::string& target, uintptr_t address, const std::string& place) {
        const kernels::Claiming* claiming = kernels::Claiming::current();
        TORCH_CHECK(claiming && claiming->offer(), "handlers are registered while a kernel claims");
        pjrt::register_handler(claiming->client(), target, handler_at(address));
        pjrt::add_place(target, place);
      },
      py::arg("target"), py::arg("address"), py::arg("place"), "with the plugin that the program being made is for");
}

}  // namespace tpjrt::python
