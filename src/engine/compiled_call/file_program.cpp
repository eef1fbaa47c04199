// Converts torch's tensors to the program's and back.
#include "engine/compiled_call/file_program.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "device/services/engine.h"
#include "device/tensor/storage.h"
#include "engine/lower/control_flow.h"
#include "engine/lower/foreign_module.h"
#include "engine/memory/device_data.h"
#include "engine/session/session.h"
#include "runner/inside.h"
#include "runner/tensor.h"

namespace tpjrt::engine {

namespace {

using torch_pjrt::DType;

c10::ScalarType scalar_type(DType dtype) {
  const PJRT_Buffer_Type type = runner::buffer_type(dtype);
  for (int8_t i = 0; i < static_cast<int8_t>(c10::ScalarType::NumOptions); ++i) {
    try {
      if (buffer_type(static_cast<c10::ScalarType>(i)) == type) return static_cast<c10::ScalarType>(i);
    } catch (const c10::Error&) {  // a dtype that StableHLO doesn't have
    }
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "torch has no dtype ", torch_pjrt::name(dtype));
}

// Pairs of the two libraries' types. Built once, because unsupported dtypes throw on the way.
const std::vector<std::pair<DType, c10::ScalarType>>& dtypes() {
  static const auto table = [] {
    std::vector<std::pair<DType, c10::ScalarType>> table;
    for (auto i = static_cast<int>(DType::kBool); i <= static_cast<int>(DType::kFloat8E8M0FNU); ++i) {
      table.emplace_back(static_cast<DType>(i), scalar_type(static_cast<DType>(i)));
    }
    return table;
  }();
  return table;
}

c10::ScalarType to_torch(DType dtype) { return dtypes()[static_cast<size_t>(dtype)].second; }

DType from_torch(c10::ScalarType dtype) {
  for (const auto& [ours, theirs] : dtypes()) {
    if (theirs == dtype) return ours;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "a program in a file takes no tensors of ", dtype);
}

auto run(Session& session, const auto& work) {
  decltype(work()) result;
  try {
    session.without_gil([&] { result = work(); });
  } catch (const torch_pjrt::OutOfMemory& error) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, error.what());
  }
  return result;
}

// Values that have to be computed before a program takes them.
class Pending {
 public:
  Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() {
    std::vector<graph::Value> released;  // freed after the lock is released
    std::lock_guard lock(graph::graph_lock());
    for (const graph::StorageSlot& slot : slots_) released.push_back(slot.value());
    slots_.clear();
  }

  void add(graph::Value value) {
    std::lock_guard lock(graph::graph_lock());
    slots_.emplace_back().bind(std::move(value));
  }
  void run() {
    std::vector<graph::StorageSlot*> slots;
    for (graph::StorageSlot& slot : slots_) slots.push_back(&slot);
    if (!slots.empty()) device::engine().sync(slots, "a call of a program in a file");
  }
  // Returns the value's buffer. Throws if a runtime assertion that it depends on failed (Note [Runtime assertions]).
  std::shared_ptr<pjrt::Buffer> buffer(size_t index, Session& session) const {
    graph::Value value;
    {
      std::lock_guard lock(graph::graph_lock());
      value = slots_[index].value();
    }
    const DeviceData& data = data_of(*value.node);
    if (data.checks) session.without_gil([&] { data.checks->raise(); });
    return data.buffer;
  }

 private:
  std::deque<graph::StorageSlot> slots_;
};

torch_pjrt::Tensor view_of(const at::Tensor& dense) {
  return torch_pjrt::Tensor::view(from_torch(dense.scalar_type()), dense.sizes().vec(), dense.const_data_ptr());
}

at::Tensor on_cpu(const torch_pjrt::Tensor& tensor) {
  const auto options = at::TensorOptions().dtype(to_torch(tensor.dtype()));
  at::Tensor result = at::empty(tensor.shape(), options);
  tensor.copy_to(result.mutable_data_ptr(), tensor.nbytes());
  return result;
}

}  // namespace

FileProgram::FileProgram(Session& session, const std::string& path, const torch_pjrt::Options& options)
    : session_(session), device_(options.device), program_(nullptr) {
  const auto client = session.client().shared_from_this();
  program_ =
      *run(session, [&] { return std::make_shared<torch_pjrt::Program>(runner::open_with(client, options, path)); });
}

std::vector<at::Tensor> FileProgram::call(const std::string& entry, const std::vector<at::Tensor>& arguments,
                                          bool on_device) const {
  std::vector<at::Tensor> dense;  // bases of views
  std::vector<torch_pjrt::Tensor> given(arguments.size());
  Pending pending;
  std::vector<size_t> places;  // indices of pending values among the arguments
  for (size_t i = 0; i < arguments.size(); ++i) {
    const at::Tensor tensor = arguments[i].resolve_conj().resolve_neg();
    if (!device::is_pjrt(tensor)) {
      TORCH_CHECK(tensor.is_cpu(), "argument ", i, " is on ", tensor.device(),
                  ", and a program takes tensors on 'cpu' or 'pjrt'");
      dense.push_back(tensor.contiguous());
      given[i] = view_of(dense.back());
      continue;
    }
    pending.add(contiguous_value(tensor));
    places.push_back(i);
  }
  pending.run();
  for (size_t i = 0; i < places.size(); ++i) {
    const at::Tensor& tensor = arguments[places[i]];
    given[places[i]] =
        runner::on_device(from_torch(tensor.scalar_type()), tensor.sizes().vec(), pending.buffer(i, session_));
  }
  const std::vector<torch_pjrt::Tensor> results = run(session_, [&] {
    const torch_pjrt::Results results = program_.call(entry, given);
    return std::vector<torch_pjrt::Tensor>(results.begin(), results.end());
  });
  std::vector<at::Tensor> tensors;
  for (const torch_pjrt::Tensor& result : results) {
    if (!on_device) {
      tensors.push_back(on_cpu(result));
      continue;
    }
    const graph::TypePtr form = graph::intern_contiguous(to_torch(result.dtype()), result.shape());
    tensors.push_back(device::make_tensor(form, static_cast<c10::DeviceIndex>(device_)));
    std::lock_guard lock(graph::graph_lock());
    device::storage_of(tensors.back())->slot.bind({leaf_of(form, result.inside()->buffer), 0});
  }
  return tensors;
}

at::Tensor FileProgram::state(const std::string& name) const {
  return on_cpu(run(session_, [&] { return program_.state(name); }));
}

void FileProgram::set_state(const std::string& name, const at::Tensor& value) const {
  const at::Tensor dense = value.cpu().contiguous();
  (void)run(session_, [&] {
    program_.set_state(name, view_of(dense));
    return true;
  });
}

}  // namespace tpjrt::engine
