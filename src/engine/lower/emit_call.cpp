// Emits calls.
#include "engine/lower/emit_call.h"

#include "device/services/modes.h"
#include "engine/lower/call_lowering.h"
#include "engine/lower/control_flow.h"
#include "engine/lower/emit_composite.h"
#include "engine/lower/foreign_module.h"
#include "engine/lower/group.h"
#include "graph/errors.h"
#include "graph/node.h"

namespace tpjrt::engine {
namespace {

using graph::Parameter;
using graph::ScalarValue;
using graph::Signature;
using hlo::ElementType;
using hlo::Type;
using hlo::Value;
using hlo::Values;
using ops::Argument;
using ops::Call;
using ops::Emit;
using Entry = Parameter::Entry;

void set_constant(Argument& argument, const c10::IValue& value) {
  using Kind = Argument::Kind;
  if (value.isNone()) {
    argument.kind = Kind::kNone;
  } else if (value.isBool()) {
    argument.kind = Kind::kBool;
    argument.ints = {value.toBool() ? 1 : 0};
  } else if (value.isInt()) {
    argument.kind = Kind::kInt;
    argument.ints = {value.toInt()};
  } else if (value.isDouble()) {
    argument.kind = Kind::kDouble;
    argument.doubles = {value.toDouble()};
  } else if (value.isString()) {
    argument.kind = Kind::kString;
    argument.text = value.toStringRef();
  } else if (value.isComplexDouble()) {
    argument.kind = Kind::kScalar;
    argument.scalars = {value.toScalar()};
  } else if (value.isList()) {
    argument.kind = Kind::kIntList;
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isInt()) {
        argument.ints.push_back(element.toInt());
      } else if (element.isBool()) {
        argument.kind = Kind::kBoolList;
        argument.ints.push_back(element.toBool() ? 1 : 0);
      } else if (element.isDouble()) {
        argument.kind = Kind::kDoubleList;
        argument.doubles.push_back(element.toDouble());
      } else {
        throw ops::Unsupported("argument " + argument.name + " is a list of " + element.tagKind());
      }
    }
  } else {
    argument.kind = Kind::kNone;  // no rule reads devices, layouts and the like
  }
}

// Assembles a call for a rule. Owns the data that the arguments point to.
class RuleCall {
 public:
  RuleCall(Emit& e, const Signature& signature, const Values& operands, const std::vector<LoweredScalar>& scalars,
           const Value& key)
      : e_(e), operands_(operands), scalars_(scalars) {
    call.name = signature.name;
    call.results = signature.results;
    call.rng_key = key;
    pins_.resize(signature.parameters.size());
    for (size_t i = 0; i < signature.parameters.size(); ++i) {
      add(signature.parameters[i], signature.op ? &signature.op->schema().arguments()[i] : nullptr, pins_[i]);
    }
  }

  // Marks the scalars that the rule pinned.
  void report_pins(const Signature& signature) {
    for (size_t i = 0; i < pins_.size(); ++i) {
      for (size_t k = 0; k < pins_[i].size(); ++k) {
        if (!pins_[i][k]) continue;
        const LoweredScalar& number = scalars_[signature.parameters[i].first + k];
        if (number.pinned) *number.pinned = true;
      }
    }
  }

  Call call;

 private:
  void add(const Parameter& parameter, const c10::Argument* declared, std::vector<bool>& pins) {
    Argument argument;
    argument.name = parameter.name;
    switch (parameter.kind) {
      case Parameter::Kind::kConstant:
        set_constant(argument, parameter.constant);
        // The default of a functional variant's Scalar argument is a constant here.
        if (declared && argument.kind != Argument::Kind::kNone &&
            declared->type()->kind() == c10::TypeKind::NumberType) {
          argument.kind = Argument::Kind::kScalar;
          argument.scalars = {parameter.constant.toScalar()};
          argument.scalar_values = {constant_of(e_, ScalarValue::of(argument.scalars[0]))};
        }
        break;
      case Parameter::Kind::kTensor:
      case Parameter::Kind::kTensorList:
        argument.kind =
            parameter.kind == Parameter::Kind::kTensor ? Argument::Kind::kTensor : Argument::Kind::kTensorList;
        for (const Entry& entry : parameter.entries) {
          argument.tensors.push_back(tensor(entry));
          argument.types.push_back(entry.source == Entry::Source::kUndefined ? nullptr : entry.type);
          argument.wrapped_number.push_back(entry.wrapped_number);
        }
        if (parameter.kind == Parameter::Kind::kTensor && !argument.tensors[0]) argument.kind = Argument::Kind::kNone;
        break;
      case Parameter::Kind::kScalar:
      case Parameter::Kind::kScalarList:
        argument.kind =
            parameter.kind == Parameter::Kind::kScalar ? Argument::Kind::kScalar : Argument::Kind::kScalarList;
        for (uint32_t k = 0; k < parameter.count; ++k) {
          const LoweredScalar& number = scalars_[parameter.first + k];
          argument.scalars.push_back(number.number.scalar());
          argument.scalar_values.push_back(number.value);
          argument.varies |= number.varies;
        }
        argument.pinned = &pins;
        break;
    }
    call.arguments.push_back(std::move(argument));
  }

  Value tensor(const Entry& entry) {
    switch (entry.source) {
      case Entry::Source::kUndefined: return {};
      case Entry::Source::kOperand: return operands_[entry.index];
      case Entry::Source::kScalar: break;
    }
    return e_.to(scalars_[entry.index].value, ops::element_of(entry.type->dtype));
  }

  Emit& e_;
  const Values& operands_;
  const std::vector<LoweredScalar>& scalars_;
  std::vector<std::vector<bool>> pins_;
};

thread_local std::string wrong_rule;

// The scalars' current values as constants; keys are operands and left out.
std::vector<LoweredScalar> constants(Emit& e, c10::ArrayRef<ScalarValue> scalars) {
  std::vector<LoweredScalar> lowered;
  for (const ScalarValue& number : scalars) {
    if (number.kind != ScalarValue::Kind::kKey) lowered.push_back({number, constant_of(e, number), false, nullptr});
  }
  return lowered;
}

}  // namespace

Value derived_key(Emit& e, const Value& key, int64_t index) {
  return e.add(key, e.constant((index + 1) << 40, key.type));
}

Values emit_subgraph(Emit& e, const Subgraph& graph, const Values& operands, const Value& key) {
  std::unordered_map<const graph::Node*, Values> done;
  for (size_t i = 0; i < operands.size(); ++i) done[graph.placeholders[i].get()] = {operands[i]};
  int64_t random_nodes = 0;
  for (const graph::Node* node : graph::topological_order(graph.results)) {
    if (node->is_leaf()) {
      if (!done.contains(node)) throw ops::Unsupported("its decomposition uses a tensor of its own");
      continue;
    }
    Values inputs;
    for (const graph::Value& operand : node->operands) inputs.push_back(done.at(operand.node.get())[operand.index]);
    Value inner_key;
    if (node->signature->random) {
      if (!key) throw ops::Unsupported("its decomposition draws random numbers, which its schema doesn't say");
      inner_key = derived_key(e, key, random_nodes++);
    }
    done[node] = emit_call(e, *node->signature, inputs, constants(e, node->scalars), inner_key);
  }
  Values results;
  for (const graph::Value& value : graph.results) {
    results.push_back(value ? done.at(value.node.get())[value.index] : Value{});
  }
  return results;
}

Value constant_of(Emit& e, const ScalarValue& number) {
  switch (number.kind) {
    case ScalarValue::Kind::kDouble: return e.constant(number.as_double(), Type{ElementType::kF64, {}});
    case ScalarValue::Kind::kBool: return e.constant(number.as_int(), Type{ElementType::kPred, {}});
    case ScalarValue::Kind::kComplex:
      return e.constant_complex(number.as_double(), number.imaginary, {ElementType::kC128, {}});
    default: return e.constant(number.as_int(), Type{ElementType::kS64, {}});
  }
}

static Values emit_decomposition(Emit& e, const Signature& signature, const Values& operands,
                                 const std::vector<LoweredScalar>& scalars, const Value& key) {
  std::vector<ScalarValue> plain;
  for (const LoweredScalar& number : scalars) {
    plain.push_back(number.number);
    if (number.pinned) *number.pinned = true;
  }
  const Subgraph decomposition = decomposition_of(signature, plain);
  Values results = emit_subgraph(e, decomposition, operands, key);
  for (size_t i = 0; i < results.size(); ++i) results[i] = e.as(results[i], *signature.results[i]);
  return results;
}

static Values emit_plainly(Emit& e, const Signature& signature, const Values& operands,
                           const std::vector<LoweredScalar>& scalars, const Value& key) {
  const CallLowering& lowering = lowering_of(signature);
  e.set_op(signature.name);
  const bool has_other = lowering.rule || !lowering.decomposition.results.empty();
  if (lowering.by_aten && (!has_other || e.target() == ops::Target::kCpuWithKernels)) {
    if (e.target() != ops::Target::kCpuWithKernels && is_own_kernel(signature, ops::Target::kCpuWithKernels)) {
      return emit_decomposition(e, signature, operands, scalars, key);
    }
    return emit_aten_call(e, signature, operands, scalars, key);
  }
  if (e.is_nhwc() && is_nhwc_better_by_aten(signature, e.target())) {
    return emit_aten_call(e, signature, operands, scalars, key);
  }
  if (lowering.rule) {
    RuleCall call(e, signature, operands, scalars, key);
    e.set_precisions(signature.precisions);
    Values results = ops::RuleTable::emit(*lowering.rule, e, call.call);
    call.report_pins(signature);
    return results;
  }
  if (lowering.group) return emit_group(e, *lowering.group, signature, operands, scalars);
  if (lowering.control != CallLowering::Control::kNone) return emit_control(e, lowering, operands);
  if (!lowering.function.empty()) return emit_foreign_call(e, signature, lowering, operands);
  if (lowering.inner_calls.empty()) {
    Values results = emit_subgraph(e, lowering.decomposition, operands, key);
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i]) results[i] = e.as(results[i], *signature.results[i]);
    }
    return results;
  }
  Values results(signature.results.size());
  int64_t index = 0;
  for (const CallLowering::InnerCall& inner_call : lowering.inner_calls) {
    Values inner;
    for (const uint32_t operand : inner_call.operands) inner.push_back(operands[operand]);
    std::vector<LoweredScalar> inner_scalars;
    for (const uint32_t number : inner_call.scalars) inner_scalars.push_back(scalars[number]);
    Value inner_key = key;
    if (key && lowering.inner_calls.size() > 1) inner_key = derived_key(e, key, index++);
    Values values = emit_call(e, *inner_call.signature, inner, inner_scalars, inner_key);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t to = inner_call.results[i];
      if (signature.results[to]) results[to] = e.as(values[i], *signature.results[to]);
    }
  }
  return results;
}

Values emit_call(Emit& e, const Signature& signature, const Values& operands, const std::vector<LoweredScalar>& scalars,
                 const Value& key) {
  return is_composite(signature) ? emit_composite(e, signature, operands, scalars, key, emit_plainly)
                                 : emit_plainly(e, signature, operands, scalars, key);
}

void forget_wrong_rule() { wrong_rule.clear(); }
void rethrow_wrong_rule() {
  if (!wrong_rule.empty()) throw graph::InternalError(std::exchange(wrong_rule, {}));
}

namespace {

Values emit_alone(Emit& e, const Signature& signature, c10::ArrayRef<ScalarValue> scalars) {
  e.set_composites_as_calls();  // every compiler accepts these
  Values operands;
  for (const graph::TypePtr type : signature.operands) operands.push_back(e.parameter(e.type_of(*type)));
  Value key;
  if (signature.random) key = e.parameter({ElementType::kU64, {2}});
  Values results = emit_call(e, signature, operands, constants(e, scalars), key);
  std::erase_if(results, [](const Value& value) { return !value; });
  return results;
}

}  // namespace

std::string emit_alone(const Signature& signature, c10::ArrayRef<ScalarValue> scalars, ops::Target target) {
  Emit e("alone", target);
  return e.finish(emit_alone(e, signature, scalars));
}

bool requires_of_data(const Signature& signature, c10::ArrayRef<ScalarValue> scalars) try {
  Emit e("checks", ops::Target::kCuda);
  e.without_text();
  (void)emit_alone(e, signature, scalars);
  return !e.assertions().empty();
} catch (const ops::Unsupported&) {
  return true;
} catch (const std::logic_error&) {  // a faulty rule, which is reported when it is compiled
  return true;
}

bool try_emit(const Signature& signature, c10::ArrayRef<ScalarValue> scalars, ops::Target target, std::string& reason,
              int64_t& ops) {
  try {
    Emit e("asked", target);
    e.without_text();
    (void)e.finish(emit_alone(e, signature, scalars));
    ops = e.size();
    return true;
  } catch (const ops::Unsupported& error) {
    reason = error.what();
    return false;
  } catch (const graph::InternalError&) {
    throw;
  } catch (const std::logic_error& error) {
    reason = "[" + signature.name + "] torch-pjrt's lowering of it is wrong, please report it: " + error.what();
    if (!device::strict()) return false;  // the host computes the result or raises the user's error
    wrong_rule = reason;
    throw graph::InternalError(wrong_rule);
  }
}

}  // namespace tpjrt::engine
