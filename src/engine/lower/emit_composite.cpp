// Emits composites: the call once more, in a function of its own. Offers composites to kernels, and emits the kernels
// that claim them. Makes attributes from the arguments of a call.
#include "engine/lower/emit_composite.h"

#include <c10/core/MemoryFormat.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_set>

#include "device/aten_call/meta.h"
#include "device/services/modes.h"
#include "device/tensor/access.h"
#include "device/tensor/storage.h"
#include "graph/composites.h"
#include "graph/node.h"
#include "hlo/type.h"
#include "kernels/table.h"
#include "ops/rule/rules.h"

namespace tpjrt::engine {

namespace {

using graph::Parameter;
using graph::Signature;
using hlo::Value;
using hlo::Values;
using ops::Emit;
using Entry = Parameter::Entry;

// Maps a composite's operands to its body's values. A call's operands are its tensors in the schema's order.
class Inputs {
 public:
  Inputs(Emit& e, const Signature& signature, const Values& operands, const std::vector<LoweredScalar>& scalars,
         const Value& key)
      : scalars_(scalars), scalar_at_(scalars.size(), -1), has_key_(static_cast<bool>(key)) {
    operand_at_.resize(operands.size());
    for (const Parameter& parameter : signature.parameters) {
      for (const Entry& entry : parameter.entries) {
        if (entry.source == Entry::Source::kOperand) {
          operand_at_[entry.index] = next();
          all_.push_back(operands[entry.index], signature.operands[entry.index]);
        } else if (entry.source == Entry::Source::kScalar) {  // a tensor of one element
          scalar_at_[entry.index] = next();
          all_.push_back(e.to(scalars[entry.index].value, ops::element_of(entry.type->dtype)));
        }
      }
      if (parameter.kind != Parameter::Kind::kScalar && parameter.kind != Parameter::Kind::kScalarList) continue;
      for (uint32_t i = parameter.first; i < parameter.first + parameter.count; ++i) {
        if (!scalars[i].varies) continue;
        scalar_at_[i] = next();
        all_.push_back(scalars[i].value);
      }
    }
    if (has_key_) all_.push_back(key);
  }

  const Operands& all() const { return all_; }

  Values operands(const Values& arguments) const {
    Values values;
    for (const int64_t at : operand_at_) values.push_back(arguments[static_cast<size_t>(at)]);
    return values;
  }

  std::vector<LoweredScalar> scalars(Emit& e, const Values& arguments) const {
    std::vector<LoweredScalar> result = scalars_;
    for (size_t i = 0; i < result.size(); ++i) {
      result[i].value =
          scalar_at_[i] < 0 ? constant_of(e, result[i].number) : arguments[static_cast<size_t>(scalar_at_[i])];
    }
    return result;
  }

  Value key(const Values& arguments) const { return has_key_ ? arguments.back() : Value{}; }

 private:
  int64_t next() const { return static_cast<int64_t>(all_.values.size()); }

  const std::vector<LoweredScalar>& scalars_;
  std::vector<int64_t> operand_at_, scalar_at_;
  bool has_key_;
  Operands all_;
};

// Consumers may have their own name for one value of an attribute: 'aten.gelu.default(approximate = "tanh")'.
std::string name_for_consumer(const graph::Composites& asked, const std::string& name,
                              const std::map<std::string, std::string>& attributes) {
  for (const auto& [key, value] : attributes) {
    const auto found = asked.renamed.find(name + "(" + key + " = " + value + ")");
    if (found != asked.renamed.end()) return found->second;
  }
  const auto found = asked.renamed.find(name);
  return found == asked.renamed.end() ? name : found->second;
}

}  // namespace

void Operands::push_back(const Value& value, graph::TypePtr type) {
  values.push_back(value);
  types.push_back(type);
}

void Operands::push_back(const Value& number) {
  push_back(number, graph::intern_contiguous(ops::dtype_of(number.element()), number.type.dims));
}

std::set<std::string> composite_names() {
  std::set<std::string> names;
  for (const std::string& op : ops::RuleTable::instance().composites()) names.insert(graph::composite_name(op));
  return names;
}

bool is_composite(const Signature& signature) {
  const kernels::Claiming* claiming = kernels::Claiming::current();
  if (!signature.op || (!signature.composites && !claiming)) return false;
  if (!ops::RuleTable::instance().is_composite(signature.name)) return false;
  const std::string name = graph::composite_name(signature.name);
  return (signature.composites && signature.composites->contains(name)) || (claiming && claiming->has_default(name));
}

// Checks the decomposition's runtime assertions outside of the composite.
static void require_outside(Emit& e, const Values& operands, const hlo::Region& results) {
  if (!e.has_assertions()) return;
  const kernels::Unclaimed unclaimed;
  std::vector<ops::Assertion> required;
  (void)e.needed([&] {
    required = e.requiring([&] { (void)results(operands); });
    Values extremes;
    for (const ops::Assertion& assertion : required) {
      extremes.push_back(assertion.least);
      extremes.push_back(assertion.greatest);
    }
    return extremes;
  });
  for (ops::Assertion& assertion : required) e.require(std::move(assertion));
}

Values composite(Emit& e, const Signature& signature, const std::string& name,
                 const std::map<std::string, std::string>& attributes, const Operands& given_to,
                 const hlo::Region& results) {
  const graph::CompositesPtr asked = signature.composites;
  const bool stays = asked != nullptr && asked->stays(name);
  const Values& operands = given_to.values;
  const kernels::Answer answer = offer(signature, name, attributes, given_to.types);
  if (answer.kernel) {
    require_outside(e, operands, results);
    return emit_claim(e, signature, name, answer, operands, given_to.types);
  }
  kernels::Claiming* claiming = kernels::Claiming::current();
  const bool reported = claiming != nullptr && (stays || !answer.declined.empty());
  if (reported) claiming->done(name, "its decomposition" + (answer.declined.empty() ? "" : ": " + answer.declined));
  std::optional<kernels::Claiming::Within> within;
  if (reported) within.emplace(nullptr);
  if (!stays) return results(operands);
  require_outside(e, operands, results);
  std::vector<char> defined;
  const auto body = [&](const Values& arguments) {
    Values values;
    (void)e.requiring([&] { values = results(arguments); });
    for (const Value& value : values) defined.push_back(static_cast<bool>(value));
    std::erase_if(values, [](const Value& value) { return !value; });
    return values;
  };
  const Values given = e.composite(name_for_consumer(*asked, name, attributes), attributes, operands, body);
  Values all(defined.size());
  for (size_t i = 0, next = 0; i < all.size(); ++i) {
    if (defined[i]) all[i] = given[next++];
  }
  return all;
}

Values emit_composite(Emit& e, const Signature& signature, const Values& operands,
                      const std::vector<LoweredScalar>& scalars, const Value& key, EmitPlainly plainly) {
  const Inputs inputs(e, signature, operands, scalars, key);
  return composite(e, signature, graph::composite_name(signature.name), attributes_of(signature, scalars), inputs.all(),
                   [&](const Values& arguments) {
                     return plainly(e, signature, inputs.operands(arguments), inputs.scalars(e, arguments),
                                    inputs.key(arguments));
                   });
}

namespace {

using graph::TypePtr;
using kernels::Claiming;

std::vector<TypePtr> result_types(const Signature& signature) {
  std::vector<TypePtr> types;
  for (const TypePtr type : signature.results) {
    if (type) types.push_back(graph::dense(type));
  }
  return types;
}

std::string in_words(c10::ScalarType dtype, c10::IntArrayRef sizes) { return c10::str(dtype, sizes); }

// Enables autograd: a backend's kernel may be the autograd formula of a forward.
struct Differentiable {
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  c10::impl::ForceDispatchKeyGuard guard{keys.included_,
                                         keys.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView};
};

// Traces the kernel's function on placeholders with the recorder.
Subgraph recorded(const Signature& signature, const std::string& what, const kernels::Claim& claim,
                  const std::vector<TypePtr>& operands, const std::vector<TypePtr>& expected) {
  Subgraph graph;
  std::vector<at::Tensor> tensors, results;
  for (const TypePtr type : operands) tensors.push_back(graph.add_placeholder(graph::dense(type), signature.device));
  {
    const device::BelowEverything below;
    const Differentiable differentiable;
    const device::StaysLazy lazy;
    const Unwatched unwatched;
    for (const at::Tensor& result : claim.record(tensors)) results.push_back(result.resolve_conj().resolve_neg());
  }
  TORCH_CHECK(results.size() == expected.size(), what, " gives ", results.size(), " tensors, the composite gives ",
              expected.size());
  for (size_t i = 0; i < results.size(); ++i) {
    TORCH_CHECK(results[i].scalar_type() == expected[i]->dtype && results[i].sizes() == expected[i]->sizes, what,
                ": result ", i, " is ", in_words(results[i].scalar_type(), results[i].sizes()), ", the composite's is ",
                in_words(expected[i]->dtype, expected[i]->sizes));
    TORCH_CHECK(device::is_pjrt(results[i]), what, ": result ", i, " is on ", results[i].device());
  }
  std::lock_guard lock(graph::graph_lock());
  for (const at::Tensor& result : results) graph.results.push_back(device::read(result));
  std::unordered_set<const graph::Node*> known;
  for (const graph::NodePtr& leaf : graph.placeholders) known.insert(leaf.get());
  for (const graph::Node* node : graph::topological_order(graph.results)) {
    TORCH_CHECK(!node->is_leaf() || known.contains(node), what,
                " uses a tensor that is none of its operands; what it needs besides, it makes itself");
    TORCH_CHECK(node->is_leaf() || !node->signature->random, what, " draws random numbers");
  }
  return graph;
}

}  // namespace

kernels::Answer offer(const Signature& signature, const std::string& name,
                      const std::map<std::string, std::string>& attributes, const std::vector<TypePtr>& operands) {
  Claiming* claiming = Claiming::current();
  if (claiming == nullptr) return {};
  const kernels::Table* table = signature.composites ? signature.composites->kernels : nullptr;
  if (table == nullptr && !claiming->has_default(name)) return {};
  kernels::Offer offer;
  offer.composite = name;
  offer.platform = claiming->client().platform_name();
  offer.attributes = attributes;
  for (const TypePtr type : operands) offer.operands.push_back(graph::dense(type));
  offer.results = result_types(signature);
  offer.file = signature.file;
  offer.line = signature.line;
  return claiming->answer(table, offer);
}

Values emit_claim(ops::Emit& e, const Signature& signature, const std::string& name, const kernels::Answer& answer,
                  const Values& operands, const std::vector<TypePtr>& types) {
  const std::string what = answer.kernel->label() + " for composite '" + name + "'";
  Claiming::current()->done(name, answer.kernel->label());
  const Claiming::Within within(answer.kernel);
  const std::vector<TypePtr> expected = result_types(signature);
  Values given;
  if (!answer.claim.name.empty()) {
    std::vector<hlo::Type> of_results;
    for (const TypePtr type : expected) of_results.push_back(e.type_of(*type));
    given = e.call(answer.claim.name, answer.claim.functions, operands, of_results);
  } else {
    given = emit_subgraph(e, recorded(signature, what, answer.claim, types, expected), operands, {});
  }
  Values all;
  size_t next = 0;
  for (const TypePtr type : signature.results) all.push_back(type ? given[next++] : hlo::Value{});
  return all;
}

namespace {

using graph::ScalarValue;
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
