// Modules of other compilers (foreign_module.h).
#include "engine/lower/foreign_module.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <unordered_map>

#include "device/services/python_hooks.h"
#include "device/tensor/storage.h"
#include "engine/lower/control_flow.h"
#include "engine/lower/emit_call.h"
#include "graph/node.h"

namespace tpjrt::engine {

using graph::Signature;

ForeignFunction::ForeignFunction(const std::string& label, std::string name, std::string functions,
                                 const std::vector<graph::TypePtr>& operands, std::vector<graph::TypePtr> results,
                                 c10::DeviceIndex device) {
  auto signature = std::make_unique<Signature>();
  auto lowering = std::make_shared<CallLowering>();
  lowering->function = std::move(name);
  lowering->functions = std::move(functions);
  signature->name = label;
  for (size_t i = 0; i < operands.size(); ++i) signature->add_operand("x" + std::to_string(i), operands[i]);
  signature->results = std::move(results);
  signature->device = device;
  const device::Location where = device::user_location();
  signature->file = where.file;
  signature->line = where.line;
  signature->lowering = std::move(lowering);
  signature_ = signature.release();
}

std::vector<at::Tensor> ForeignFunction::call(const std::vector<at::Tensor>& operands) const {
  TORCH_CHECK(operands.size() == signature_->operands.size(), signature_->name, " takes ", signature_->operands.size(),
              " tensors, got ", operands.size());
  c10::SmallVector<graph::Value, 8> values;
  for (size_t i = 0; i < operands.size(); ++i) {
    const graph::TensorType& expected = *signature_->operands[i];
    TORCH_CHECK(operands[i].scalar_type() == expected.dtype && operands[i].sizes() == expected.sizes, signature_->name,
                ": argument ", i, " is ", operands[i].scalar_type(), operands[i].sizes(), ", expected ", expected.dtype,
                c10::IntArrayRef(expected.sizes));
    values.push_back(contiguous_value(operands[i]));
  }
  c10::SmallVector<graph::ScalarValue, 1> scalars;
  std::lock_guard lock(graph::graph_lock());
  return device::make_node_tensors(signature_, values, scalars);
}

hlo::Values emit_foreign_call(ops::Emit& e, const Signature& signature, const CallLowering& lowering,
                              const hlo::Values& operands) {
  std::vector<hlo::Type> results;
  for (const graph::TypePtr type : signature.results) results.push_back(e.type_of(*type));
  return e.call(lowering.function, lowering.functions, operands, results);
}

namespace {

using graph::Node;
using graph::NodePtr;
using graph::ScalarValue;
using hlo::ElementType;
using hlo::Values;
using ops::Emit;

graph::Value held_value(const at::Tensor& tensor) {
  TORCH_CHECK(device::is_pjrt(tensor), "expected tensors on a pjrt device, got one on ", tensor.device());
  std::lock_guard lock(graph::graph_lock());
  return device::storage_of(tensor)->slot.value();
}

// Converts the words of the caller's key to a key for rules.
hlo::Value key_from_words(Emit& e, const hlo::Value& words) {
  const hlo::Type word{ElementType::kU64, {1}};
  hlo::Value key = e.bitcast_convert(e.reshape(words, {1, 2}), word);
  return e.concatenate({key, e.zeros(word)}, 0);
}

[[noreturn]] void raise_without_key(const graph::Signature& signature) {
  const std::string line = signature.file.empty() ? "" : " at " + signature.file + ":" + std::to_string(signature.line);
  TORCH_CHECK(false, "[", signature.name, "]", line,
              " draws random numbers, and no key was given to draw them from. Under JAX: pass "
              "key=jax.random.key(...) in the call, a new one for each; of a module that need not draw, call eval()");
}

// Returns the draw's number in the trace.
int64_t draw_of(const Node& node) { return node.scalars.back().as_int(); }

}  // namespace

at::Tensor tensor_over_leaf(const Node* leaf, c10::DeviceIndex device) {
  at::Tensor tensor = device::make_tensor(leaf->leaf_type, device);
  std::lock_guard lock(graph::graph_lock());
  device::storage_of(tensor)->slot.bind({NodePtr::reclaim_copy(const_cast<Node*>(leaf)), 0});
  return tensor;
}

Placeholder::Placeholder(const at::Tensor& tensor) : leaf_(held_value(tensor).node), address_(0) {
  const graph::Value value = held_value(tensor);
  TORCH_CHECK(value.is_leaf() && !value.node->data, "expected a placeholder, got a tensor with a value");
  address_ = reinterpret_cast<uint64_t>(value.node.get());
}

at::Tensor Placeholder::tensor() const {
  const NodePtr leaf = leaf_.lock();
  TORCH_CHECK(leaf, "nothing rests on this placeholder any more");
  return tensor_over_leaf(leaf.get(), 0);
}

std::vector<uint64_t> placeholders_below(const std::vector<at::Tensor>& tensors) {
  std::vector<graph::Value> values;
  for (const at::Tensor& tensor : tensors) {
    if (const graph::Value value = held_value(tensor)) values.push_back(value);
  }
  std::vector<uint64_t> addresses;
  std::lock_guard lock(graph::graph_lock());
  for (const Node* node : graph::topological_order(values)) {
    if (node->is_leaf() && !node->data) addresses.push_back(reinterpret_cast<uint64_t>(node));
  }
  return addresses;
}

bool rests_on(const at::Tensor& tensor, const std::vector<at::Tensor>& others) {
  std::vector<graph::Value> sources;
  for (const at::Tensor& other : others) sources.push_back(held_value(other));
  const graph::Value value = held_value(tensor);
  std::lock_guard lock(graph::graph_lock());
  const std::vector<const Node*> below = graph::topological_order({value});
  return std::any_of(sources.begin(), sources.end(), [&](const graph::Value& source) {
    return std::find(below.begin(), below.end(), source.node.get()) != below.end();
  });
}

HandedOver hand_over(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& results,
                     std::optional<size_t> key) {
  std::vector<graph::Value> values;
  for (const at::Tensor& result : results) values.push_back(contiguous_value(result));
  Emit e("torch", ops::Target::kAny);
  e.without_assertions();
  std::unordered_map<const Node*, Values> done;
  for (const at::Tensor& input : inputs) {
    const graph::Value value = held_value(input);
    done[value.node.get()] = {e.parameter(e.type_of(*value.type()))};
  }
  std::vector<const Node*> order;
  {
    std::lock_guard lock(graph::graph_lock());
    order = graph::topological_order(values);
  }
  HandedOver module;
  std::vector<const Node*> constants;
  for (const Node* node : order) {
    if (node->is_leaf() && !done.contains(node)) {
      TORCH_CHECK(node->data, "the results rest on a placeholder that is not among the inputs");
      constants.push_back(node);
      done[node] = {e.parameter(e.type_of(*node->leaf_type))};
    } else if (!node->is_leaf() && node->signature->random && !key) {
      raise_without_key(*node->signature);
    }
  }
  const c10::DeviceIndex device = inputs.empty() ? c10::DeviceIndex{0} : inputs[0].device().index();
  for (const Node* leaf : constants) module.constants.push_back(tensor_over_leaf(leaf, device));
  hlo::Value drawn_from;
  if (key) drawn_from = key_from_words(e, done.at(held_value(inputs.at(*key)).node.get())[0]);
  for (const Node* node : order) {
    if (node->is_leaf()) continue;
    const graph::Signature& signature = *node->signature;
    if (!signature.file.empty()) e.set_location(signature.file, signature.line);
    Values operands;
    for (const graph::Value& operand : node->operands) operands.push_back(done.at(operand.node.get())[operand.index]);
    std::vector<LoweredScalar> scalars;
    for (const ScalarValue& number : node->scalars) {
      if (number.kind != ScalarValue::Kind::kKey) scalars.push_back({number, constant_of(e, number), false, nullptr});
    }
    const hlo::Value own_key = signature.random ? derived_key(e, drawn_from, draw_of(*node)) : hlo::Value{};
    done[node] = emit_call(e, signature, operands, scalars, own_key);
    e.set_location("", 0);
  }
  Values texts;
  for (const graph::Value& value : values) texts.push_back(done.at(value.node.get())[value.index]);
  module.text = e.finish(texts);
  return module;
}

}  // namespace tpjrt::engine
