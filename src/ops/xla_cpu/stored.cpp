// Stores values in the text of a program (Note [Stored values]).
#include "ops/xla_cpu/cpu_lowerings.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hlo/builder_text.h"

namespace tpjrt::ops {
namespace {

constexpr std::string_view kDialect = "stablehlo.";
// The cost in additions and element reads from which a value is stored. Cheaper values are computed again as fast as
// they are read.
constexpr double kLeastCost = 5;
// The code of a longer loop, which XLA unrolls, leaves the instruction cache.
constexpr int32_t kLongestChain = 256;
// A call takes a microsecond, in which fewer elements than these are computed.
constexpr double kLeastElements = 1024;
constexpr size_t kImages = 4;  // the rank of a batch of images

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

struct Statement {
  std::string_view text, name, op, type;
  std::vector<int32_t> operands;  // statements of this block
  int cost = -1;
  double elements = 1;
  int32_t common = -1;  // the first statement that all its readers are fused into, or lead to; -1: none
  int32_t depth = 0;    // in the tree that `common` makes
  int32_t chain = 0;    // the cost of the longest path of arithmetic that is fused into it
  bool read = false, stored = false;
  bool is_constant = false;  // XLA folds computations on constants
  bool is_fused() const { return cost >= 0 && !stored; }
};

class Block {
 public:
  Block(std::string_view text, size_t indent, bool is_nhwc) : indent_(indent), is_nhwc_(is_nhwc) {
    std::unordered_map<std::string_view, int32_t> at;
    for (const std::string_view statement : hlo::statements(text, indent)) {
      Statement s;
      s.text = statement;
      s.name = hlo::defined_name(statement);
      s.op = op_in(statement);
      s.type = type_in(statement);
      s.cost = cost_of(s.op);
      for (const int64_t d : dims_in(s.type)) s.elements *= static_cast<double>(d);
      hlo::each_name(statement, [&](std::string_view name) {
        const auto found = at.find(name);
        if (found == at.end() || std::ranges::count(s.operands, found->second)) return;
        s.operands.push_back(found->second);
      });
      size_t names = 0;
      hlo::each_name(statement, [&](std::string_view) { ++names; });
      s.is_constant = s.cost >= 0 && names == s.operands.size() + 1 && std::ranges::all_of(s.operands, [&](int32_t o) {
                        return all_[static_cast<size_t>(o)].is_constant;
                      });
      if (!s.name.empty()) at[s.name] = static_cast<int32_t>(all_.size());
      all_.push_back(std::move(s));
    }
  }

  std::string stored() {
    find_common();
    std::string text;
    for (size_t i = 0; i < all_.size(); ++i) {
      Statement& s = all_[i];
      for (const int32_t operand : s.operands) s.chain = std::max(s.chain, all_[static_cast<size_t>(operand)].chain);
      s.chain = s.cost < 0 ? 0 : s.chain + s.cost;
      s.stored = is_worth_it(static_cast<int32_t>(i));
      if (s.stored) s.chain = 0;
      write(text, s);
    }
    return text;
  }

 private:
  // Goes from the last statement to the first: the readers of a statement come after it.
  void find_common() {
    for (auto i = static_cast<int32_t>(all_.size()); i-- > 0;) {
      Statement& s = all_[static_cast<size_t>(i)];
      if (s.cost < 0) s.common = -1;  // a kernel of its own: nothing is fused through it
      s.depth = s.common < 0 ? 0 : all_[static_cast<size_t>(s.common)].depth + 1;
      for (const int32_t operand : s.operands) {
        Statement& o = all_[static_cast<size_t>(operand)];
        o.common = o.read ? common_of(o.common, i) : i;
        o.read = true;
      }
    }
  }

  int32_t common_of(int32_t a, int32_t b) const {
    while (a != b) {
      if (a < 0 || b < 0) return -1;
      const Statement &x = all_[static_cast<size_t>(a)], &y = all_[static_cast<size_t>(b)];
      if (x.depth >= y.depth) a = x.common;
      if (y.depth >= x.depth) b = y.common;
    }
    return a;
  }

  // Returns whether the value ends a long chain, or is read by more than one kernel and cheaper to read than to
  // compute.
  bool is_worth_it(int32_t at) const {
    const Statement& s = all_[static_cast<size_t>(at)];
    if (s.cost <= 0 || s.is_constant || !s.read) return false;
    if (s.elements < kLeastElements || (is_nhwc_ && dims_in(s.type).size() >= kImages)) return false;
    return s.chain >= kLongestChain || (s.common < 0 && cost_of_one(at) >= kLeastCost);
  }

  // Returns the cost of an element, counted up to kLeastCost: the arithmetic that is fused into it, and the values
  // that this reads, in proportion to their elements. Parameters are free.
  double cost_of_one(int32_t at) const {
    const double elements = all_[static_cast<size_t>(at)].elements;
    std::vector<int32_t> open{at}, seen{at};
    double cost = 0;
    while (!open.empty() && cost < kLeastCost) {
      const Statement& s = all_[static_cast<size_t>(open.back())];
      open.pop_back();
      if (s.is_constant) continue;
      cost += (s.is_fused() ? s.cost : 1) * std::min(1.0, s.elements / elements);
      if (!s.is_fused()) continue;
      for (const int32_t operand : s.operands) {
        if (std::ranges::count(seen, operand)) continue;
        seen.push_back(operand);
        open.push_back(operand);
      }
    }
    return cost;
  }

  void write(std::string& text, const Statement& s) const {
    if (!s.stored) return with_regions(text, s.text);
    const size_t at = s.text.find('%');
    const std::string name(s.name), made = "%s" + name.substr(1), type = "tensor<" + std::string(s.type) + ">";
    const auto indentation = s.text.substr(0, at);
    text.append(indentation).append(made).append(s.text.substr(at + name.size()));
    const auto rank = static_cast<int64_t>(dims_in(s.type).size());
    std::string order;
    for (int64_t d = rank - 1; d >= 0; --d) order += (order.empty() ? "" : ", ") + std::to_string(d);
    const std::string layouts = "[dense<[" + order + "]> : tensor<" + std::to_string(rank) + "xindex>]";
    text.append(indentation).append(name).append(" = stablehlo.custom_call @\"torch_pjrt.stored\"(").append(made);
    text.append(") {api_version = 4 : i32, backend_config = {}, operand_layouts = ").append(layouts);
    text.append(", output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], ");
    text.append("operand_index = 0, operand_tuple_indices = []>], result_layouts = ").append(layouts);
    text.append("} : (").append(type).append(") -> ").append(type).append("\n");
  }

  // Appends the statement, with stores in its regions, whose lines are indented deeper.
  void with_regions(std::string& text, std::string_view statement) const {
    const size_t deeper = indent_ + 2;
    const auto end_of_line = [&](size_t at) { return std::min(statement.find('\n', at), statement.size() - 1) + 1; };
    size_t at = end_of_line(0);
    text += statement.substr(0, at);
    while (at < statement.size()) {
      size_t end = at;
      while (end < statement.size() && statement.substr(end, deeper).find_first_not_of(' ') == std::string_view::npos) {
        end = end_of_line(end);
      }
      if (end > at) text += Block(statement.substr(at, end - at), deeper, is_nhwc_).stored();
      at = end_of_line(end);
      text += statement.substr(end, at - end);
    }
  }

  size_t indent_;
  bool is_nhwc_;
  std::vector<Statement> all_;
};

}  // namespace

std::string with_stored_values(std::string module, Target target, bool is_nhwc) {
  if (target != Target::kCpuWithKernels) return module;
  std::string result;
  size_t from = 0;
  // Functions are indented by two in the module, their statements by four.
  for (size_t at = module.find("\n  func.func "); at != module.npos; at = module.find("\n  func.func ", from)) {
    const size_t begin = module.find('\n', at + 1) + 1, end = module.find("\n  }\n", begin - 1) + 1;
    result.append(module, from, begin - from);
    result += Block(std::string_view(module).substr(begin, end - begin), 4, is_nhwc).stored();
    from = end;
  }
  return result.append(module, from);
}

}  // namespace tpjrt::ops
