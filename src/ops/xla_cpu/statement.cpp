// Statements in the text of a program, for XLA:CPU.
#include "ops/xla_cpu/statement.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "hlo/builder_text.h"

namespace tpjrt::ops {
namespace {

constexpr std::string_view kDialect = "stablehlo.";

// Returns the cost of an element in additions; negative for an op that is never fused into its readers.
int cost_of(std::string_view op) {
  constexpr int kHeavy = 16, kSlow = 4;
  static const std::unordered_map<std::string_view, int> costs = [] {
    std::unordered_map<std::string_view, int> all;
    for (const auto op : {"bitcast_convert", "broadcast_in_dim", "complex", "constant", "imag", "iota", "real",
                          "reshape", "slice", "transpose"}) {
      all[op] = 0;
    }
    for (const auto op : {"abs",
                          "add",
                          "and",
                          "ceil",
                          "clamp",
                          "compare",
                          "concatenate",
                          "convert",
                          "dynamic_slice",
                          "floor",
                          "is_finite",
                          "maximum",
                          "minimum",
                          "multiply",
                          "negate",
                          "not",
                          "or",
                          "pad",
                          "reduce_precision",
                          "reverse",
                          "round_nearest_afz",
                          "round_nearest_even",
                          "select",
                          "shift_left",
                          "shift_right_arithmetic",
                          "shift_right_logical",
                          "sign",
                          "subtract",
                          "xor"}) {
      all[op] = 1;
    }
    for (const auto op : {"divide", "rsqrt", "sqrt"}) all[op] = kSlow;
    for (const auto op : {"atan2", "cbrt", "cosine", "exponential", "exponential_minus_one", "log", "log_plus_one",
                          "logistic", "power", "remainder", "sine", "tan", "tanh"}) {
      all[op] = kHeavy;
    }
    return all;
  }();
  if (op.starts_with("chlo.")) return kHeavy;
  if (!op.starts_with(kDialect)) return -1;
  const auto found = costs.find(op.substr(kDialect.size()));
  return found == costs.end() ? -1 : found->second;
}

// Returns the op of a statement: "stablehlo.add" of "%0 = stablehlo.add %1, %2 : …".
std::string_view op_in(std::string_view statement) {
  const size_t equals = statement.find(" = ");
  if (equals == statement.npos) return {};
  size_t begin = equals + 3;
  if (statement[begin] == '"') ++begin;
  size_t end = begin;
  while (end < statement.size() && (hlo::is_of_name(statement[end]) || statement[end] == '.')) ++end;
  return statement.substr(begin, end - begin);
}

// Returns the type of a statement's result: "4x4xf32", the last type before the location.
std::string_view type_in(std::string_view statement) {
  statement = statement.substr(0, statement.find(" loc(\""));
  const size_t begin = statement.rfind("tensor<");
  if (begin == statement.npos) return {};
  const size_t end = statement.rfind('>');
  return statement.substr(begin + 7, end - begin - 7);
}

}  // namespace

std::vector<int64_t> dims_in(std::string_view type) {
  std::vector<int64_t> dims;
  while (!type.empty() && type[0] >= '0' && type[0] <= '9') {
    int64_t size = 0;
    const auto [end, error] = std::from_chars(type.data(), type.data() + type.size(), size);
    dims.push_back(size);
    type.remove_prefix(static_cast<size_t>(end - type.data()) + 1);
  }
  return dims;
}

std::string_view element_in(std::string_view type) {
  for (size_t at = 0; at < type.size(); ++at) {
    if (type[at] != 'x' && (type[at] < '0' || type[at] > '9')) return type.substr(at);
  }
  return type;
}

double elements_in(std::string_view type) {
  double elements = 1;
  for (const int64_t d : dims_in(type)) elements *= static_cast<double>(d);
  return elements;
}

std::pair<size_t, size_t> body_in(std::string_view module, size_t at) {
  const size_t begin = module.find('\n', at + 1) + 1;
  return {begin, module.find("\n  }\n", begin - 1) + 1};
}

std::vector<Statement> statements_in(std::string_view text, size_t indent) {
  std::vector<Statement> all;
  std::unordered_map<std::string_view, int32_t> at;
  for (const std::string_view statement : hlo::statements(text, indent)) {
    Statement s;
    s.text = statement;
    s.name = hlo::defined_name(statement);
    s.type = type_in(statement);
    s.cost = cost_of(op_in(statement));
    s.elements = elements_in(s.type);
    size_t names = 0;
    hlo::each_name(statement, [&](std::string_view name) {
      ++names;
      const auto found = at.find(name);
      if (found == at.end() || std::ranges::count(s.operands, found->second)) return;
      s.operands.push_back(found->second);
    });
    s.is_constant = s.cost >= 0 && names == s.operands.size() + 1 &&
                    std::ranges::all_of(s.operands, [&](int32_t o) { return all[static_cast<size_t>(o)].is_constant; });
    if (!s.name.empty()) at[s.name] = static_cast<int32_t>(all.size());
    all.push_back(std::move(s));
  }
  return all;
}

std::string opaque_call(std::string_view name, const std::vector<Operand>& operands) {
  const auto layout = [](std::string_view type) {
    std::string order;
    const auto rank = static_cast<int64_t>(dims_in(type).size());
    for (int64_t d = rank - 1; d >= 0; --d) order += (order.empty() ? "" : ", ") + std::to_string(d);
    return "dense<[" + order + "]> : tensor<" + std::to_string(rank) + "xindex>";
  };
  std::string names, layouts, types;
  for (const auto& [operand, type] : operands) {
    const char* comma = names.empty() ? "" : ", ";
    names.append(comma).append(operand);
    layouts.append(comma).append(layout(type));
    types.append(comma).append("tensor<").append(type).append(">");
  }
  const std::string& type = operands[0].type;
  std::string text(name);
  text.append(" = stablehlo.custom_call @\"torch_pjrt.stored\"(").append(names);
  text.append(") {api_version = 4 : i32, backend_config = {}, operand_layouts = [").append(layouts);
  text.append("], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], ");
  text.append("operand_index = 0, operand_tuple_indices = []>], result_layouts = [").append(layout(type));
  return text.append("]} : (").append(types).append(") -> tensor<").append(type).append(">\n");
}

}  // namespace tpjrt::ops
