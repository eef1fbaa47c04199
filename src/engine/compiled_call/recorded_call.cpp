// Takes down a trace's nodes once, and makes them again in each call.
#include "engine/compiled_call/recorded_call.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <unordered_map>

namespace tpjrt::engine {

using graph::Value;

std::optional<RecordedCall> RecordedCall::of(const std::vector<Value>& results,
                                             const std::vector<const graph::Node*>& arguments) {
  RecordedCall call;
  std::unordered_map<const graph::Node*, Operand> places;
  for (uint32_t i = 0; i < arguments.size(); ++i) places.emplace(arguments[i], Operand{true, i, 0});
  const auto operand = [&](const Value& value) {
    Operand found = places.at(value.node.get());
    found.result = value.index;
    return found;
  };
  for (const graph::Node* node : graph::topological_order(results)) {
    if (places.contains(node)) continue;
    if (node->is_leaf() || call.calls_.size() == kMostNodes) return std::nullopt;
    const auto is_large = [](graph::TypePtr type) { return type && type->nbytes() > kMostBytes; };
    if (std::ranges::any_of(node->signature->results, is_large)) return std::nullopt;
    for (const graph::ScalarValue& scalar : node->scalars) {
      if (scalar.kind == graph::ScalarValue::Kind::kKey) return std::nullopt;
    }
    places.emplace(node, Operand{false, static_cast<uint32_t>(call.calls_.size()), 0});
    Call& made = call.calls_.emplace_back();
    made.signature = node->signature;
    made.scalars.assign(node->scalars.begin(), node->scalars.end());
    for (const Value& each : node->operands) made.operands.push_back(operand(each));
  }
  for (const Value& each : results) call.results_.push_back(operand(each));
  return call;
}

std::vector<Value> RecordedCall::record(const std::vector<Value>& arguments) const {
  std::vector<graph::NodePtr> nodes;
  nodes.reserve(calls_.size());
  const auto value_of = [&](const Operand& operand) {
    return operand.is_argument ? arguments[operand.place] : Value{nodes[operand.place], operand.result};
  };
  for (const Call& call : calls_) {
    c10::SmallVector<Value, 8> operands;
    for (const Operand& operand : call.operands) operands.push_back(value_of(operand));
    c10::SmallVector<graph::ScalarValue, 4> scalars(call.scalars.begin(), call.scalars.end());
    nodes.push_back(graph::make_node(call.signature, operands, scalars));
  }
  std::vector<Value> results;
  for (const Operand& operand : results_) results.push_back(value_of(operand));
  return results;
}

}  // namespace tpjrt::engine
