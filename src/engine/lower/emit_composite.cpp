// Emits composites: the call once more, in a function of its own.
#include "engine/lower/emit_composite.h"

#include <optional>
#include <set>

#include "engine/lower/composite_attributes.h"
#include "engine/lower/emit_claim.h"
#include "graph/composites.h"
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

}  // namespace tpjrt::engine
