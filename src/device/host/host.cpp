// Runs an op on the host, and moves whole tensors between host and device.
#include "device/host/host.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_as_sparse.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <utility>

#include "device/aten_call/meta.h"
#include "device/collectives/collectives.h"
#include "device/host/pending_assertions.h"
#include "device/services/counters.h"
#include "device/services/engine.h"
#include "device/services/modes.h"
#include "device/services/python_hooks.h"
#include "device/start/eager_fast_path.h"
#include "device/tensor/access.h"
#include "device/tensor/factory.h"
#include "device/tensor/generator.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

std::string at_line(const Location& location) {
  return location.file.empty() ? "" : " at " + location.file + ":" + std::to_string(location.line);
}

c10::DeviceIndex device_of(const c10::IValue* values, size_t count) {
  const auto index = [](const c10::IValue& value) -> c10::DeviceIndex {
    if (value.isTensor() && value.toTensor().defined() && is_pjrt(value.toTensor()))
      return value.toTensor().device().index();
    return -1;
  };
  for (size_t i = 0; i < count; ++i) {
    if (const auto found = index(values[i]); found >= 0) return found;
    if (!values[i].isList()) continue;
    for (const c10::IValue& element : values[i].toListRef()) {
      if (const auto found = index(element); found >= 0) return found;
    }
  }
  return c10::impl::getDeviceGuardImpl(kPjrt)->getDevice().index();
}

// One call on the host: its arguments as CPU tensors, and the results that go back.
class HostCall {
 public:
  HostCall(const Operator& op, torch::jit::Stack& stack)
      : op_(op), cause_(op.name + " on the host"), first_(stack.size() - op.arguments.size()), stack_(stack) {
    device_ = device_of(stack.data() + first_, op.arguments.size());
  }

  void run() {
    sync_operands();
    torch::jit::Stack host;
    for (size_t i = 0; i < op_.arguments.size(); ++i) host.push_back(argument(op_.arguments[i], stack_[first_ + i]));
    {
      BelowEverything guard;
      op_.op.callBoxed(host);
    }
    for (const Moved& moved : moved_) {
      if (moved.written) write_back(moved);
    }
    torch::jit::Stack returns;
    for (const c10::IValue& value : host) returns.push_back(result(value));
    stack_.resize(first_);
    for (c10::IValue& value : returns) stack_.push_back(std::move(value));
  }

 private:
  struct Moved {
    at::Tensor device, host;
    bool written;
  };

  void sync_operands() {
    std::vector<graph::StorageSlot*> slots;
    const auto add = [&](const c10::IValue& value) {
      if (!value.isTensor() || !value.toTensor().defined() || !is_pjrt(value.toTensor())) return;
      if (value.toTensor().layout() == c10::kStrided) slots.push_back(&storage_of(value.toTensor())->slot);
    };
    for (size_t i = first_; i < stack_.size(); ++i) {
      add(stack_[i]);
      if (!stack_[i].isList()) continue;
      for (const c10::IValue& element : stack_[i].toListRef()) add(element);
    }
    if (!slots.empty()) engine().sync(slots, cause_.c_str());
  }

  at::Tensor to_host(const at::Tensor& tensor, bool written) {
    if (!tensor.defined() || !is_pjrt(tensor)) return tensor;
    for (const Moved& moved : moved_) {
      if (moved.device.is_same(tensor)) return moved.host;
    }
    const bool is_strided = tensor.layout() == c10::kStrided;
    at::Tensor host = is_strided ? host_tensor(tensor, cause_.c_str()) : tensor.cpu();
    if (written && is_strided) host = host.clone();
    // _sparse_mm_reduce_impl computes what its backward reads only if a gradient is required.
    if (!is_strided && tensor.requires_grad()) host.set_requires_grad(true);
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) host.unsafeGetTensorImpl()->set_wrapped_number(true);
    moved_.push_back({tensor, host, written});
    return host;
  }

  c10::IValue argument(const OperatorArgument& argument, const c10::IValue& value) {
    if (argument.kind == ArgumentKind::kGenerator && !value.isNone() && value.toGenerator().device().type() == kPjrt) {
      auto generator = at::detail::createCPUGenerator();
      const auto key = next_key(value.toGenerator(), device_);
      generator.set_current_seed(key.first * 0x9E3779B97F4A7C15ULL + key.second);
      return generator;
    }
    if (value.isTensor()) return to_host(value.toTensor(), argument.written);
    if (value.isDevice() && value.toDevice().type() == kPjrt) return c10::Device(c10::kCPU);
    if (argument.kind == ArgumentKind::kTensorList && value.isList()) {
      c10::impl::GenericList list(value.toList().elementType());
      for (const c10::IValue& element : value.toListRef()) {
        list.push_back(element.isTensor() ? c10::IValue(to_host(element.toTensor(), argument.written)) : element);
      }
      return list;
    }
    return value;
  }

  void write_back(const Moved& moved) {
    if (moved.device.layout() != c10::kStrided) {
      at::resize_as_sparse_(moved.device, moved.host);
    } else if (moved.device.sizes() != moved.host.sizes()) {
      moved.device.resize_(moved.host.sizes());
      if (moved.host.is_non_overlapping_and_dense()) {
        moved.device.unsafeGetTensorImpl()->set_sizes_and_strides(moved.host.sizes(), moved.host.strides());
      }
    }
    moved.device.copy_(moved.host);
  }

  at::Tensor back(const at::Tensor& host) {
    if (!host.defined()) return host;
    for (const Moved& moved : moved_) {
      if (moved.host.is_same(host)) return moved.device;
    }
    if (host.layout() != c10::kStrided) return host.to(c10::Device(kPjrt, device_));
    return device_tensor(host, device_, host.use_count() <= 2);
  }

  c10::IValue result(const c10::IValue& value) {
    if (value.isTensor()) return back(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(back(tensor));
      return list;
    }
    return value;
  }

  const Operator& op_;
  const std::string cause_;  // the cause of the sync
  size_t first_;
  torch::jit::Stack& stack_;
  c10::DeviceIndex device_ = 0;
  std::vector<Moved> moved_;
};

constexpr const char* kShapeDependsOnData = "its result's shape depends on data";
constexpr const char* kDependsOnData = "its result depends on data";
constexpr const char* kNoMeta = "it has no Meta kernel, which would tell what its results look like";
constexpr const char* kRefused = "its Meta kernel refuses what the CPU's takes";

bool has_shape_of_data(const Operator& op) { return op.op.hasTag(at::Tag::dynamic_output_shape); }

bool is_not_implemented(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::NotImplementedError&) {
    return true;
  } catch (...) {
    return false;
  }
}

// Counts an op that cuts the graph on every device, such as one whose result's shape depends on data, without a
// warning where the device's memory is the host's: there the cut is the only cost.
void note(const std::string& op, const char* reason, bool only_cuts) {
  const bool copies = engine().report_host_call(op, reason);
  if (counters().count_fallback(op) && (copies || !only_cuts)) {
    const Location location = user_location();
    TORCH_WARN("[", op, "] runs on the host", at_line(location), ": ", reason,
               ". The graph is cut there; torch_pjrt.metrics()['host_fallbacks'] counts each case, TORCH_PJRT_STRICT=1 "
               "makes it an error.");
  }
}

at::Tensor host_tensor_of(const graph::Value& leaf, const at::Tensor& tensor, size_t rank = 0) {
  at::Tensor base = engine().host_view(leaf, rank);
  const auto itemsize = static_cast<int64_t>(c10::elementSize(tensor.scalar_type()));
  auto* data = static_cast<char*>(const_cast<void*>(base.const_data_ptr()));
  return at::from_blob(
      data + tensor.storage_offset() * itemsize, tensor.sizes(), tensor.strides(), [base](void*) {},
      at::TensorOptions(c10::kCPU).dtype(tensor.dtype()));
}

}  // namespace

void check_may_run_on_host(const std::string& op, const char* reason) {
  TORCH_CHECK_NOT_IMPLEMENTED(!tracing(), reason);
  TORCH_CHECK(!strict(), "[", op, "] would run on the host", at_line(user_location()), ": ", reason,
              " (an error because strict mode is on: TORCH_PJRT_STRICT=1)");
}

void note_on_host(const std::string& op, const char* reason) { note(op, reason, true); }

void call_on_host(const Operator& op, torch::jit::Stack& stack) { HostCall(op, stack).run(); }

void run_on_host(const Operator& op, torch::jit::Stack& stack, const char* reason) {
  check_may_run_on_host(op.name, reason);
  TORCH_CHECK_NOT_IMPLEMENTED(op.op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU), "[", op.name, "] ", reason);
  call_on_host(op, stack);  // throws while a graph is traced, before anything ran
  note(op.name, reason, has_shape_of_data(op));
}

void run_on_host_after_meta(const Operator& op, torch::jit::Stack& stack, std::exception_ptr meta_error) {
  // Ops that fail without a mistake of the user's are tagged, or have a Meta kernel that reports "not implemented".
  const bool is_tagged = has_shape_of_data(op) || op.op.hasTag(at::Tag::data_dependent_output);
  const bool has_no_meta = is_not_implemented(meta_error);
  const char* reason = has_shape_of_data(op) ? kShapeDependsOnData
                       : is_tagged           ? kDependsOnData
                       : has_no_meta         ? kNoMeta
                                             : kRefused;
  if ((tracing() || strict()) && is_tagged) return run_on_host(op, stack, reason);
  const bool is_on_cpu = op.op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  if (tracing() || !is_on_cpu) std::rethrow_exception(meta_error);
  if (strict()) {
    if (!has_no_meta) std::rethrow_exception(meta_error);
    return run_on_host(op, stack, reason);
  }
  call_on_host(op, stack);
  note(op.name, reason, has_shape_of_data(op));
}

graph::Value value_in_trace(const at::Tensor& tensor) {
  graph::Value value;
  {
    std::lock_guard lock(graph::graph_lock());
    value = storage_of(tensor)->slot.value();
  }
  if (!value) return {};
  if (!value.is_leaf()) return engine().known(value);
  return value.node->data ? value : graph::Value();
}

graph::Value ready_leaf(const at::Tensor& tensor, const char* cause) {
  LazyStorage* storage = storage_of(tensor);
  for (bool is_synced = false;; is_synced = true) {
    graph::Value leaf;
    uint32_t eager_calls = 0;
    {
      std::lock_guard lock(graph::graph_lock());
      eager_calls = end_interval();
      if (!storage->slot.value()) read(tensor);  // memory that was never written becomes a value
      if (storage->slot.value().is_leaf() && storage->slot.value().node->data) leaf = storage->slot.value();
    }
    if (C10_UNLIKELY(eager_calls > 0)) engine().count_eager_calls(eager_calls, cause, leaf && !is_synced);
    if (leaf) return leaf;
    if (C10_UNLIKELY(tracing())) {
      if (graph::Value known = value_in_trace(tensor)) return known;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(!tracing(), "a tensor's value is needed (", cause,
                                ") while a program is made of the function, and only a run has values");
    const std::vector<at::Tensor> asserted = pending_assertions();
    std::vector<graph::StorageSlot*> slots{&storage->slot};
    for (const at::Tensor& each : asserted) slots.push_back(&storage_of(each)->slot);
    engine().sync(slots, cause);  // another thread may write to the storage before its leaf is held here
    if (!asserted.empty()) (void)pending_assertions();  // drops those that have run, so that this read raises
  }
}

at::Tensor host_tensor(const at::Tensor& tensor, const char* cause) {
  const graph::Value leaf = ready_leaf(tensor, cause);
  world::check_one_value(leaf, cause);
  return host_tensor_of(leaf, tensor);
}

bool has_one_value(const at::Tensor& tensor) {
  return world::has_one_value(ready_leaf(tensor.detach(), "comparison of ranks"));
}

at::Tensor values_of_rank(const at::Tensor& tensor, size_t rank) {
  const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg();
  return host_tensor_of(ready_leaf(plain, "read of a rank's values"), plain, rank).clone();
}

at::Tensor device_tensor(const at::Tensor& tensor, c10::DeviceIndex device, bool owned) {
  at::Tensor dense = tensor.resolve_conj().resolve_neg();
  if (!dense.is_non_overlapping_and_dense()) {
    dense = dense.clone(at::MemoryFormat::Contiguous);
    owned = true;
  }
  at::Tensor result = make_tensor(type_of(dense), device);
  graph::Value leaf = engine().upload(dense, device, owned);
  std::lock_guard lock(graph::graph_lock());
  storage_of(result)->slot.bind(std::move(leaf));
  return result;
}

at::Tensor borrowing_tensor(const at::Tensor& tensor, c10::DeviceIndex device) {
  if (!tensor.is_non_overlapping_and_dense() || !is_supported(tensor.scalar_type())) return {};
  at::Tensor result = make_tensor(type_of(tensor), device);
  graph::Value leaf = engine().borrow(tensor, device);
  if (!leaf) return {};
  std::lock_guard lock(graph::graph_lock());
  storage_of(result)->slot.bind(std::move(leaf));
  return result;
}

}  // namespace tpjrt::device
