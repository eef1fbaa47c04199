// Running nodes by dispatching their calls on CPU tensors.
#include "engine/run/interpret.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "device/call/meta.h"
#include "graph/errors.h"

namespace tpjrt::engine {
namespace {

using graph::Node;
using graph::Parameter;
using graph::Signature;

at::Tensor make(const graph::TensorType& type) {
  return at::empty_strided(type.sizes, type.strides, at::TensorOptions(c10::kCPU).dtype(type.dtype));
}

// At the start of its storage, too, so that a view of it can be told by its storage (`over`).
at::Tensor laid_out(const at::Tensor& tensor, const graph::TensorType& type) {
  const bool fits = tensor.scalar_type() == type.dtype && tensor.strides() == c10::IntArrayRef(type.strides) &&
                    tensor.storage_offset() == 0;
  return fits ? tensor : make(type).copy_(tensor);
}

// A tensor of another type over the memory of a dense one.
at::Tensor over(const at::Tensor& base, const Signature& view, c10::ScalarType dtype, int64_t offset) {
  std::vector<int64_t> sizes, strides;
  for (const Parameter& parameter : view.parameters) {
    if (parameter.name == "sizes") sizes = parameter.constant.toIntVector();
    if (parameter.name == "strides") strides = parameter.constant.toIntVector();
  }
  return at::empty({0}, at::TensorOptions(c10::kCPU).dtype(dtype)).set_(base.storage(), offset, sizes, strides);
}

// The nodes of this project itself (device/tensor/access.cpp).
at::Tensor run_own(const Node& node, c10::ArrayRef<at::Tensor> operands) {
  const Signature& s = *node.signature;
  if (s.name == "pjrt::empty") return make(*s.results[0]).zero_();
  if (s.name == "pjrt::convert") return laid_out(operands[0], *s.results[0]);
  const int64_t offset = node.numbers.at(0).as_int();
  if (s.name == "pjrt::view") return laid_out(over(operands[0], s, s.results[0]->dtype, offset), *s.results[0]);
  at::Tensor base = make(*s.results[0]).copy_(operands[0]);
  over(base, s, operands[1].scalar_type(), offset).copy_(operands[1]);
  return base;
}

std::vector<at::Tensor> run_call(const Node& node, std::vector<at::Tensor> operands) {
  const Signature& s = *node.signature;
  for (const uint32_t written : s.mutated) operands[written] = make(*s.operands[written]).copy_(operands[written]);
  torch::jit::Stack stack = device::make_stack(s, node.numbers, [&](uint32_t operand) { return operands[operand]; });
  s.op->callBoxed(stack);
  std::vector<at::Tensor> results = device::tensors_of(stack);
  results.resize(
      std::min(results.size(), s.results.size() - s.mutated.size()));  // without what is returned and written
  for (const uint32_t written : s.mutated) results.push_back(operands[written]);
  if (results.size() != s.results.size())
    throw graph::InternalError(s.name + " gave another number of results on the CPU");
  for (size_t i = 0; i < results.size(); ++i) results[i] = laid_out(results[i], *s.results[i]);
  return results;
}

}  // namespace

std::vector<at::Tensor> interpret(const graph::Walk& walk, const std::function<at::Tensor(const Node& leaf)>& leaf) {
  std::vector<at::Tensor> leaves;
  for (const graph::NodePtr& node : walk.leaves) leaves.push_back(leaf(*node));
  std::vector<std::vector<at::Tensor>> values;  // by node
  const auto value_of = [&](const graph::Value& value) {
    return value.is_leaf() ? leaves.at(value.node->local) : values.at(value.node->local).at(value.index);
  };
  for (const Node* node : walk.nodes) {
    std::vector<at::Tensor> operands;
    for (const graph::Value& operand : node->operands) operands.push_back(value_of(operand));
    values.push_back(node->signature->op ? run_call(*node, std::move(operands))
                                         : std::vector<at::Tensor>{run_own(*node, operands)});
  }
  std::vector<at::Tensor> results;
  for (const graph::Value& result : walk.results) {
    const at::Tensor value = value_of(result);
    results.push_back(make(*graph::dense(result.type())).copy_(value));  // of its own: a view node may give its base
  }
  return results;
}

}  // namespace tpjrt::engine
