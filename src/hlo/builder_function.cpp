// Private functions: calls and composites; and the removal of unneeded ops.
#include <cstdio>

#include "hlo/builder_text.h"

namespace tpjrt::hlo {

namespace {

// FNV-1a, as 16 hexadecimal digits.
std::string fingerprint(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

std::string dictionary(const std::map<std::string, std::string>& attributes) {
  std::string text = "{";
  for (const auto& [name, value] : attributes) text += cat(text.size() == 1 ? "" : ", ", name, " = ", value);
  return text + "}";
}

}  // namespace

void Builder::Impl::prune(size_t begin, const Values& needed) {
  if (!writes) return;
  const std::vector<std::string_view> all =
      statements(std::string_view(text).substr(begin), static_cast<size_t>(2 * indent));
  std::set<std::string_view> live;
  for (const Value& value : needed) {
    each_name(names[static_cast<size_t>(value.id)], [&](std::string_view name) { live.insert(name); });
  }
  std::vector<std::string_view> kept;
  for (size_t i = all.size(); i-- > 0;) {
    const std::string_view defined = defined_name(all[i]);
    if (!defined.empty() && !live.contains(defined)) continue;
    each_name(all[i], [&](std::string_view name) { live.insert(name); });
    kept.push_back(all[i]);
  }
  std::string result = text.substr(0, begin);
  for (size_t i = kept.size(); i-- > 0;) result += kept[i];
  text = std::move(result);
}

Values Builder::needed(const std::function<Values()>& emit) {
  const size_t begin = impl_->text.size();
  Values values = emit();
  impl_->prune(begin, values);
  return values;
}

std::string Builder::Impl::function(std::string_view op, std::string_view name, const Values& operands,
                                    const Region& body, std::vector<Type>& results) {
  // Restores the caller's text however the callback ends.
  struct Scope {
    Impl& impl;
    std::string text, location;
    int64_t indent, numbered;
    size_t first_name;
    explicit Scope(Impl& i)
        : impl(i),
          text(std::move(i.text)),
          location(std::move(i.location)),
          indent(i.indent),
          numbered(i.numbered),
          first_name(i.first_name) {
      impl.text.clear();
      impl.location.clear();
      impl.indent = 2;
      impl.numbered = 0;
      impl.first_name = impl.names.size();
    }
    ~Scope() {
      impl.text = std::move(text);
      impl.location = std::move(location);
      impl.indent = indent;
      impl.numbered = numbered;
      impl.first_name = first_name;
      impl.of_numbers_only = true;  // the function's ops don't count as uses by the call
      impl.operands_used = 0;
    }
  } scope(*this);

  std::string parameters;
  Values arguments;
  for (size_t i = 0; i < operands.size(); ++i) {
    std::string argument = writes ? cat("%arg", i) : "";
    if (writes) parameters += cat(i ? ", " : "", argument, ": ", operands[i].type);
    arguments.push_back(name_value(operands[i].type, argument));
    if (const auto number = numbers.find(operands[i].id); number != numbers.end()) {
      numbers[arguments[i].id] = number->second;
    }
  }
  // Arguments keep the properties of the operands that ops query.
  for (size_t i = 0; i < operands.size(); ++i) {
    const auto made_of = transposes.find(operands[i].id);
    if (made_of == transposes.end()) continue;
    const Type type = made_of->second.from.type;
    const Dims permutation = made_of->second.permutation;
    Dims back(permutation.size());
    for (size_t d = 0; d < back.size(); ++d) back[static_cast<size_t>(permutation[d])] = static_cast<int64_t>(d);
    const Value from = emit(type, "stablehlo.transpose ", use(op, arguments[i]), ", dims = ", back, " : ",
                            arrow({&arguments[i].type}, type));
    transposes.emplace(arguments[i].id, Moved{from, permutation});
    if (permutation.size() == 2) transposed_arguments.emplace(from.id, arguments[i]);
  }
  const Values values = body(arguments);
  prune(0, values);
  results = types_of(values);
  const std::string used = uses("func.return", values);
  if (!writes) return "";
  std::string rest = cat("(", parameters, ") -> (", types(results), ") {\n", text, "    return");
  if (!values.empty()) rest += cat(" ", used, " : ", types(results));
  rest += "\n  }\n";
  std::string symbol = cat("@", quoted(cat(name, ".", fingerprint(rest))));
  std::string whole = cat("  func.func private ", symbol, rest);
  const auto [known, is_new] = functions.try_emplace(symbol, whole);
  check(is_new || known->second == whole, op, "two functions have the fingerprint of ", symbol);
  return symbol;
}

Values Builder::call(std::string_view name, const Values& operands, const Region& body) {
  std::vector<Type> results;
  const std::string symbol = impl_->function("func.call", name, operands, body, results);
  return impl_->emit(results, "func.call ", symbol, "(", impl_->uses("func.call", operands),
                     ") : ", arrow(operands, results));
}

Values Builder::composite(std::string_view name, const std::map<std::string, std::string>& attributes,
                          const Values& operands, const Region& body) {
  if (impl_->composites_as_calls) return call(name, operands, body);
  std::vector<Type> results;
  const std::string symbol = impl_->function("composite", name, operands, body, results);
  const std::string given = attributes.empty() ? "" : cat("composite_attributes = ", dictionary(attributes), ", ");
  return impl_->emit(results, "stablehlo.composite ", quoted(name), " ", impl_->uses("composite", operands), " {",
                     given, "decomposition = ", symbol, ", version = 1 : i32} : ", arrow(operands, results));
}

void Builder::set_composites_as_calls() { impl_->composites_as_calls = true; }

}  // namespace tpjrt::hlo
