// The cold path of recording: from a call's arguments to its plan.
#include "device/aten_call/plan.h"

#include <c10/util/TypeCast.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <stdexcept>

#include "device/aten_call/meta.h"
#include "device/services/engine.h"
#include "device/services/python_hooks.h"
#include "device/tensor/access.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {
namespace {

using graph::Parameter;
using graph::ScalarValue;
using graph::Signature;
using graph::TypePtr;
using Entry = Parameter::Entry;

auto& plans() {
  static auto* table = new ska::flat_hash_map<uint64_t, Plan*>;
  return *table;
}

// Returns a dense type, which the storage of a new result needs. Other layouts (rare) become row-major.
TypePtr dense_type(const at::Tensor& meta) {
  if (meta.is_non_overlapping_and_dense()) return type_of(meta);
  return graph::intern_contiguous(meta.scalar_type(), meta.sizes());
}

// Describes the arguments as the signature's parameters.
class Describer {
 public:
  Describer(const Operator& op, const c10::IValue* values, c10::ArrayRef<uint32_t> unusual, Signature& signature)
      : signature_(signature) {
    const auto& declared = op.op.schema().arguments();
    for (size_t i = 0; i < op.arguments.size(); ++i) {
      Parameter parameter;
      parameter.name = declared[i].name();
      if (std::find(unusual.begin(), unusual.end(), i) != unusual.end()) {
        parameter.constant = values[i];
      } else {
        describe(op.arguments[i], values[i], parameter);
      }
      signature.parameters.push_back(std::move(parameter));
    }
  }

  std::vector<bool> written;     // by operand
  std::vector<uint32_t> fitted;  // Scalars

 private:
  Entry describe(const OperatorArgument& argument, const c10::IValue& value) {
    Entry entry;
    if (value.isNone() || !value.toTensor().defined()) return entry;
    const at::Tensor& tensor = value.toTensor();
    entry.wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    if (!is_pjrt(tensor)) {
      entry.source = Entry::Source::kScalar;
      if (argument.fits_result) fitted.push_back(signature_.scalars);
      entry.index = signature_.scalars++;
      entry.type = graph::intern_contiguous(tensor.scalar_type(), {});
      return entry;
    }
    entry.source = Entry::Source::kOperand;
    entry.index = static_cast<uint32_t>(signature_.operands.size());
    entry.type = type_of(tensor);
    signature_.operands.push_back(entry.type);
    written.push_back(argument.written);
    return entry;
  }

  void describe(const OperatorArgument& argument, const c10::IValue& value, Parameter& parameter) {
    const bool given = !value.isNone();
    if (argument.kind == ArgumentKind::kTensor) {
      parameter.kind = Parameter::Kind::kTensor;
      parameter.entries.push_back(describe(argument, value));
    } else if (argument.kind == ArgumentKind::kTensorList && given) {
      parameter.kind = Parameter::Kind::kTensorList;
      for (const c10::IValue& element : value.toListRef()) parameter.entries.push_back(describe(argument, element));
    } else if ((argument.kind == ArgumentKind::kScalar || argument.kind == ArgumentKind::kScalarList) && given) {
      const bool list = argument.kind == ArgumentKind::kScalarList;
      parameter.kind = list ? Parameter::Kind::kScalarList : Parameter::Kind::kScalar;
      parameter.first = signature_.scalars;
      parameter.count = list ? static_cast<uint32_t>(value.toListRef().size()) : 1;
      for (uint32_t i = 0; i < parameter.count && argument.fits_result; ++i) fitted.push_back(parameter.first + i);
      signature_.scalars += parameter.count;
    } else if (argument.kind != ArgumentKind::kGenerator) {
      parameter.constant = value;
    }
  }

  Signature& signature_;
};

void use_host(Plan& plan, std::string reason) {
  plan.on_host = true;
  plan.host_reason = std::move(reason);
}

// Reads Meta's results off the stack: which are arguments handed back, and which are new. A Meta kernel may hand back
// its argument where the schema promises a new tensor (native_dropout in evaluation); then the result is a new tensor
// of the same type.
void describe_returns(const Operator& op, const torch::jit::Stack& stack, const std::vector<at::Tensor>& operands,
                      Plan& plan) {
  Signature& signature = plan.signature;
  const std::vector<c10::Argument>& promised = op.op.schema().returns();
  const auto argument_behind = [&](const at::Tensor& tensor) -> int64_t {
    const size_t i = plan.returns.size();
    if (!op.writes && i < promised.size() && !promised[i].alias_info()) return -1;
    for (size_t p = 0; p < signature.parameters.size(); ++p) {
      for (const Entry& entry : signature.parameters[p].entries) {
        if (entry.source == Entry::Source::kOperand && operands[entry.index].is_same(tensor))
          return static_cast<int64_t>(p);
      }
    }
    return -1;
  };
  const auto fresh = [&](const at::Tensor& tensor) {
    if (tensor.layout() != c10::kStrided || tensor.is_quantized()) {
      use_host(plan, "its result is no dense strided tensor");
      return;
    }
    signature.results.push_back(dense_type(tensor));
  };
  for (const c10::IValue& value : stack) {
    Plan::Return result;
    result.first = static_cast<uint32_t>(signature.results.size());
    if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) {  // None: a Python Meta kernel
      result.kind = Plan::Return::Kind::kUndefined;
      signature.results.push_back(nullptr);
    } else if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (const int64_t argument = argument_behind(tensor); argument >= 0) {
        result.kind = Plan::Return::Kind::kArgument;
        result.first = static_cast<uint32_t>(argument);
      } else {
        fresh(tensor);
      }
    } else if (value.isTensorList()) {
      const auto list = value.toTensorList();
      if (!list.empty() && argument_behind(list[0]) >= 0) {
        result.kind = Plan::Return::Kind::kArgument;
        result.first = static_cast<uint32_t>(argument_behind(list[0]));
      } else {
        result.kind = Plan::Return::Kind::kFreshList;
        result.count = static_cast<uint32_t>(list.size());
        for (const at::Tensor& tensor : list) fresh(tensor);
      }
    } else if (value.isInt()) {
      result.kind = Plan::Return::Kind::kInteger;
      result.integer = value.toInt();
    } else {
      use_host(plan, "it returns something that is no tensor");
    }
    plan.returns.push_back(result);
  }
  if (op.returns != plan.returns.size()) use_host(plan, "its Meta kernel gives another number of results");
}

// Returns whether the call draws. Without dropout, and in evaluation, PyTorch doesn't advance the generator.
bool draws(const Operator& op, const c10::IValue* values) {
  if (!op.random || !op.draws_by) return op.random;
  const c10::IValue& value = values[*op.draws_by];
  return !(value.isBool() && !value.toBool()) && !(value.isDouble() && value.toDouble() == 0);
}

bool changes_in_place(const Operator& op) {
  const std::string& name = op.op.schema().name();
  return name.ends_with('_') && !name.starts_with("aten::resize") && !name.starts_with("aten::_resize");
}

Plan::Shape shape_of(const std::vector<Plan::Return>& returns) {
  using Kind = Plan::Return::Kind;
  const auto all = [&](auto fits) { return std::all_of(returns.begin(), returns.end(), fits); };
  if (all([](const Plan::Return& r) { return r.kind == Kind::kArgument; })) return Plan::Shape::kArguments;
  if (returns.size() == 1 && returns[0].kind == Kind::kFreshList) return Plan::Shape::kFreshList;
  uint32_t next = 0;
  const bool fresh = all([&](const Plan::Return& r) {
    return (r.kind == Kind::kFresh || r.kind == Kind::kUndefined) && r.first == next++;
  });
  return fresh ? Plan::Shape::kFresh : Plan::Shape::kMixed;
}

// Calls `with` with an example of the dtype's C++ type, if there are numbers that it can't hold.
template <typename F>
void with_type_of(c10::ScalarType dtype, F&& with) {
  switch (dtype) {
    case c10::ScalarType::Byte: return with(uint8_t{});
    case c10::ScalarType::Char: return with(int8_t{});
    case c10::ScalarType::Short: return with(int16_t{});
    case c10::ScalarType::Int: return with(int32_t{});
    case c10::ScalarType::Long: return with(int64_t{});
    case c10::ScalarType::UInt16: return with(uint16_t{});
    case c10::ScalarType::UInt32: return with(uint32_t{});
    case c10::ScalarType::UInt64: return with(uint64_t{});
    case c10::ScalarType::Half: return with(c10::Half{});
    case c10::ScalarType::BFloat16: return with(c10::BFloat16{});
    case c10::ScalarType::Float: return with(float{});
    case c10::ScalarType::Double: return with(double{});
    case c10::ScalarType::Float8_e4m3fn: return with(c10::Float8_e4m3fn{});
    case c10::ScalarType::Float8_e5m2: return with(c10::Float8_e5m2{});
    case c10::ScalarType::Float8_e4m3fnuz: return with(c10::Float8_e4m3fnuz{});
    case c10::ScalarType::Float8_e5m2fnuz: return with(c10::Float8_e5m2fnuz{});
    case c10::ScalarType::Float8_e8m0fnu: return with(c10::Float8_e8m0fnu{});
    case c10::ScalarType::ComplexFloat: return with(c10::complex<float>{});
    default: return;  // complex128, and bool, which accepts any number
  }
}

// Returns whether PyTorch converts the number to any dtype. Unsigned dtypes accept negative integers, but no negative
// floats.
bool is_small(const ScalarValue& number) {
  switch (number.kind) {
    case ScalarValue::Kind::kInt: return -127 <= number.as_int() && number.as_int() <= 127;
    case ScalarValue::Kind::kDouble: return 0 <= number.as_double() && number.as_double() <= 127;
    case ScalarValue::Kind::kComplex: return false;
    default: return true;
  }
}

bool fits(const ScalarValue& number, c10::ScalarType dtype) {
  bool overflows = false;
  with_type_of(dtype, [&](auto example) {
    using To = decltype(example);
    switch (number.kind) {
      case ScalarValue::Kind::kInt: overflows = c10::overflows<To, int64_t>(number.as_int()); return;
      case ScalarValue::Kind::kDouble: overflows = c10::overflows<To, double>(number.as_double()); return;
      case ScalarValue::Kind::kComplex:
        overflows = c10::overflows<To, c10::complex<double>>({number.as_double(), number.imaginary});
        return;
      default: return;
    }
  });
  return !overflows;
}

// Returns whether PyTorch's type promotion ranks the number's kind above the dtype's. A comparison's result is bool
// whatever it compares.
bool exceeds(const ScalarValue& number, c10::ScalarType dtype) {
  switch (number.kind) {
    case ScalarValue::Kind::kComplex: return !c10::isComplexType(dtype);
    case ScalarValue::Kind::kDouble: return c10::isIntegralType(dtype, /*includeBool=*/false);
    case ScalarValue::Kind::kBool: return dtype != c10::kBool;  // an alpha, which PyTorch considers a mistake
    default: return false;
  }
}

// Throws for Scalars that the CPU's kernels refuse by their kind.
void check_kinds(const Plan& plan, c10::ArrayRef<ScalarValue> scalars) {
  for (const uint32_t i : plan.fitted) {
    const auto exceeded = [&](c10::ScalarType dtype) { return exceeds(scalars[i], dtype); };
    if (std::ranges::any_of(plan.fitted_to, exceeded)) return check_scalars(plan.signature, scalars, plan.fitted);
  }
}

}  // namespace

bool scalars_fit(const Plan& plan, c10::ArrayRef<ScalarValue> scalars) {
  return std::ranges::all_of(plan.fitted, [&](uint32_t i) {
    return is_small(scalars[i]) ||
           std::ranges::all_of(plan.fitted_to, [&](c10::ScalarType dtype) { return fits(scalars[i], dtype); });
  });
}

Plan* find_plan(const Arguments& arguments, uint64_t hash) {
  const auto it = plans().find(hash);
  if (it == plans().end()) return nullptr;
  for (Plan* plan = it->second; plan; plan = plan->next) {
    if (plan->key.size() == arguments.key.size() &&
        std::equal(plan->key.begin(), plan->key.end(), arguments.key.begin())) {
      return plan;
    }
  }
  return nullptr;
}

Plan* keep_plan(std::unique_ptr<Plan> plan, uint64_t hash) {
  Plan*& slot = plans()[hash];
  for (Plan* other = slot; other; other = other->next) {
    if (other->key == plan->key) return other;
  }
  plan->next = slot;
  return slot = plan.release();
}

std::unique_ptr<Plan> make_plan(const Operator& op, const c10::IValue* values, const Arguments& arguments) {
  auto plan = std::make_unique<Plan>();
  plan->key.assign(arguments.key.begin(), arguments.key.end());
  Signature& signature = plan->signature;
  signature.name = op.name;
  signature.op = op.op;
  signature.device = arguments.device;
  signature.random = draws(op, values);
  signature.composites = arguments.composites();
  signature.precisions = arguments.precisions();
  Describer call(op, values, arguments.unusual, signature);
  if (signature.scalars != arguments.scalars.size()) {
    throw std::logic_error("[" + std::string(op.name) + "] its plan counts other numbers than its arguments have");
  }
  Location location = user_location();
  signature.file = std::move(location.file);
  signature.line = location.line;

  const Outline results = outline(signature, arguments.scalars);
  const std::vector<at::Tensor>& operands = results.operands;
  plan->fitted = std::move(call.fitted);
  describe_returns(op, results.results, operands, *plan);
  if (signature.random) signature.scalars += 2;
  for (uint32_t i = 0; i < operands.size(); ++i) {
    if (!call.written[i]) continue;
    const at::Tensor& after = operands[i];
    Plan::Write write{i, static_cast<uint32_t>(signature.results.size()), false};
    write.resized = after.sizes() != c10::IntArrayRef(signature.operands[i]->sizes);
    // Meta kernels written in Python treat the target of an in-place op as an out= argument.
    if (write.resized && changes_in_place(op))
      use_host(*plan, "its result has another shape than what it is written to");
    signature.mutated.push_back(i);
    signature.results.push_back(write.resized ? dense_type(after) : signature.operands[i]);
    plan->writes.push_back(write);
    plan->resizes |= write.resized;
  }
  for (const TypePtr type : signature.results) {
    if (type && std::ranges::find(plan->fitted_to, type->dtype) == plan->fitted_to.end())
      plan->fitted_to.push_back(type->dtype);
  }
  check_kinds(*plan, arguments.scalars);
  plan->shape = shape_of(plan->returns);
  const auto& given = signature.results;
  const bool computes = given.empty() || std::any_of(given.begin(), given.end(), [](auto type) { return type; });
  if (!plan->on_host && computes) {
    std::string reason;
    if (!engine().lowers(signature, arguments.scalars, reason)) use_host(*plan, std::move(reason));
  }
  return plan;
}

}  // namespace tpjrt::device
