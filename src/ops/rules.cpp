// The table, and the list of families.
#include "ops/rules.h"

#include <algorithm>

namespace tpjrt::ops {

void RuleTable::add(std::string_view name, Rule rule) {
  if (!rules_.emplace(name, rule).second) throw std::logic_error("two lowering rules for " + std::string(name));
}

void RuleTable::add_for_floats(std::string_view name, Rule rule) {
  add(name, rule);
  for_floats_.insert(rule);
}

void RuleTable::add_for_reals(std::string_view name, Rule rule) {
  add(name, rule);
  for_reals_.insert(rule);
}

void RuleTable::add_for_real_floats(std::string_view name, Rule rule) {
  add_for_floats(name, rule);
  for_reals_.insert(rule);
}

Rule RuleTable::find(std::string_view name) const {
  auto found = rules_.find(std::string(name));
  return found == rules_.end() ? nullptr : found->second;
}

Values RuleTable::emit(Rule rule, Emit& e, const Call& c) {
  if (instance().for_floats_.contains(rule)) {
    const ElementType element = c.arguments.at(0).tensors.at(0).element();
    if (!hlo::is_float(element) && !hlo::is_complex(element)) throw Mistake("its numbers are not floating-point");
  }
  if (instance().for_reals_.contains(rule)) {
    for (const Argument& argument : c.arguments) {
      const auto is_complex = [](const Value& x) { return x && hlo::is_complex(x.element()); };
      if (std::ranges::any_of(argument.tensors, is_complex)) throw Mistake("its numbers are complex");
    }
  }
  Values values = rule(e, c);
  auto wrong = [&](const std::string& what) { throw hlo::Error("[" + c.name + "] the lowering rule gives " + what); };
  if (values.size() != c.results.size()) {
    wrong(std::to_string(values.size()) + " results, expected " + std::to_string(c.results.size()));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (!c.results[i] || !values[i]) {
      if (c.results[i]) wrong("nothing for result " + std::to_string(i) + ", expected " + to_string(*c.results[i]));
      values[i] = Value{};
      continue;
    }
    if (values[i].type != e.type_of(*c.results[i])) {
      wrong(hlo::to_string(values[i].type) + " for result " + std::to_string(i) + ", expected " +
            hlo::to_string(e.type_of(*c.results[i])));
    }
  }
  return values;
}

const RuleTable& RuleTable::instance() {
  static const RuleTable table = [] {
    RuleTable rules;
    add_view_rules(rules);
    add_pointwise_rules(rules);
    add_activation_rules(rules);
    add_special_rules(rules);
    add_reduction_rules(rules);
    add_matmul_rules(rules);
    add_linalg_rules(rules);
    add_fft_rules(rules);
    add_convolution_rules(rules);
    add_pooling_rules(rules);
    add_normalization_rules(rules);
    add_indexing_rules(rules);
    add_binning_rules(rules);
    add_embedding_rules(rules);
    add_shape_rules(rules);
    add_padding_rules(rules);
    add_sorting_rules(rules);
    add_factory_rules(rules);
    add_random_rules(rules);
    add_loss_rules(rules);
    add_attention_rules(rules);
    add_assertion_rules(rules);
    add_scaling_rules(rules);
    add_resampling_rules(rules);
    return rules;
  }();
  return table;
}

}  // namespace tpjrt::ops
