// Makes the caller's tensors from a program's results.
#include "engine/compiled_call/returned.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "device/tensor/access.h"
#include "device/tensor/storage.h"
#include "engine/kernel/kernel_call.h"
#include "engine/memory/device_data.h"
#include "engine/memory/host_memory.h"

namespace tpjrt::engine {

using graph::Value;

namespace {

struct Dim {
  int64_t size, stride, place;  // strides in bytes; where a step of it leads in the dense copy, too
};

// Returns the argument's dimensions and the bytes of an element, outermost first, those joined that are one in memory.
std::vector<Dim> dims_of(const TracedArgument& argument) {
  const auto itemsize = static_cast<int64_t>(c10::elementSize(argument.dtype));
  std::vector<Dim> dims{{itemsize, 1, 1}};
  int64_t place = itemsize;
  for (size_t i = argument.sizes.size(); i-- > 0;) {
    const int64_t size = argument.sizes[i], stride = argument.strides[i] * itemsize;
    if (size == 1) continue;
    if (stride == dims.back().stride * dims.back().size) {
      dims.back().size *= size;
    } else {
      dims.push_back({size, stride, place});
    }
    place *= size;
  }
  std::reverse(dims.begin(), dims.end());
  return dims;
}

// Returns true if the trace saw a dense copy.
bool has_copy(const TracedArgument& argument) {
  return !is_outside(argument.device) && argument.placeholder.strides() != c10::IntArrayRef(argument.strides);
}

}  // namespace

// Each stride and the offset are steps along the argument's dimensions.
bool Returned::Tensor::follow(const TracedArgument& argument) {
  if (argument.placeholder.numel() == 0 || std::count(sizes.begin(), sizes.end(), 0) > 0) return false;
  const auto itemsize = static_cast<int64_t>(c10::elementSize(dtype));
  const std::vector<Dim> dims = dims_of(argument);
  std::vector<int64_t> reach(dims.size());  // the last place along each dimension
  const auto moved = [&](int64_t steps, int64_t times) {
    int64_t bytes = 0;
    for (size_t i = 0; i < dims.size(); ++i) {
      reach[i] += steps / dims[i].place * times;
      bytes += steps / dims[i].place * dims[i].stride;
      steps %= dims[i].place;
    }
    return bytes;
  };
  graph::Sizes own;
  const int64_t begin = moved(offset * itemsize, 1);
  for (size_t i = 0; i < sizes.size(); ++i) own.push_back(moved(strides[i] * itemsize, sizes[i] - 1));
  const bool is_whole_element = moved(1, itemsize - 1) == 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (reach[i] >= dims[i].size) return false;
  }
  if (!is_whole_element || begin % itemsize != 0) return false;
  for (int64_t& stride : own) {
    if (stride % itemsize != 0) return false;
    stride /= itemsize;
  }
  offset = begin / itemsize;
  strides = std::move(own);
  return true;
}

Returned::Returned(const std::vector<TracedResult>& results, const std::vector<TracedArgument>& arguments,
                   std::vector<Value>& values) {
  std::unordered_map<const device::LazyStorage*, uint32_t> by_argument, by_storage;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is_tensor) continue;
    by_argument.emplace(device::storage_of(arguments[i].placeholder), static_cast<uint32_t>(i));
  }
  std::unordered_map<const c10::TensorImpl*, int64_t> by_tensor;
  for (const TracedResult& result : results) {
    const at::Tensor& traced = result.tensor;
    device::LazyStorage* storage = device::storage_of(traced);
    Tensor tensor;
    const auto [first, is_new] = by_tensor.emplace(traced.unsafeGetTensorImpl(), static_cast<int64_t>(tensors_.size()));
    if (!is_new) tensor.twin = first->second;
    tensor.dtype = traced.scalar_type();
    tensor.sizes.assign(traced.sizes().begin(), traced.sizes().end());
    tensor.strides.assign(traced.strides().begin(), traced.strides().end());
    tensor.offset = traced.storage_offset();
    const auto it = by_argument.find(storage);
    const TracedArgument* of = it == by_argument.end() ? nullptr : &arguments[it->second];
    tensor.whole = of && tensor.dtype == of->dtype && tensor.offset == 0 && tensor.sizes == of->sizes &&
                   traced.strides() == (has_copy(*of) ? of->placeholder.strides() : c10::IntArrayRef(of->strides));
    if (tensor.whole || (of && (!has_copy(*of) || tensor.follow(*of)))) {
      tensor.is_argument = true;
      tensor.index = it->second;
    } else {
      const auto [slot, fresh] = by_storage.emplace(storage, static_cast<uint32_t>(storages_.size()));
      if (fresh) {
        (void)device::read(traced);  // gives memory that was never written a value
        storages_.push_back({static_cast<uint32_t>(values.size()), storage->slot.value().type(), result.device});
        values.push_back(storage->slot.value());
      }
      tensor.index = slot->second;
    }
    tensors_.push_back(std::move(tensor));
  }
}

std::vector<uint32_t> Returned::choose_supplied(const std::vector<Value>& values) {
  std::vector<uint32_t> chosen;
  for (Storage& storage : storages_) {
    const Value& value = values[storage.result];
    const bool is_large = storage.device.is_cpu() && storage.form->nbytes() >= SuppliedResult::kFewestBytes;
    if (!is_large || value.node->is_leaf() || std::count(values.begin(), values.end(), value) > 1) continue;
    storage.supplied = static_cast<int64_t>(supplied_.size());
    supplied_.emplace_back(storage.form);
    chosen.push_back(storage.result);
  }
  return chosen;
}

std::vector<Value> Returned::of_storages(const std::vector<Value>& values) const {
  std::vector<Value> found;
  for (const Storage& storage : storages_) found.push_back(values[storage.result]);
  return found;
}

void Returned::place(const std::vector<int64_t>& places) {
  for (Storage& storage : storages_) storage.result = static_cast<uint32_t>(places[storage.result]);
}

bool Returned::any_on_cpu() const {
  return std::any_of(storages_.begin(), storages_.end(), [](const Storage& one) { return one.device.is_cpu(); });
}

std::vector<Returned::OnCpu> Returned::on_cpu() const {
  std::vector<OnCpu> found;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    if (tensor.is_argument || !storages_[tensor.index].device.is_cpu()) continue;
    found.push_back({storages_[tensor.index].result, "result " + std::to_string(i)});
  }
  return found;
}

std::optional<c10::Device> Returned::cuda() const {
  for (const Storage& storage : storages_) {
    if (storage.device.is_cuda()) return storage.device;
  }
  return std::nullopt;
}

void Returned::bind(CallState& call) {
  for (SuppliedResult& result : supplied_) call.launch.arguments.push_back(result.bind(call.client, call.device));
}

c10::Storage Returned::give(CallState& call, const Storage& storage) {
  std::shared_ptr<pjrt::Buffer> buffer = std::move(call.launch.results[storage.result]);
  if (storage.supplied >= 0) return supplied_[static_cast<size_t>(storage.supplied)].take(std::move(buffer));
  if (is_outside(storage.device)) {
    if (storage.device.is_cpu() && !buffer->host_pointer()) call.count_copy(buffer->size_in_bytes());
    return storage_over(std::move(buffer), *storage.form, storage.device);
  }
  at::Tensor tensor = device::make_tensor(storage.form, storage.device.index());
  std::lock_guard lock(graph::graph_lock());
  device::storage_of(tensor)->slot.bind({call.leaf_of_result(storage.form, std::move(buffer), storage.result), 0});
  return tensor.storage();
}

// Returns where the argument begins in its storage, in elements of a dtype with which it is viewed.
static int64_t offset_of(const at::Tensor& argument, c10::ScalarType dtype) {
  const auto size = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t bytes = argument.storage_offset() * static_cast<int64_t>(argument.itemsize());
  TORCH_CHECK(bytes % size == 0, "self.storage_offset() must be divisible by ", size / argument.itemsize(), " to view ",
              argument.scalar_type(), " as ", dtype, " (different element sizes), but got ", argument.storage_offset());
  return bytes / size;
}

void Returned::give(CallState& call, std::vector<at::Tensor>& results) {
  std::vector<c10::Storage> storages;
  storages.reserve(storages_.size());
  for (const Storage& storage : storages_) storages.push_back(give(call, storage));
  give(call, storages, results);
}

void Returned::give_recorded(const CallState& call, const std::vector<Value>& values,
                             std::vector<at::Tensor>& results) {
  std::vector<c10::Storage> storages;
  for (const Storage& storage : storages_) {
    storages.push_back(device::make_tensor(storage.form, storage.device.index()).storage());
  }
  {
    std::lock_guard lock(graph::graph_lock());
    for (size_t i = 0; i < storages.size(); ++i) device::storage_of(storages[i])->slot.bind(values[i]);
  }
  give(call, storages, results);
}

void Returned::give(const CallState& call, const std::vector<c10::Storage>& storages,
                    std::vector<at::Tensor>& results) const {
  const size_t before = results.size();
  for (const Tensor& tensor : tensors_) {
    if (tensor.twin >= 0) {
      results.push_back(results[before + static_cast<size_t>(tensor.twin)]);
    } else if (!tensor.is_argument) {
      results.push_back(tensor_over(storages[tensor.index], tensor.dtype, tensor.sizes, tensor.strides, tensor.offset));
    } else {
      const at::Tensor& argument = call.tensor(tensor.index);
      results.push_back(tensor.whole ? argument
                                     : tensor_over(argument.storage(), tensor.dtype, tensor.sizes, tensor.strides,
                                                   tensor.offset + offset_of(argument, tensor.dtype)));
    }
  }
}

void Returned::let_go() {
  for (SuppliedResult& result : supplied_) result.let_go();
}

}  // namespace tpjrt::engine
