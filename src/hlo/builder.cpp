// The module's frame: names, regions, locations, parameters and results. Ops are in the builder_*.cpp files.
#include "hlo/builder.h"

#include <algorithm>
#include <cmath>

#include "hlo/builder_text.h"

namespace tpjrt::hlo {

void fail(std::string_view op, const std::string& what) {
  std::string_view dialect = op.starts_with("chlo.") || op.starts_with("func.") ? "" : "stablehlo.";
  throw Error(cat("[", dialect, op, "] ", what));
}

void append(std::string& text, const Type& type) {
  text += "tensor<";
  for (const int64_t d : type.dims) {
    append(text, d);
    text += 'x';
  }
  text += spelling(type.element);
  text += '>';
}

void append(std::string& text, const Dims& dims) {
  text += '[';
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ", ";
    append(text, dims[i]);
  }
  text += ']';
}

void append(std::string& text, const Arrow& arrow) {
  text += '(';
  size_t count = 0;
  const auto add = [&](const Type& type) {
    if (count++ > 0) text += ", ";
    append(text, type);
  };
  if (arrow.operands) {
    for (const Value& operand : *arrow.operands) add(operand.type);
  } else {
    for (const Type* type : arrow.few) {
      if (type) add(*type);
    }
  }
  text += ") -> ";
  if (arrow.result || arrow.results->size() == 1)
    return append(text, arrow.result ? *arrow.result : arrow.results->front());
  text += cat("(", types(*arrow.results), ")");
}

std::string array(const Dims& dims) {
  if (dims.empty()) return "array<i64>";
  std::string inner = cat(dims);
  return "array<i64: " + inner.substr(1, inner.size() - 2) + ">";
}

std::string array(const std::vector<bool>& xs) {
  std::string text = "array<i1";
  for (size_t i = 0; i < xs.size(); ++i) text += cat(i ? ", " : ": ", xs[i] ? "true" : "false");
  return text + ">";
}

std::string pairs(const std::vector<std::pair<int64_t, int64_t>>& xs) {
  std::string text;
  for (size_t i = 0; i < xs.size(); ++i) text += cat(i ? ", " : "", "[", xs[i].first, ", ", xs[i].second, "]");
  if (!xs.empty()) text = "[" + text + "]";
  return cat("dense<", text, "> : tensor<", xs.size(), "x2xi64>");
}

std::string types(const std::vector<Type>& types) {
  std::string text;
  for (size_t i = 0; i < types.size(); ++i) text += (i ? ", " : "") + to_string(types[i]);
  return text;
}

std::vector<Type> types_of(const Values& values) {
  std::vector<Type> result;
  for (const Value& value : values) result.push_back(value.type);
  return result;
}

std::string types(const Values& values) { return types(types_of(values)); }

std::string quoted(std::string_view text) {
  static const char* hex = "0123456789ABCDEF";
  std::string result = "\"";
  for (char raw : text) {
    auto c = static_cast<unsigned char>(raw);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += raw;
    } else if (c < 0x20 || c == 0x7f) {
      result += '\\';
      result += hex[c >> 4];
      result += hex[c & 15];
    } else {
      result += raw;
    }
  }
  return result + "\"";
}

void check_dimensions(std::string_view op, std::string_view what, const Dims& dims, int64_t rank) {
  for (size_t i = 0; i < dims.size(); ++i) {
    check(dims[i] >= 0 && dims[i] < rank, op, what, " ", dims, " is out of range for rank ", rank);
    check(std::find(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(i), dims[i]) ==
              dims.begin() + static_cast<std::ptrdiff_t>(i),
          op, what, " ", dims, " names a dimension twice");
  }
}

void check_same_type(std::string_view op, const Value& a, const Value& b) {
  check(a.type == b.type, op, "operands have different types ", a.type, " and ", b.type);
}

Dims without(const Dims& dims, const Dims& removed) {
  Dims result;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (std::find(removed.begin(), removed.end(), static_cast<int64_t>(i)) == removed.end()) result.push_back(dims[i]);
  }
  return result;
}

// --- Impl -----------------------------------------------------------------------------------------------------------

Value Builder::Impl::name_value(const Type& type, std::string name) {
  names.push_back(std::move(name));
  return {static_cast<int32_t>(names.size() - 1), type};
}

const std::string& Builder::Impl::use(std::string_view op, const Value& value) const {
  check(value.id >= 0 && static_cast<size_t>(value.id) < names.size(), op, "operand is not a value of this builder");
  check(static_cast<size_t>(value.id) >= first_name, op, "operand is a value of another function");
  of_numbers_only = of_numbers_only && numbers.contains(value.id);
  ++operands_used;
  return names[static_cast<size_t>(value.id)];
}

std::string Builder::Impl::uses(std::string_view op, const Values& values) const {
  std::string text;
  for (const Value& value : values) text += (text.empty() ? "" : ", ") + use(op, value);
  return text;
}

void Builder::Impl::begin(size_t results) {
  if (!writes) return;
  text.append(static_cast<size_t>(2 * indent), ' ');
  if (results == 0) return;
  text += '%';
  append(text, numbered);
  if (results > 1) {
    text += ':';
    append(text, results);
  }
  text += " = ";
}

Values Builder::Impl::end(const std::vector<Type>& results) {
  if (results.size() == 1) return {end(results[0])};
  Values values;
  for (size_t i = 0; i < results.size(); ++i) {
    values.push_back(name_value(results[i], writes ? cat("%", numbered, "#", i) : ""));
    if (operands_used > 0 && of_numbers_only) numbers[values[i].id] = std::nan("");
  }
  end();
  return values;
}

Value Builder::Impl::end(const Type& result) {
  Value value = name_value(result, writes ? cat("%", numbered) : "");
  if (operands_used > 0 && of_numbers_only) numbers[value.id] = std::nan("");
  end();
  return value;
}

void Builder::Impl::end() {
  ++numbered;
  of_numbers_only = true;
  operands_used = 0;
  ++ops;
  if (!writes) return;
  text += location;
  text += '\n';
}

std::string Builder::Impl::region(std::string_view op, const std::vector<Type>& arguments, const Region& body,
                                  const std::function<void(const Values&)>& check_results) {
  // Restores the enclosing block's text however the callback ends.
  struct Scope {
    Impl& impl;
    std::string outer;
    explicit Scope(Impl& i) : impl(i), outer(std::move(i.text)) {
      impl.text.clear();
      ++impl.indent;
    }
    ~Scope() {
      impl.text = std::move(outer);
      --impl.indent;
    }
  } scope(*this);

  std::string result = "{\n";
  Values values;
  if (!arguments.empty()) {
    result.append(static_cast<size_t>(2 * indent - 2), ' ');
    result += "^bb0(";
    for (size_t i = 0; i < arguments.size(); ++i) {
      std::string name = writes ? cat("%b", names.size() - first_name) : "";
      if (writes) result += cat(i ? ", " : "", name, ": ", arguments[i]);
      values.push_back(name_value(arguments[i], name));
    }
    result += "):\n";
  }
  Values results = body(values);
  check_results(results);
  std::string used = uses(op, results);
  if (!writes) return "";
  result += text;
  result.append(static_cast<size_t>(2 * indent), ' ');
  result += cat("stablehlo.return ", used, " : ", types(results), "\n");
  result.append(static_cast<size_t>(2 * indent - 2), ' ');
  return result + "}";
}

std::string Builder::Impl::region(std::string_view op, const std::vector<Type>& arguments, const Region& body,
                                  const std::vector<Type>& results) {
  return region(op, arguments, body, [&](const Values& values) {
    check(types_of(values) == results, op, "region returns (", types(values), "), expected (", types(results), ")");
  });
}

// --- the function ---------------------------------------------------------------------------------------------------

Builder::Builder(std::string name) : impl_(new Impl) { impl_->module_name = std::move(name); }

Builder::~Builder() { delete impl_; }

Builder::Builder(Builder&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}

Builder& Builder::operator=(Builder&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

namespace {

// Returns the attribute for a parameter's or result's layout; empty for row-major.
std::string layout_mode(const Dims& order) {
  std::string text;
  for (const int64_t d : order) text += cat(text.empty() ? "" : ",", d);
  return text.empty() ? text : cat("mhlo.layout_mode = \"{", text, "}\"");
}

}  // namespace

Value Builder::parameter(const Type& type, const Dims& order) {
  impl_->parameters.push_back({type, order});
  return impl_->name_value(type, impl_->writes ? cat("%arg", impl_->parameters.size() - 1) : "");
}

void Builder::alias(int64_t parameter, int64_t result) {
  check(parameter >= 0 && static_cast<size_t>(parameter) < impl_->parameters.size(), "func.func", "no parameter ",
        parameter);
  impl_->parameters[static_cast<size_t>(parameter)].alias = result;
}

void Builder::set_replicas(int64_t replicas) { impl_->replicas = replicas; }

std::string Builder::finish(const Values& results, const std::vector<Dims>& orders) {
  if (!impl_->writes) {
    (void)impl_->uses("func.return", results);  // checks them
    return "";
  }
  static const Dims row_major;
  const auto order_of = [&](size_t result) -> const Dims& { return orders.empty() ? row_major : orders.at(result); };
  std::string module = cat("module @", quoted(impl_->module_name));
  if (impl_->replicas > 1) module += cat(" attributes {mhlo.num_replicas = ", impl_->replicas, " : i32}");
  module += " {\n  func.func public @main(";
  for (size_t i = 0; i < impl_->parameters.size(); ++i) {
    const Impl::Parameter& parameter = impl_->parameters[i];
    module += cat(i ? ", " : "", "%arg", i, ": ", parameter.type);
    std::string about = layout_mode(parameter.order);
    if (parameter.alias >= 0) {
      auto aliased = static_cast<size_t>(parameter.alias);
      check(aliased < results.size(), "func.func", "parameter ", i, " aliases a missing result ", aliased);
      check(results[aliased].type == parameter.type && order_of(aliased) == parameter.order, "func.func", "parameter ",
            i, " of type ", parameter.type, " aliases a result of type ", results[aliased].type, " or lies otherwise");
      about += cat(about.empty() ? "" : ", ", "tf.aliasing_output = ", aliased, " : i32");
    }
    if (!about.empty()) module += cat(" {", about, "}");
  }
  module += ") -> (";
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string about = layout_mode(order_of(i));
    module += cat(i ? ", " : "", results[i].type);
    if (!about.empty()) module += cat(" {", about, "}");
  }
  module += cat(") {\n", impl_->text, "    return");
  if (!results.empty()) module += cat(" ", impl_->uses("func.return", results), " : ", types(results));
  impl_->text.clear();
  module += "\n  }\n";
  for (const auto& [symbol, text] : impl_->functions) module += text;
  return module + "}\n";
}

void Builder::set_location(std::string_view file, int64_t line) {
  impl_->location = file.empty() ? "" : cat(" loc(", quoted(file), ":", line, ":0)");
}

int64_t Builder::size() const { return impl_->ops; }

void Builder::without_text() { impl_->writes = false; }

std::string without_locations(std::string_view module) {
  // Can't match inside a string literal, where the quote is escaped. A location is always the last part of its line.
  constexpr std::string_view kStart = " loc(\"";
  std::string text;
  text.reserve(module.size());
  for (size_t from = 0; from < module.size();) {
    const size_t location = std::min(module.find(kStart, from), module.size());
    text += module.substr(from, location - from);
    from = std::min(module.find('\n', location), module.size());
  }
  return text;
}

std::vector<std::string_view> statements(std::string_view text, size_t indent) {
  std::vector<std::string_view> result;
  size_t begin = 0;
  for (size_t line = 0; line < text.size();) {
    const size_t end = std::min(text.find('\n', line), text.size() - 1) + 1;
    const bool begins = text[line + indent] != ' ' && text[line + indent] != '}' && text[line + indent] != '^';
    if (begins && line > begin) {
      result.push_back(text.substr(begin, line - begin));
      begin = line;
    }
    line = end;
  }
  if (begin < text.size()) result.push_back(text.substr(begin));
  return result;
}

std::string_view defined_name(std::string_view statement) {
  const size_t at = statement.find_first_not_of(' ');
  if (at == statement.npos || statement[at] != '%') return {};
  size_t end = at + 1;
  while (end < statement.size() && is_of_name(statement[end])) ++end;
  return statement.substr(at, end - at);
}

}  // namespace tpjrt::hlo
