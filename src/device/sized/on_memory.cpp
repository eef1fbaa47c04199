// Calls PyTorch's kernels on the device's own memory, for ops whose results' sizes depend on data.
#include <algorithm>

#include "device/aten_call/arguments.h"
#include "device/host/host.h"
#include "device/services/engine.h"
#include "device/services/modes.h"
#include "device/sized/sized.h"
#include "device/start/eager.h"
#include "device/tensor/access.h"
#include "device/tensor/factory.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {
namespace {

// The device's tensors among a call's arguments.
class Operands {
 public:
  // Adds a tensor. Returns false if a kernel can't take it unchanged, or if it is on another device.
  bool add(const at::Tensor& tensor) {
    if (!tensor.defined() || !is_pjrt(tensor)) return true;
    if (tensor.layout() != c10::kStrided || tensor.is_conj() || tensor.is_neg()) return false;
    if (rests_on_placeholder(tensor) || (!all_.empty() && tensor.device() != all_[0]->device())) return false;
    all_.push_back(&tensor);
    return true;
  }
  bool add(const c10::IValue& value) {
    if (value.isTensor()) return add(value.toTensor());
    if (!value.isList()) return true;
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor() && !add(element.toTensor())) return false;
    }
    return true;
  }
  c10::ArrayRef<const at::Tensor*> all() const { return all_; }

 private:
  c10::SmallVector<const at::Tensor*, 4> all_;
};

// Returns whether one of the indices is a mask.
bool has_mask(const c10::IValue& indices) {
  const c10::ArrayRef<c10::IValue> all = indices.toListRef();
  return std::any_of(all.begin(), all.end(), [](const c10::IValue& index) {
    if (!index.isTensor() || !index.toTensor().defined()) return false;
    return index.toTensor().scalar_type() == c10::kBool || index.toTensor().scalar_type() == c10::kByte;
  });
}

// Returns whether the sizes are known without running a kernel.
bool has_known_sizes(const Operator& op, c10::ArrayRef<c10::IValue> arguments) {
  if (op.name == "aten::index.Tensor") return !has_mask(arguments[1]);
  return op.name == "aten::repeat_interleave.Tensor" && !arguments[1].isNone();
}

at::Tensor over(const at::Tensor& memory, const at::Tensor& like) {
  const bool is_whole = memory.sizes() == like.sizes() && memory.strides() == like.strides();
  return is_whole && like.storage_offset() == 0
             ? memory
             : memory.as_strided(like.sizes(), like.strides(), like.storage_offset());
}

// Returns the call's arguments with the operands' memory in their places, in order.
c10::IValue on_memory(const c10::IValue& value, c10::ArrayRef<at::Tensor> memory, size_t& next) {
  const auto moved = [&](const c10::IValue& x) -> c10::IValue {
    const bool is_ours = x.isTensor() && x.toTensor().defined() && is_pjrt(x.toTensor());
    return is_ours ? c10::IValue(over(memory[next++], x.toTensor())) : x;
  };
  if (!value.isList()) return moved(value);
  c10::impl::GenericList list(value.toList().elementType());
  for (const c10::IValue& element : value.toListRef()) list.push_back(moved(element));
  return list;
}

}  // namespace

bool run_sized_on_memory(const Operator& op, torch::jit::Stack& stack) {
  if (op.writes || tracing() || stays_lazy() || eager() || strict()) return false;
  const size_t first = stack.size() - op.arguments.size();
  const c10::ArrayRef<c10::IValue> arguments(stack.data() + first, op.arguments.size());
  if (has_known_sizes(op, arguments)) return false;
  Operands operands;
  for (const c10::IValue& value : arguments) {
    if (!operands.add(value)) return false;
  }
  if (operands.all().empty() || !engine().runs_kernels()) return false;
  std::vector<graph::StorageSlot*> slots;
  for (const at::Tensor* tensor : operands.all()) slots.push_back(&storage_of(*tensor)->slot);
  if (slots.size() > 1) engine().sync(slots, op.name.c_str());
  c10::SmallVector<graph::Value, 4> leaves, results;
  for (const at::Tensor* tensor : operands.all()) {
    leaves.push_back(ready_leaf(*tensor, op.name.c_str()));
    if (leaves.back().node->leaf_type->dtype != tensor->scalar_type()) return false;  // it is viewed as another dtype
  }
  const c10::DeviceIndex device = operands.all()[0]->device().index();
  const auto kernel = [&](c10::ArrayRef<at::Tensor> memory) {
    torch::jit::Stack call;
    size_t next = 0;
    for (const c10::IValue& value : arguments) call.push_back(on_memory(value, memory, next));
    op.op.callBoxed(call);
    std::vector<at::Tensor> given;
    take_tensors(call, given);
    return given;
  };
  engine().run_kernel(leaves, kernel, device, results);
  stack.resize(first);
  for (graph::Value& result : results) {
    at::Tensor tensor;
    if (result) {
      tensor = make_tensor(result.node->leaf_type, device);
      const std::lock_guard lock(graph::graph_lock());
      storage_of(tensor)->slot.bind(std::move(result));
    }
    stack.emplace_back(std::move(tensor));
  }
  return true;
}

}  // namespace tpjrt::device
