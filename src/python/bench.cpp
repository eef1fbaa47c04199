// Loops for ./dev bench: recording from C++, syncs up to execute, and the same program through bare PJRT.
#include "python/bindings.h"

#include <ATen/ops/add.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <map>
#include <string>

#include "device/tensor/storage.h"
#include "engine/executable/xla_options.h"
#include "engine/log/metrics.h"
#include "engine/memory/device_data.h"
#include "engine/run/interpret.h"
#include "engine/run/lazy_engine.h"
#include "graph/signature.h"

namespace py = pybind11;

namespace tpjrt::python {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Returns nanoseconds for one x + y whose result is dropped immediately.
double add_loop(const at::Tensor& x, const at::Tensor& y, int64_t count) {
  py::gil_scoped_release release;
  const int64_t start = now_ns();
  for (int64_t i = 0; i < count; ++i) at::add(x, y);
  return static_cast<double>(now_ns() - start) / static_cast<double>(count);
}

// Runs a StableHLO program as plainly as PJRT allows: host buffers in, execute, wait. In a world it runs on all
// devices.
class BareProgram {
 public:
  explicit BareProgram(const std::string& text) {
    auto options = engine::compile_options(engine::Session::instance().target(), 0, {});
    options.replicas = static_cast<int>(client().replicas());
    executable_ = client().compile(text, options);
  }

  // Uploads the arguments. `overwritten_by[i]` is the result that may be written over argument i, according to the
  // program, or -1. Each execution donates those arguments, and the next one takes the results in their place.
  void set_arguments(const std::vector<at::Tensor>& tensors, std::vector<int64_t> overwritten_by) {
    auto& client = BareProgram::client();
    buffers_.clear();
    for (const at::Tensor& tensor : tensors) {
      buffers_.push_back(client.buffer_from_host(tensor.const_data_ptr(), engine::buffer_type(tensor.scalar_type()),
                                                 tensor.sizes(), pjrt::HostBufferSemantics::kCopy, 0, {}));
    }
    TORCH_CHECK(overwritten_by.size() == buffers_.size(), "one entry an argument");
    overwritten_by_ = std::move(overwritten_by);
  }

  // Returns the seconds of one execution, including the wait for its results.
  double execute() {
    py::gil_scoped_release release;
    std::vector<const pjrt::Buffer*> arguments;
    std::vector<int64_t> kept;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (overwritten_by_[i] < 0) kept.push_back(static_cast<int64_t>(i));
      arguments.push_back(buffers_[i].get());
    }
    const int64_t start = now_ns();
    executable_->execute(arguments, kept, results_);
    for (const auto& result : results_) result->await();
    const double spent = static_cast<double>(now_ns() - start) * 1e-9;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (overwritten_by_[i] >= 0) buffers_[i] = results_[static_cast<size_t>(overwritten_by_[i])];
    }
    return spent;
  }

  // Returns the nanoseconds of one call by a bridge without state: a zero-copy buffer for each tensor, execute, wait,
  // destroy them all.
  double call(const std::vector<at::Tensor>& tensors, int64_t count) const {
    py::gil_scoped_release release;
    auto& client = BareProgram::client();
    std::vector<std::shared_ptr<const pjrt::BufferType>> types;
    for (const at::Tensor& tensor : tensors) {
      types.push_back(
          std::make_shared<const pjrt::BufferType>(engine::buffer_type(tensor.scalar_type()), tensor.sizes().vec()));
    }
    std::vector<std::shared_ptr<pjrt::Buffer>> buffers, results;
    std::vector<const pjrt::Buffer*> arguments;
    const int64_t start = now_ns();
    for (int64_t i = 0; i < count; ++i) {
      for (size_t t = 0; t < tensors.size(); ++t) {
        buffers.push_back(client.buffer_from_host(tensors[t].const_data_ptr(), types[t],
                                                  pjrt::HostBufferSemantics::kZeroCopyImmutable, 0, {}));
        arguments.push_back(buffers.back().get());
      }
      executable_->execute(arguments, {}, results);
      for (const auto& result : results) result->await();
      results.clear();
      buffers.clear();
      arguments.clear();
    }
    return static_cast<double>(now_ns() - start) / static_cast<double>(count);
  }

 private:
  static pjrt::Client& client() { return engine::Session::instance().client(); }

  std::shared_ptr<pjrt::Executable> executable_;
  std::vector<std::shared_ptr<pjrt::Buffer>> buffers_, results_;
  std::vector<int64_t> overwritten_by_;
};

}  // namespace

void bind_bench(py::module_& m) {
  m.def("_bench_add", &add_loop,
        "Returns the nanoseconds of one ``x + y`` called from C++ whose result is dropped: a mean of ``arg2`` calls.");
  m.def(
      "_bench_prepare",
      [](const at::Tensor& tensor) {
        return engine::LazyEngine::instance().prepare_only({&device::storage_of(tensor)->slot});
      },
      "Returns the nanoseconds from the read of a tensor with a known graph to the call of execute, which is not "
      "made.");
  m.def(
      "_calls_counts",
      [] {  // plans made for interpreted runs; host arrays passed to the plugin
        const pjrt::Client& client = engine::Session::instance().client();
        return std::map<std::string, uint64_t>{{"plans_made", engine::CallsPlan::made()},
                                               {"buffers_handed_over", client.handed_over()}};
      },
      "Returns how many plans of interpreted graphs were made, and how many host arrays the plugin uses in place.");
  py::class_<BareProgram>(m, "BareProgram",
                          "A StableHLO program called through the PJRT C API alone: the reference of ``./dev bench``.")
      .def(py::init<const std::string&>(),
           "Compiles StableHLO text for the current client; in a world, for all of its devices.")
      .def("set_arguments", &BareProgram::set_arguments,
           "Uploads CPU tensors as arguments. Entry i of the second list is the result that may be written over "
           "argument i, or -1.")
      .def("execute", &BareProgram::execute,
           "Returns the seconds of one execution, including the wait for its results.")
      .def("call", &BareProgram::call,
           "Returns the nanoseconds of one call that makes buffers over CPU tensors, executes, waits and destroys the "
           "buffers: a mean of ``arg1`` calls.");
}

}  // namespace tpjrt::python
