// Makes placeholders and finds out what a trace did to them.
#include "engine/compiled_call/trace.h"

#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include <unordered_set>
#include <utility>

#include "device/tensor/access.h"
#include "device/tensor/storage.h"
#include "engine/memory/cuda.h"
#include "engine/memory/host_memory.h"
#include "engine/session/session.h"

namespace tpjrt::engine {

using graph::Value;

Trace::Trace(std::optional<c10::DeviceIndex> computes) {
  Session& session = Session::instance();
  device = computes.value_or(0);
  if (!computes && session.process()) device = static_cast<c10::DeviceIndex>(session.client().own_device());
}

at::Tensor Trace::add_tensor(c10::Device device, c10::ScalarType dtype, c10::IntArrayRef sizes,
                             c10::IntArrayRef strides, bool conjugate, bool negative) {
  TracedArgument argument;
  argument.is_tensor = true;
  argument.device = device;
  argument.dtype = dtype;
  argument.sizes.assign(sizes.begin(), sizes.end());
  argument.strides.assign(strides.begin(), strides.end());
  argument.conjugate = conjugate;
  argument.negative = negative;
  c10::DeviceIndex index = this->device;  // computes
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
  {
    std::lock_guard lock(graph::graph_lock());
    device::storage_of(argument.placeholder)->slot.bind({argument.leaf, 0});
  }
  at::Tensor seen = argument.placeholder;
  if (is_outside(device) && seen.sizes() != sizes) seen = seen.as_strided(sizes, strides, 0);
  if (conjugate) seen = seen.conj();
  if (negative) seen = seen._neg_view();
  arguments.push_back(std::move(argument));
  return seen;
}

void Trace::add_number(PlainScalar number) {
  TracedArgument argument;
  argument.number = number;
  arguments.push_back(std::move(argument));
}

std::vector<bool> Trace::changed() const {
  std::vector<bool> result;
  std::lock_guard lock(graph::graph_lock());
  for (const TracedArgument& argument : arguments) {
    result.push_back(argument.is_tensor &&
                     device::storage_of(argument.placeholder)->slot.value().node != argument.leaf);
  }
  return result;
}

Value Trace::new_value(size_t index) const {
  const TracedArgument& argument = arguments.at(index);
  if (!argument.is_tensor) return {};
  const graph::TypePtr form = argument.leaf->leaf_type;
  const device::LazyStorage* storage = device::storage_of(argument.placeholder);
  {
    std::lock_guard lock(graph::graph_lock());
    const Value& value = storage->slot.value();
    if (value.node == argument.leaf) return {};
    if (value.type() == form) return value;
    TORCH_CHECK_NOT_IMPLEMENTED(value.type()->nbytes() == form->nbytes(), "the traced function gives argument ", index,
                                " memory of another size");
  }
  const at::Tensor whole = device::make_tensor(form, argument.placeholder.device().index());
  std::lock_guard lock(graph::graph_lock());
  const Value& written = storage->slot.value();
  device::storage_of(whole)->slot.bind(written);
  const Value value = device::read(whole);
  if (value == written || value.type() == form) return value;
  return device::convert(value, form, whole.device().index());
}

namespace {

// Visits once each node that the tensors depend on. Call it under graph_lock().
template <class F>
void for_each_below(const std::vector<at::Tensor>& from, F&& visit_node) {
  std::vector<const graph::Node*> pending;
  std::unordered_set<const graph::Node*> seen;
  const auto visit = [&](const Value& value) {
    if (value && seen.insert(value.node.get()).second) pending.push_back(value.node.get());
  };
  for (const at::Tensor& tensor : from) visit(device::storage_of(tensor)->slot.value());
  while (!pending.empty()) {
    const graph::Node* node = pending.back();
    pending.pop_back();
    visit_node(*node);
    for (const Value& operand : node->operands) visit(operand);
  }
}

}  // namespace

std::vector<bool> Trace::reached(const std::vector<at::Tensor>& from) const {
  std::unordered_set<const graph::Node*> seen;
  std::lock_guard lock(graph::graph_lock());
  for_each_below(from, [&](const graph::Node& node) { seen.insert(&node); });
  std::vector<bool> result;
  for (const TracedArgument& argument : arguments) result.push_back(seen.contains(argument.leaf.get()));
  return result;
}

bool is_known(const at::Tensor& tensor) {
  bool known = true;
  std::lock_guard lock(graph::graph_lock());
  for_each_below({tensor}, [&](const graph::Node& node) {
    known &= !node.is_leaf() || node.data;
    for (const graph::ScalarValue& number : node.scalars) known &= number.kind != graph::ScalarValue::Kind::kKey;
  });
  return known;
}

at::Tensor Trace::alias(size_t index) const {
  const TracedArgument& argument = arguments.at(index);
  at::Tensor tensor = device::make_tensor(argument.leaf->leaf_type, argument.placeholder.device().index());
  std::lock_guard lock(graph::graph_lock());
  device::storage_of(tensor)->slot.bind({argument.leaf, 0});
  return tensor;
}

void Trace::keep(const std::vector<bool>& kept) {
  TORCH_CHECK(kept.size() == arguments.size(), "one bool an argument");
  size_t next = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i]) continue;
    if (next != i) arguments[next] = std::move(arguments[i]);
    ++next;
  }
  arguments.resize(next);
}

namespace {

bool is_same_value(const Value& a, const Value& b, int& budget) {
  if (a.index != b.index || --budget < 0) return false;
  if (a.node == b.node) return true;
  const graph::Node &x = *a.node, &y = *b.node;
  if (x.is_leaf() || y.is_leaf() || x.signature != y.signature || x.operands.size() != y.operands.size() ||
      x.scalars.size() != y.scalars.size()) {
    return false;
  }
  for (size_t i = 0; i < x.scalars.size(); ++i) {
    if (x.scalars[i].kind == graph::ScalarValue::Kind::kKey || !(x.scalars[i] == y.scalars[i])) return false;
  }
  for (size_t i = 0; i < x.operands.size(); ++i) {
    if (!is_same_value(x.operands[i], y.operands[i], budget)) return false;
  }
  return true;
}

}  // namespace

bool is_same(const at::Tensor& a, const at::Tensor& b) {
  int budget = 64;  // nodes to compare at most
  std::lock_guard lock(graph::graph_lock());
  const Value &x = device::storage_of(a)->slot.value(), &y = device::storage_of(b)->slot.value();
  return x && y && is_same_value(x, y, budget);
}

}  // namespace tpjrt::engine
