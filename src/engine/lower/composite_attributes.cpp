// Makes attributes from the arguments of a call.
#include "engine/lower/composite_attributes.h"

#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "hlo/type.h"

namespace tpjrt::engine {

namespace {

using graph::Parameter;
using hlo::attribute;

std::string dtype_name(c10::ScalarType dtype) { return std::string(c10::getDtypeNames(dtype).first); }

std::string of_scalar(const c10::Scalar& scalar) {
  if (scalar.isBoolean()) return attribute(scalar.toBool());
  if (scalar.isFloatingPoint()) return attribute(scalar.toDouble());
  if (scalar.isComplex()) {
    const auto z = scalar.toComplexDouble();
    return attribute(std::vector<double>{z.real(), z.imag()});
  }
  return attribute(scalar.toLong());
}

std::string of_scalars(const std::vector<c10::Scalar>& constants) {
  const bool integral = std::all_of(constants.begin(), constants.end(), [](auto& x) { return x.isIntegral(false); });
  std::vector<double> doubles;
  hlo::Dims integers;
  for (const c10::Scalar& scalar : constants) {
    if (integral) {
      integers.push_back(scalar.toLong());
    } else {
      doubles.push_back(scalar.toDouble());
    }
  }
  return integral ? attribute(integers) : attribute(doubles);
}

// Returns true if the argument names dimensions, which may be negative.
bool names_dimensions(std::string_view argument) {
  static const std::set<std::string_view> kNames = {"dim", "dims", "dim0", "dim1", "normalized_dims"};
  return kNames.contains(argument);
}

int64_t wrapped(int64_t dim, int64_t rank) { return dim < 0 ? dim + std::max<int64_t>(rank, 1) : dim; }

// Returns nothing for arguments that don't affect values: devices, generators, layouts.
std::optional<std::string> of_constant(const c10::IValue& value, const c10::Argument& declared, int64_t rank) {
  if (value.isNone() || value.isDevice() || value.isGenerator()) return {};
  c10::TypePtr type = declared.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  if (type->kind() == c10::TypeKind::LayoutType) return {};
  if (value.isString()) return attribute(value.toStringView());
  if (value.isBool()) return attribute(value.toBool());
  if (value.isDouble()) return attribute(value.toDouble());
  if (value.isComplexDouble()) return of_scalar(value.toScalar());
  if (value.isInt()) {
    if (type->kind() == c10::TypeKind::ScalarTypeType) return attribute(dtype_name(value.toScalarType()));
    if (type->kind() == c10::TypeKind::MemoryFormatType) {
      return attribute(c10::str(value.toMemoryFormat()));
    }
    return attribute(names_dimensions(declared.name()) ? wrapped(value.toInt(), rank) : value.toInt());
  }
  if (value.isBoolList()) {
    const auto list = value.toBoolList();
    return attribute(std::vector<bool>(list.begin(), list.end()));
  }
  if (value.isDoubleList()) return attribute(value.toDoubleVector());
  if (value.isIntList()) {
    hlo::Dims ints(value.toIntVector());
    for (int64_t& i : ints) i = names_dimensions(declared.name()) ? wrapped(i, rank) : i;
    return attribute(ints);
  }
  if (value.isList()) {
    std::vector<c10::Scalar> constants;
    for (const c10::IValue& element : value.toListRef()) {
      if (!element.isScalar()) return {};
      constants.push_back(element.toScalar());
    }
    return of_scalars(constants);
  }
  return {};
}

// Returns the operands' argument names, or nothing if they are the schema's tensors in order.
std::optional<std::vector<std::string>> operand_names(const graph::Signature& signature,
                                                      const std::vector<LoweredScalar>& scalars) {
  std::vector<std::string> names, expected;
  bool plain = !signature.random;
  for (const Parameter& parameter : signature.parameters) {
    const bool list = parameter.kind == Parameter::Kind::kTensorList;
    if (parameter.kind == Parameter::Kind::kTensor) expected.push_back(parameter.name);
    for (size_t i = 0; i < parameter.entries.size(); ++i) {
      if (parameter.entries[i].source == Parameter::Entry::Source::kUndefined) continue;
      names.push_back(parameter.name + (list ? "." + std::to_string(i) : ""));
    }
    plain &= !list;
    if (parameter.kind != Parameter::Kind::kScalar && parameter.kind != Parameter::Kind::kScalarList) continue;
    for (uint32_t k = 0; k < parameter.count; ++k) {
      if (!scalars[parameter.first + k].varies) continue;
      plain = false;
      names.push_back(parameter.name + (parameter.count > 1 ? "." + std::to_string(k) : ""));
    }
  }
  if (signature.random) names.emplace_back("random_key");
  if (plain && std::equal(names.begin(), names.end(), expected.begin())) return {};
  return names;
}

}  // namespace

std::map<std::string, std::string> attributes_of(const graph::Signature& signature,
                                                 const std::vector<LoweredScalar>& scalars) {
  std::map<std::string, std::string> attributes;
  const auto& declared = signature.op->schema().arguments();
  const int64_t rank = signature.operands.empty() ? 0 : static_cast<int64_t>(signature.operands[0]->sizes.size());
  for (size_t i = 0; i < signature.parameters.size(); ++i) {
    const Parameter& parameter = signature.parameters[i];
    if (parameter.kind == Parameter::Kind::kConstant) {
      const auto text = of_constant(parameter.constant, declared[i], rank);
      if (text) attributes[parameter.name] = *text;
    } else if (parameter.kind == Parameter::Kind::kScalar || parameter.kind == Parameter::Kind::kScalarList) {
      std::vector<c10::Scalar> constants;
      for (uint32_t k = 0; k < parameter.count; ++k) {
        const LoweredScalar& number = scalars[parameter.first + k];
        if (!number.varies) constants.push_back(number.number.scalar());
      }
      if (constants.size() != parameter.count) continue;
      attributes[parameter.name] =
          parameter.kind == Parameter::Kind::kScalar ? of_scalar(constants[0]) : of_scalars(constants);
    }
  }
  if (const auto names = operand_names(signature, scalars)) attributes["operands"] = attribute(*names);
  return attributes;
}

}  // namespace tpjrt::engine
