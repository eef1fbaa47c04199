// Graphs like the recorder's, for tests: leaves, calls, and storage slots that hold values.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/fingerprint/walk.h"
#include "graph/node.h"

namespace tpjrt::graph::test {

struct Filled final : Data {};

inline TypePtr f32(c10::IntArrayRef sizes) { return intern_contiguous(c10::kFloat, sizes); }

inline Value leaf(TypePtr type) { return {make_leaf(type, std::make_shared<Filled>()), 0}; }
// A leaf that gets a value only at a run.
inline Value placeholder(TypePtr type) { return {make_leaf(type, nullptr), 0}; }

// Returns the signature of calls with this name and these types. With `op`, `name` is an op's: "aten::neg".
inline SignaturePtr signature(const std::string& name, const std::vector<TypePtr>& operands, TypePtr result,
                              uint32_t scalars = 0, const std::vector<Parameter>& parameters = {}) {
  static std::map<std::tuple<std::string, std::vector<TypePtr>, TypePtr, std::string>, std::unique_ptr<Signature>> all;
  std::string attributes;
  for (const Parameter& parameter : parameters) {
    if (!parameter.constant.isIntList()) continue;
    for (const int64_t value : parameter.constant.toIntVector()) attributes += std::to_string(value) + " ";
    attributes += ";";
  }
  auto& known = all[{name, operands, result, attributes}];
  if (known) return known.get();
  known = std::make_unique<Signature>();
  known->name = name;
  known->operands = operands;
  known->results = {result};
  known->scalars = scalars;
  known->parameters = parameters;
  if (name.starts_with("aten::")) known->op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
  return known.get();
}

inline Value call(const std::string& name, const std::vector<Value>& operands, TypePtr result,
                  const std::vector<ScalarValue>& scalars = {}, const std::vector<Parameter>& parameters = {}) {
  std::vector<TypePtr> types;
  c10::SmallVector<Value, 3> values;
  for (const Value& operand : operands) {
    types.push_back(operand.type());
    values.push_back(operand);
  }
  c10::SmallVector<ScalarValue, 2> own(scalars.begin(), scalars.end());
  const SignaturePtr known = signature(name, types, result, static_cast<uint32_t>(scalars.size()), parameters);
  return {make_node(known, values, own), 0};
}
// Calls an op whose result has the first operand's type.
inline Value call(const std::string& name, const std::vector<Value>& operands) {
  return call(name, operands, operands.at(0).type());
}

// A storage, as the graph sees it.
class Tensor {
 public:
  explicit Tensor(Value value) { slot_->bind(std::move(value)); }
  void bind(Value value) { slot_->bind(std::move(value)); }
  StorageSlot* slot() const { return slot_.get(); }
  const Value& value() const { return slot_->value(); }

 private:
  std::unique_ptr<StorageSlot> slot_ = std::make_unique<StorageSlot>();
};

inline Walk walked(const Tensor& tensor) {
  Walk out;
  StorageSlot* slot = tensor.slot();
  walk(slot, out);
  return out;
}

}  // namespace tpjrt::graph::test
