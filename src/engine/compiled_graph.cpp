// Making a program of a trace, and calling it.
#include "engine/compiled_graph.h"

#include <ATen/ops/clone.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>
#include <c10/util/ApproximateClock.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "device/access.h"
#include "device/counters.h"
#include "device/engine.h"
#include "device/generator.h"
#include "device/modes.h"
#include "device/storage.h"
#include "engine/cuda.h"
#include "engine/device_data.h"
#include "engine/emit_program.h"
#include "engine/host_memory.h"
#include "engine/outside_memory.h"
#include "engine/session.h"

namespace tpjrt::engine {
using graph::Value;

CompiledGraph::Argument CompiledGraph::Argument::tensor(c10::Device device, c10::ScalarType dtype,
                                                        c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  Argument argument;
  argument.is_tensor = true;
  argument.device = device;
  argument.dtype = dtype;
  argument.sizes.assign(sizes.begin(), sizes.end());
  argument.strides.assign(strides.begin(), strides.end());
  c10::DeviceIndex index = 0;  // of the device that computes
  if (!is_outside(device)) index = device.index();
  if (device.is_cuda()) index = static_cast<c10::DeviceIndex>(cuda::device_index(Session::instance().client(), device));
  graph::TypePtr form = graph::intern(dtype, sizes, strides);
  const at::Tensor shape = at::empty_strided(sizes, strides, at::TensorOptions(c10::kMeta).dtype(dtype));
  if (!shape.is_non_overlapping_and_dense()) {
    int64_t span = shape.numel() > 0;
    for (size_t i = 0; span > 0 && i < sizes.size(); ++i) span += (sizes[i] - 1) * strides[i];
    form = is_outside(device) ? graph::intern_contiguous(dtype, {span}) : graph::intern_contiguous(dtype, sizes);
  }
  argument.placeholder = device::make_tensor(form, index);
  argument.leaf = graph::make_leaf(form, nullptr);
  std::lock_guard lock(graph::graph_lock());
  device::storage_of(argument.placeholder)->cell.bind({argument.leaf, 0});
  return argument;
}

CompiledGraph::Argument CompiledGraph::Argument::of(Number number) {
  Argument argument;
  argument.number = number;
  return argument;
}

at::Tensor CompiledGraph::Argument::traced() const {
  at::Tensor tensor = placeholder;
  if (is_outside(device) && placeholder.sizes() != c10::IntArrayRef(sizes))
    tensor = tensor.as_strided(sizes, strides, 0);
  if (conjugate) tensor = tensor.conj();
  return negative ? tensor._neg_view() : tensor;
}

CompiledGraph::CompiledGraph(Session& session, std::vector<Argument> arguments, const std::vector<Result>& results,
                             c10::Device random_device, const std::vector<at::Tensor>& also)
    : session_(session), arguments_(std::move(arguments)), random_device_(random_device) {
  std::vector<Value> values;  // the program's results
  std::vector<Update> updates;
  std::vector<int64_t> new_values(arguments_.size(), -1);
  {
    std::lock_guard lock(graph::graph_lock());
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const Argument& argument = arguments_[i];
      if (!argument.is_tensor) continue;
      if (!argument.device.is_cpu()) device_ = argument.placeholder.device().index();
      if (argument.device.is_cuda()) cuda_ = argument.device;
      on_device_ |= !is_outside(argument.device);
      const Value& value = device::storage_of(argument.placeholder)->cell.value();
      if (value.node == argument.leaf) continue;
      const graph::TensorType &memory = *argument.leaf->leaf_type, &given = *value.type();
      TORCH_CHECK_NOT_IMPLEMENTED(memory.dtype == given.dtype && memory.sizes == given.sizes,
                                  "the traced function gives argument ", i, " memory of another size");
      mutated_.push_back(static_cast<uint32_t>(i));
      new_values[i] = static_cast<int64_t>(values.size());
      const bool may_be_packed = argument.device.is_cpu() && session_.client().is_host_memory();
      updates.push_back({argument.leaf.get(), static_cast<uint32_t>(values.size()), may_be_packed});
      values.push_back(value);
      waits_ |= argument.device.is_cpu();
    }
    trace_results(results, values);
    for (const at::Tensor& tensor : also) values.push_back(device::storage_of(tensor)->cell.value());
  }
  const std::vector<uint32_t> supplied = choose_supplied(values);
  Walk walk;
  session_.exclusively([&] {
    {
      std::lock_guard lock(graph::graph_lock());
      walk_trace(values, updates, supplied, walk);
    }
    program_ = session_.programs.find_or_compile(walk);
  });
  if (program_->requirements)
    waits_ |= !on_device_ && !cuda_;  // an assertion about the CPU's tensors may be all it does
  numbers_ = walk.numbers;
  find_keys();
  bind_leaves(walk, new_values);
  for (Argument& argument : arguments_) {
    argument.placeholder.reset();
    argument.leaf.reset();
  }
}

// What drew with one key in the trace draws with one key in each call: an activation checkpoint draws again what it drew.
void CompiledGraph::find_keys() {
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> met;  // by seed and offset
  for (uint32_t i = 0; i + 1 < numbers_.size(); ++i) {
    if (numbers_[i].kind != graph::Number::Kind::kKey) continue;
    const auto first = met.emplace(std::pair(numbers_[i].bits, numbers_[i + 1].bits), i).first->second;
    keys_.push_back({i++, first});
  }
}

// Which of the program's results are supplied (Note [Supplied results]).
std::vector<uint32_t> CompiledGraph::choose_supplied(const std::vector<Value>& values) {
  std::vector<uint32_t> chosen;
  if (!session_.client().is_host_memory()) return chosen;
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

// Finds out where each argument of the program comes from, and where its results go. `new_values`: of each argument of
// the call, the result that is its new value, or -1.
void CompiledGraph::bind_leaves(const Walk& walk, const std::vector<int64_t>& new_values) {
  std::unordered_map<const graph::Node*, uint32_t> by_leaf;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (arguments_[i].is_tensor) by_leaf.emplace(arguments_[i].leaf.get(), static_cast<uint32_t>(i));
  }
  const std::vector<int64_t> argument_places = engine::argument_places(walk), places = engine::result_places(walk);
  std::vector<bool> updated(arguments_.size()), donated(walk.leaves.size());
  for (const Walk::Alias& alias : walk.aliases) donated[alias.leaf] = true;
  for (size_t i = 0; i < walk.leaves.size() - supplied_.size(); ++i) {
    const graph::NodePtr& leaf = walk.leaves[i];
    const auto at = by_leaf.find(leaf.get());
    if (at != by_leaf.end()) updated[at->second] = true;
    if (argument_places[i] < 0) continue;  // in a pack
    Bound bound;
    bound.form = leaf->leaf_type;
    bound.type = buffer_type(*leaf->leaf_type);
    bound.donated = donated[i];
    if (at == by_leaf.end()) {
      bound.constant = leaf;
    } else {
      bound.argument = at->second;
      if (new_values[bound.argument] >= 0) bound.result = places[static_cast<size_t>(new_values[bound.argument])];
    }
    bound_.push_back(std::move(bound));
  }
  // What is written without being read has no parameter, but its new value has to get there all the same.
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (new_values[i] < 0 || updated[i]) continue;
    const auto result = static_cast<size_t>(new_values[i]);
    Bound bound;
    bound.argument = static_cast<uint32_t>(i);
    bound.result = places[result];
    bound.form = walk.results[result].type();
    bound_.push_back(std::move(bound));
  }
  for (Storage& storage : storages_) storage.result = static_cast<uint32_t>(places[storage.result]);
  auto next = static_cast<uint32_t>(count_of_own(places));
  for (const Pack& pack : walk.packs) {
    BoundPack bound(pack, next++);
    for (const Pack::Piece& piece : pack.pieces) bound.arguments.push_back(by_leaf.at(walk.leaves[piece.leaf].get()));
    packs_.push_back(std::move(bound));
  }
}

// Results that share a storage in the trace share one in each call.
void CompiledGraph::trace_results(const std::vector<Result>& results, std::vector<Value>& values) {
  std::unordered_map<const device::LazyStorage*, uint32_t> by_argument, by_storage;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (!arguments_[i].is_tensor) continue;
    by_argument.emplace(device::storage_of(arguments_[i].placeholder), static_cast<uint32_t>(i));
  }
  std::unordered_map<const c10::TensorImpl*, int64_t> by_tensor;
  for (const Result& result : results) {
    const at::Tensor& tensor = result.traced;
    device::LazyStorage* storage = device::storage_of(tensor);
    Return value;
    const auto [first, is_new] = by_tensor.emplace(tensor.unsafeGetTensorImpl(), static_cast<int64_t>(returns_.size()));
    if (!is_new) value.twin = first->second;
    value.dtype = tensor.scalar_type();
    value.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
    value.strides.assign(tensor.strides().begin(), tensor.strides().end());
    value.offset = tensor.storage_offset();
    if (const auto it = by_argument.find(storage); it != by_argument.end()) {
      const Argument& argument = arguments_[it->second];
      value.source = Return::Source::kArgument;
      value.index = it->second;
      value.whole = value.dtype == argument.dtype && value.offset == 0 && value.sizes == argument.sizes &&
                    value.strides == argument.strides;
    } else {
      const auto [slot, fresh] = by_storage.emplace(storage, static_cast<uint32_t>(storages_.size()));
      if (fresh) {
        (void)device::read(tensor);  // memory that was never written gets a value
        storages_.push_back({static_cast<uint32_t>(values.size()), storage->cell.value().type(), result.device});
        values.push_back(storage->cell.value());
        waits_ |= result.device.is_cpu();
        if (result.device.is_cuda()) cuda_ = result.device;
      }
      value.index = slot->second;
    }
    returns_.push_back(std::move(value));
  }
}

bool is_changed(const CompiledGraph::Argument& argument) {
  if (!argument.is_tensor) return false;
  std::lock_guard lock(graph::graph_lock());
  return device::storage_of(argument.placeholder)->cell.value().node != argument.leaf;
}

namespace {

bool is_same_value(const Value& a, const Value& b, int& budget) {
  if (a.index != b.index || --budget < 0) return false;
  if (a.node == b.node) return true;
  const graph::Node &x = *a.node, &y = *b.node;
  if (x.is_leaf() || y.is_leaf() || x.signature != y.signature || x.operands.size() != y.operands.size() ||
      x.numbers.size() != y.numbers.size()) {
    return false;
  }
  for (size_t i = 0; i < x.numbers.size(); ++i) {
    if (x.numbers[i].kind == graph::Number::Kind::kKey || !(x.numbers[i] == y.numbers[i])) return false;
  }
  for (size_t i = 0; i < x.operands.size(); ++i) {
    if (!is_same_value(x.operands[i], y.operands[i], budget)) return false;
  }
  return true;
}

}  // namespace

bool is_same(const at::Tensor& a, const at::Tensor& b) {
  int budget = 64;  // nodes to look at
  std::lock_guard lock(graph::graph_lock());
  const Value &x = device::storage_of(a)->cell.value(), &y = device::storage_of(b)->cell.value();
  return x && y && is_same_value(x, y, budget);
}

std::vector<bool> reached(const std::vector<CompiledGraph::Argument>& arguments, const std::vector<at::Tensor>& from) {
  std::vector<const graph::Node*> pending;
  std::unordered_set<const graph::Node*> seen;
  const auto visit = [&](const Value& value) {
    if (value && seen.insert(value.node.get()).second) pending.push_back(value.node.get());
  };
  std::lock_guard lock(graph::graph_lock());
  for (const at::Tensor& tensor : from) visit(device::storage_of(tensor)->cell.value());
  while (!pending.empty()) {
    const graph::Node* node = pending.back();
    pending.pop_back();
    for (const Value& operand : node->operands) visit(operand);
  }
  std::vector<bool> result;
  for (const CompiledGraph::Argument& argument : arguments) result.push_back(seen.contains(argument.leaf.get()));
  return result;
}

bool CompiledGraph::matches(const std::vector<Given>& given) const {
  if (given.size() != arguments_.size()) return false;
  for (size_t i = 0; i < given.size(); ++i) {
    const Argument& argument = arguments_[i];
    if (!given[i].tensor) {
      if (argument.is_tensor || given[i].number != argument.number) return false;
      continue;
    }
    const c10::TensorImpl& tensor = *given[i].tensor->unsafeGetTensorImpl();
    if (!argument.is_tensor || tensor.sizes() != c10::IntArrayRef(argument.sizes) ||
        tensor.strides() != c10::IntArrayRef(argument.strides) || tensor.dtype() != argument.dtype ||
        tensor.device() != argument.device || tensor.is_conj() != argument.conjugate ||
        tensor.is_neg() != argument.negative) {
      return false;
    }
  }
  return true;
}

// What the program sees of an argument's memory.
at::Tensor CompiledGraph::memory_of(const Bound& bound, const at::Tensor& tensor) {
  return tensor_over(tensor.storage(), bound.form->dtype, bound.form->sizes, bound.form->strides,
                     tensor.storage_offset());
}

// Pending values of arguments on the device are computed first, all at once; views get a buffer of their own.
void CompiledGraph::ready_device_arguments(const std::vector<Given>& given) {
  std::vector<graph::Cell*> cells;
  for (Bound& bound : bound_) {
    if (bound.constant || !bound.type || arguments_[bound.argument].device.type() != device::kPjrt) continue;
    const at::Tensor& tensor = *given[bound.argument].tensor;
    std::lock_guard lock(graph::graph_lock());
    Value value = device::read(tensor);
    if (value.type() != bound.form) value = device::convert(value, bound.form, tensor.device().index());
    if (value.is_leaf()) {
      bound.leaf = std::move(value);
      continue;
    }
    bound.staged = tensor;
    if (!(device::storage_of(tensor)->cell.value() == value)) {
      bound.staged = device::make_tensor(bound.form, tensor.device().index());
      device::storage_of(bound.staged)->cell.bind(std::move(value));
    }
    cells.push_back(&device::storage_of(bound.staged)->cell);
  }
  if (cells.empty()) return;
  device::engine().sync(cells, "a call of a compiled graph");
  std::vector<at::Tensor> released;  // after the lock: a storage takes it when it dies
  std::lock_guard lock(graph::graph_lock());
  for (Bound& bound : bound_) {
    if (!bound.staged.defined()) continue;
    bound.leaf = device::storage_of(bound.staged)->cell.value();
    released.push_back(std::move(bound.staged));
  }
}

PJRT_Buffer* CompiledGraph::bind_host(Bound& bound, const at::Tensor& tensor) {
  const auto memory_of = [&] { return bound.result >= 0 ? tensor.mutable_data_ptr() : tensor.const_data_ptr(); };
  const void* memory = memory_of();
  if (bound.buffer && bound.memory == memory) return bound.buffer->handle();
  pjrt::Client& client = session_.client();
  const auto device = static_cast<size_t>(device_);
  bound.memory = nullptr;
  const bool in_place = waits_ && client.is_host_memory();
  if (in_place && !is_aligned(memory)) {
    move_out_of_mapped_file(tensor);
    memory = memory_of();  // another call may have moved it, too
  }
  if (in_place && is_aligned(memory)) {
    if (auto own = bound.result < 0 ? own_buffer(tensor, *bound.type) : nullptr) {
      bound.buffer = std::move(own);
      return bound.buffer->handle();  // not kept: the tensor's owner decides how long it lives
    }
    bound.memory = memory;
    bound.buffer = client.buffer_from_host(memory, bound.type, pjrt::HostBufferSemantics::kZeroCopyMutable, device, {});
    bound.buffer->set_counted(false);  // the host's memory
    return bound.buffer->handle();
  }
  if (in_place) check_copy(bound, memory, pjrt::Client::kZeroCopyAlignment);
  count_copy(bound.type->size_in_bytes);
  bound.buffer = client.buffer_from_host(memory, bound.type, pjrt::HostBufferSemantics::kCopy, device, {});
  return bound.buffer->handle();
}

// Copies what XLA can't take where it lies; then, as the copies are queued, too, has the plugin wait for what is queued.
void CompiledGraph::ready_cuda_arguments(const std::vector<Given>& given) {
  bool any = false;
  for (Bound& bound : bound_) {
    if (bound.constant || !bound.type || !arguments_[bound.argument].device.is_cuda()) continue;
    any = true;
    const at::Tensor& tensor = *given[bound.argument].tensor;
    if (reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % cuda::kAlignment == 0) continue;
    check_copy(bound, tensor.const_data_ptr(), cuda::kAlignment);
    copied_bytes_ += static_cast<int64_t>(bound.type->size_in_bytes);
    bound.staged = memory_of(bound, tensor).clone();
  }
  order_.reset();
  if (any) order_ = cuda::after_current_stream(session_.client(), static_cast<size_t>(device_), *cuda_);
}

PJRT_Buffer* CompiledGraph::bind_cuda(Bound& bound, const at::Tensor& tensor) {
  launch_.kept.push_back(
      static_cast<int64_t>(launch_.arguments.size()));  // its memory is PyTorch's: a new value is copied there
  const void* memory = (bound.staged.defined() ? bound.staged : tensor).const_data_ptr();
  if (!order_ && bound.buffer && bound.memory == memory) return bound.buffer->handle();
  bound.memory = nullptr;
  if (auto own = order_ || bound.staged.defined() ? nullptr : own_buffer(tensor, *bound.type)) {
    bound.buffer = std::move(own);
    return bound.buffer->handle();  // not kept: the tensor's owner decides how long it lives
  }
  if (!bound.staged.defined()) bound.memory = memory;
  bound.buffer = session_.client().view_of_device_memory(memory, bound.type, static_cast<size_t>(device_),
                                                         std::exchange(order_, std::nullopt).value_or(0));
  return bound.buffer->handle();
}

void CompiledGraph::check_copy(const Bound& bound, const void* memory, size_t alignment) const {
  TORCH_CHECK(bound.type->size_in_bytes < kNoticedBytes || !device::strict(), "argument ", bound.argument,
              " of a compiled graph, ", graph::to_string(*bound.form), ", would be copied in each call: it is at ",
              memory, ", and memory is used in place at multiples of ", alignment,
              " bytes. Give it memory from PyTorch: x = x.clone() (an error because strict mode is on: "
              "TORCH_PJRT_STRICT=1)");
}

void CompiledGraph::count_copy(size_t bytes) {
  copied_bytes_ += static_cast<int64_t>(bytes);
  device::counters().host_transfer_bytes += bytes;
}

PJRT_Buffer* CompiledGraph::bind(Bound& bound, const at::Tensor& tensor) {
  if (arguments_[bound.argument].device.is_cpu()) return bind_host(bound, tensor);
  if (arguments_[bound.argument].device.is_cuda()) return bind_cuda(bound, tensor);
  const DeviceData& data = data_of(*bound.leaf.node);
  // The storage and this call hold it, nobody else: then nobody can read it afterwards.
  if (bound.donated && (bound.leaf.node.use_count() > 2 || data.is_shared())) {
    launch_.kept.push_back(static_cast<int64_t>(launch_.arguments.size()));
  } else if (bound.donated) {
    launch_.donated.push_back(data.buffer.get());
  }
  return data.buffer->handle();
}

void CompiledGraph::bind_numbers() {
  for (const Key& key : keys_) {
    if (key.first != key.number) {
      std::copy_n(numbers_.begin() + key.first, 2, numbers_.begin() + key.number);
      continue;
    }
    const auto [seed, offset] =
        is_outside(random_device_) ? device::next_key_of(random_device_) : device::next_key(std::nullopt, device_);
    numbers_[key.number] = graph::Number::key(seed);
    numbers_[key.number + 1] = graph::Number::key(offset);
  }
  if (!keys_.empty() || !packed_.made()) packed_.make(session_.client(), *program_, numbers_);
  packed_.append_to(launch_.arguments);
}

void CompiledGraph::run(const std::vector<Given>& given) {
  launch_.clear();
  for (Bound& bound : bound_) {
    if (bound.constant) {
      launch_.arguments.push_back(data_of(*bound.constant).buffer->handle());
    } else if (bound.type) {
      launch_.arguments.push_back(bind(bound, *given[bound.argument].tensor));
    }
  }
  for (SuppliedResult& result : supplied_) {
    launch_.arguments.push_back(result.bind(session_.client(), static_cast<size_t>(device_)));
  }
  for (BoundPack& pack : packs_) {
    for (size_t i = 0; i < pack.arguments.size(); ++i) pack.put(i, *given[pack.arguments[i]].tensor);
    launch_.arguments.push_back(pack.bind(session_.client(), static_cast<size_t>(device_)));
  }
  bind_numbers();
  launch(session_, *program_, launch_, waits_ ? Until::kReady : Until::kStarted,
         mutated_.empty() ? "" : "What it updates in place may have lost its values.");
  if (cuda_ && !launch_.results.empty()) cuda::current_stream_waits(*launch_.results.front(), *cuda_);
}

// New values of arguments: in place already, or put there.
void CompiledGraph::update(const std::vector<Given>& given) {
  for (Bound& bound : bound_) {
    if (bound.result < 0) continue;
    const at::Tensor& tensor = *given[bound.argument].tensor;
    std::shared_ptr<pjrt::Buffer>& output = launch_.results[static_cast<size_t>(bound.result)];
    if (arguments_[bound.argument].device.is_cpu()) {
      void* memory = tensor.mutable_data_ptr();
      const auto nbytes = output->size_in_bytes();
      if (session_.client().is_host_memory() && output->host_pointer() == memory) {
        bound.memory = memory;  // the buffer over it, for the next call
        bound.buffer = output;
        continue;
      }
      if (bound.donated) bound.buffer.reset();
      if (nbytes == 0) continue;
      count_copy(nbytes);
      if (session_.client().is_host_memory()) {
        std::memcpy(memory, output->host_pointer(), nbytes);
      } else {
        output->copy_to_host(memory, nbytes);
      }
      continue;
    }
    if (arguments_[bound.argument].device.is_cuda()) {
      const graph::TensorType& form = *bound.form;
      memory_of(bound, tensor)
          .copy_(tensor_over(storage_over(std::move(output), form, *cuda_), form.dtype, form.sizes, form.strides, 0));
      continue;
    }
    bound.leaf = {};
    std::lock_guard lock(graph::graph_lock());
    device::write(tensor, {graph::make_leaf(bound.form, std::make_shared<DeviceData>(output)), 0});
  }
  for (BoundPack& pack : packs_) {
    pack.take(launch_.results);
    for (size_t i = 0; i < pack.arguments.size(); ++i) pack.get(i, *given[pack.arguments[i]].tensor);
  }
}

void CompiledGraph::give(const std::vector<Given>& given, std::vector<at::Tensor>& results) {
  std::vector<c10::Storage> storages(storages_.size());
  for (size_t i = 0; i < storages_.size(); ++i) {
    const Storage& storage = storages_[i];
    std::shared_ptr<pjrt::Buffer> buffer = std::move(launch_.results[storage.result]);
    if (storage.supplied >= 0) {
      storages[i] = supplied_[static_cast<size_t>(storage.supplied)].take(std::move(buffer));
      continue;
    }
    if (is_outside(storage.device)) {
      if (storage.device.is_cpu() && !session_.client().is_host_memory()) count_copy(buffer->size_in_bytes());
      storages[i] = storage_over(std::move(buffer), *storage.form, storage.device);
      continue;
    }
    at::Tensor tensor = device::make_tensor(storage.form, storage.device.index());
    std::lock_guard lock(graph::graph_lock());
    device::storage_of(tensor)->cell.bind(
        {graph::make_leaf(storage.form, std::make_shared<DeviceData>(std::move(buffer))), 0});
    storages[i] = tensor.storage();
  }
  const size_t before = results.size();
  for (const Return& value : returns_) {
    if (value.twin >= 0) {
      results.push_back(results[before + static_cast<size_t>(value.twin)]);
      continue;
    }
    if (value.source == Return::Source::kStorage) {
      results.push_back(tensor_over(storages[value.index], value.dtype, value.sizes, value.strides, value.offset));
      continue;
    }
    const at::Tensor& argument = *given[value.index].tensor;
    results.push_back(value.whole ? argument
                                  : tensor_over(argument.storage(), value.dtype, value.sizes, value.strides,
                                                value.offset + argument.storage_offset()));
  }
}

// What holds between calls: buffers over memory that the last call used, when it went well.
void CompiledGraph::release(bool went_well) {
  launch_.clear();
  if (!went_well) {
    for (BoundPack& pack : packs_) pack.let_go();
    for (SuppliedResult& result : supplied_) result.let_go();
  }
  for (Bound& bound : bound_) {
    bound.leaf = {};
    bound.staged.reset();
    if (!went_well) bound.memory = nullptr;  // a buffer may have been donated to a program that failed
    // A buffer of somebody else's result, or a copy: not to be kept alive from here.
    if (!bound.memory) bound.buffer.reset();
  }
}

void CompiledGraph::call(const std::vector<Given>& given, std::vector<at::Tensor>& results) {
  check_process();
  const device::Location where = session_.logged_location();
  session_.without_gil([&] {
    std::lock_guard guard(lock_);
    if (calls_ < 2 && ++calls_ == 2 && !supplied_.empty()) return_freed_memory();  // what tracing it has left
    try {
      copied_bytes_ = 0;
      if (on_device_) ready_device_arguments(given);
      if (cuda_) ready_cuda_arguments(given);
      const bool logged = session_.run_log.is_on();
      const int64_t start = logged ? c10::getTime(/*allow_monotonic=*/true) : 0;
      run(given);
      const int64_t spent = logged ? c10::getTime(true) - start : 0;
      update(given);
      give(given, results);
      if (logged) session_.run_log.ran(*program_, "a call of a compiled graph", where, spent, copied_bytes_);
    } catch (...) {
      release(false);
      throw;
    }
    release(true);
    if (waits_) session_.requirements.raise();
  });
}

}  // namespace tpjrt::engine
