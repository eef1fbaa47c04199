// Control flow, random numbers, custom calls, barriers.
#include "hlo/builder_text.h"

namespace tpjrt::hlo {

Values Builder::while_loop(const Values& initial, const Region& condition, const Region& body) {
  const std::vector<Type> carried = types_of(initial);
  std::string uses = impl_->uses("while", initial);
  std::string first = impl_->region("while", carried, condition, std::vector<Type>{{ElementType::kPred, {}}});
  std::string second = impl_->region("while", carried, body, carried);
  return impl_->emit(carried, "\"stablehlo.while\"(", uses, ") (", first, ", ", second,
                     ") : ", arrow(initial, carried));
}

Values Builder::if_else(const Value& predicate, const Region& on_true, const Region& on_false) {
  check(predicate.type == Type{ElementType::kPred, {}}, "if", "predicate of type ", predicate.type);
  std::vector<Type> results;
  std::string use = impl_->use("if", predicate);
  std::string first = impl_->region("if", {}, on_true, [&](const Values& values) { results = types_of(values); });
  std::string second = impl_->region("if", {}, on_false, results);
  return impl_->emit(results, "\"stablehlo.if\"(", use, ") (", first, ", ", second,
                     ") : ", arrow({&predicate.type}, results));
}

std::pair<Value, Value> Builder::rng_bit_generator(std::string_view algorithm, const Value& state, const Type& type) {
  check(state.element() == ElementType::kU64 && state.rank() == 1, "rng_bit_generator", "state of type ", state.type);
  check(is_integer(type.element), "rng_bit_generator", "gives integers, not ", type);
  Values results =
      impl_->emit({state.type, type}, "stablehlo.rng_bit_generator ", impl_->use("rng_bit_generator", state),
                  ", algorithm = ", algorithm, " : ", arrow({&state.type}, {state.type, type}));
  return {results[0], results[1]};
}

Values Builder::custom_call(std::string_view target, const Values& operands, const std::vector<Type>& results,
                            const std::map<std::string, std::string>& attributes) {
  std::string dictionary;
  for (const auto& [key, value] : attributes) dictionary += cat(dictionary.empty() ? "" : ", ", key, " = ", value);
  if (!dictionary.empty()) dictionary = " {" + dictionary + "}";
  return impl_->emit(results, "stablehlo.custom_call @", quoted(target), "(", impl_->uses("custom_call", operands), ")",
                     dictionary, " : ", arrow(operands, results));
}

Values Builder::optimization_barrier(const Values& xs) {
  if (xs.empty()) return {};
  return impl_->emit(types_of(xs), "stablehlo.optimization_barrier ", impl_->uses("optimization_barrier", xs), " : ",
                     types(xs));
}

Values Builder::call(const std::string& name, const std::string& functions, const Values& operands,
                     const std::vector<Type>& results) {
  check(!results.empty(), "func.call", name, " gives nothing");
  impl_->functions.try_emplace(name, functions);
  return impl_->emit(results, "func.call @", quoted(name), "(", impl_->uses("func.call", operands),
                     ") : ", arrow(operands, results));
}

}  // namespace tpjrt::hlo
