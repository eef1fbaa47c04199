// Finds functional and per-element variants in the dispatcher's schemas.
#include "graph/functional_variant.h"

#include <map>
#include <string_view>

namespace tpjrt::graph {
namespace {

using c10::FunctionSchema;
using c10::OperatorHandle;

const std::vector<OperatorHandle>& overloads(const std::string& base) {
  static const auto* table = [] {
    auto* all = new std::map<std::string, std::vector<OperatorHandle>>;
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      if (const auto op = dispatcher.findSchema(name)) (*all)[name.name].push_back(*op);
    }
    return all;
  }();
  static const std::vector<OperatorHandle> none;
  const auto it = table->find(base);
  return it == table->end() ? none : it->second;
}

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }
bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

std::vector<size_t> inputs_of(const FunctionSchema& schema) {
  std::vector<size_t> kept;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (!schema.arguments()[i].is_out()) kept.push_back(i);
  }
  return kept;
}

// Returns true for equal types. A mutated Tensor (a!) may be Tensor? in the variant, and the other way round.
bool same_kind(const c10::Type& a, const c10::Type& b) {
  const auto strip = [](const c10::Type& type) -> std::string {
    if (const auto* optional = type.castRaw<c10::OptionalType>()) return optional->getElementType()->str();
    return type.str();
  };
  return strip(a) == strip(b);
}

// Returns true for arguments that a factory's out= overload takes from `out` and its functional variant gets
// explicitly.
bool is_option(const c10::Argument& argument) {
  const std::string& name = argument.name();
  return name == "dtype" || name == "layout" || name == "device" || name == "pin_memory";
}

std::optional<OpVariant> match(const FunctionSchema& original, const std::vector<OperatorHandle>& candidates) {
  const std::vector<size_t> inputs = inputs_of(original);
  const OperatorHandle* best = nullptr;
  for (const OperatorHandle& candidate : candidates) {
    const FunctionSchema& schema = candidate.schema();
    if (schema.is_mutable() || schema.arguments().size() < inputs.size()) continue;
    bool fits = true;
    for (size_t i = inputs.size(); i < schema.arguments().size(); ++i) fits &= is_option(schema.arguments()[i]);
    for (size_t i = 0; i < inputs.size() && fits; ++i) {
      const c10::Argument& wanted = schema.arguments()[i];
      const c10::Argument& given = original.arguments()[inputs[i]];
      // A dtype's type is int, but eye(n, m) must not match eye(n, dtype).
      fits = same_kind(*wanted.type(), *given.type()) && is_option(wanted) == is_option(given);
    }
    if (best && best->schema().arguments().size() < schema.arguments().size()) continue;
    if (fits && (!best || schema.overload_name() == original.overload_name())) best = &candidate;
  }
  if (!best) return std::nullopt;
  OpVariant variant{*best, {}};
  for (const size_t i : inputs) variant.arguments.push_back(static_cast<int64_t>(i));
  variant.arguments.resize(best->schema().arguments().size(), -1);
  return variant;
}

// Returns the type of a list argument's elements.
std::string element_kind(const c10::Type& type) {
  const c10::Type* inner = &type;
  if (const auto* optional = inner->castRaw<c10::OptionalType>()) inner = optional->getElementType().get();
  if (const auto* list = inner->castRaw<c10::ListType>()) inner = list->getElementType().get();
  return inner->str();
}

}  // namespace

std::string full_name(const OperatorHandle& op) {
  const FunctionSchema& schema = op.schema();
  return schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
}

std::optional<OpVariant> functional_variant(const OperatorHandle& op) {
  const FunctionSchema& schema = op.schema();
  if (!schema.is_mutable()) return std::nullopt;
  const std::string& name = schema.name();
  std::vector<std::string> bases;
  if (ends_with(name, "_") && !ends_with(name, "__")) {
    const std::string stem = name.substr(0, name.size() - 1);
    bases = {stem + "_functional", stem};
  } else {
    bases = {name, name + "_functional"};
  }
  for (const std::string& base : bases) {
    if (auto variant = match(schema, overloads(base))) return variant;
  }
  return std::nullopt;
}

std::optional<OperatorHandle> out_variant_on_cpu(const OperatorHandle& op) {
  const FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  for (const OperatorHandle& candidate : overloads(schema.name())) {
    const auto& arguments = candidate.schema().arguments();
    if (arguments.size() != count + schema.returns().size() || schema.returns().empty()) continue;
    bool fits = candidate.hasKernelForDispatchKey(c10::DispatchKey::CPU);
    for (size_t i = 0; i < arguments.size() && fits; ++i) {
      fits = i < count ? !arguments[i].is_out() && arguments[i].name() == schema.arguments()[i].name() &&
                             *arguments[i].type() == *schema.arguments()[i].type()
                       : arguments[i].is_out() && arguments[i].type()->kind() == c10::TypeKind::TensorType;
    }
    if (fits) return candidate;
  }
  return std::nullopt;
}

std::optional<OperatorHandle> in_place_variant_on_cpu(const OperatorHandle& op) {
  const FunctionSchema& schema = op.schema();
  for (const OperatorHandle& candidate : overloads(schema.name() + "_")) {
    const auto& arguments = candidate.schema().arguments();
    if (candidate.schema().overload_name() != schema.overload_name()) continue;
    if (arguments.empty() || arguments.size() != schema.arguments().size()) continue;
    bool fits = candidate.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
    for (size_t i = 0; i < arguments.size() && fits; ++i) {
      const bool is_written = arguments[i].alias_info() && arguments[i].alias_info()->isWrite();
      fits = is_written == (i == 0) && *arguments[i].type() == *schema.arguments()[i].type();
    }
    if (fits) return candidate;
  }
  return std::nullopt;
}

std::optional<OpVariant> element_variant(const OperatorHandle& op) {
  constexpr std::string_view kPrefix = "aten::_foreach_";
  const FunctionSchema& schema = op.schema();
  if (!starts_with(schema.name(), kPrefix) || schema.is_mutable()) return std::nullopt;
  std::string base = schema.name().substr(kPrefix.size());
  // maximum and minimum have no Scalar overload; clamp_min and clamp_max are the same functions.
  if (starts_with(schema.overload_name(), "Scalar")) {
    if (base == "maximum") base = "clamp_min";
    if (base == "minimum") base = "clamp_max";
  }
  const auto& given = schema.arguments();
  for (const OperatorHandle& candidate : overloads("aten::" + base)) {
    const auto& wanted = candidate.schema().arguments();
    if (candidate.schema().is_mutable() || wanted.size() < given.size()) continue;
    OpVariant variant{candidate, {}};
    bool fits = true;
    for (size_t i = 0; i < wanted.size() && fits; ++i) {
      if (i < given.size()) {
        fits = element_kind(*given[i].type()) == wanted[i].type()->str();
        variant.arguments.push_back(static_cast<int64_t>(i));
      } else {
        fits = wanted[i].default_value().has_value();
        variant.arguments.push_back(-1);
      }
    }
    if (fits) return variant;
  }
  return std::nullopt;
}

}  // namespace tpjrt::graph
