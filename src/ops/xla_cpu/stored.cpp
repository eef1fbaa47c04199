// Stores values in the text of a program (Note [Stored values]).
#include <algorithm>
#include <string_view>
#include <vector>

#include "hlo/builder_text.h"
#include "ops/xla_cpu/cpu_lowerings.h"
#include "ops/xla_cpu/statement.h"

namespace tpjrt::ops {
namespace {

// The cost in additions and element reads from which a value is stored. Cheaper values are computed again as fast as
// they are read.
constexpr double kLeastCost = 5;
// The code of a longer loop, which XLA unrolls, leaves the instruction cache.
constexpr int32_t kLongestChain = 256;
// A call takes a microsecond, in which fewer elements than these are computed.
constexpr double kLeastElements = 1024;
constexpr size_t kImages = 4;  // the rank of a batch of images

struct Candidate : Statement {
  int32_t common = -1;  // the first statement that all its readers are fused into, or lead to; -1: none
  int32_t depth = 0;    // in the tree that `common` makes
  int32_t chain = 0;    // the cost of the longest path of arithmetic that is fused into it
  bool read = false, stored = false;
  bool is_fused() const { return cost >= 0 && !stored; }
};

class Block {
 public:
  Block(std::string_view text, size_t indent, bool is_nhwc) : indent_(indent), is_nhwc_(is_nhwc) {
    for (Statement& statement : statements_in(text, indent)) all_.push_back({std::move(statement)});
  }

  std::string stored() {
    find_common();
    std::string text;
    for (size_t i = 0; i < all_.size(); ++i) {
      Candidate& s = all_[i];
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
      Candidate& s = all_[static_cast<size_t>(i)];
      if (s.cost < 0) s.common = -1;  // a kernel of its own: nothing is fused through it
      s.depth = s.common < 0 ? 0 : all_[static_cast<size_t>(s.common)].depth + 1;
      for (const int32_t operand : s.operands) {
        Candidate& o = all_[static_cast<size_t>(operand)];
        o.common = o.read ? common_of(o.common, i) : i;
        o.read = true;
      }
    }
  }

  int32_t common_of(int32_t a, int32_t b) const {
    while (a != b) {
      if (a < 0 || b < 0) return -1;
      const Candidate &x = all_[static_cast<size_t>(a)], &y = all_[static_cast<size_t>(b)];
      if (x.depth >= y.depth) a = x.common;
      if (y.depth >= x.depth) b = y.common;
    }
    return a;
  }

  // Returns whether the value ends a long chain, or is read by more than one kernel and cheaper to read than to
  // compute.
  bool is_worth_it(int32_t at) const {
    const Candidate& s = all_[static_cast<size_t>(at)];
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
      const Candidate& s = all_[static_cast<size_t>(open.back())];
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

  void write(std::string& text, const Candidate& s) const {
    if (!s.stored) return with_regions(text, s.text);
    const size_t at = s.text.find('%');
    const std::string name(s.name), made = "%s" + name.substr(1);
    const auto indentation = s.text.substr(0, at);
    text.append(indentation).append(made).append(s.text.substr(at + name.size()));
    text.append(indentation).append(opaque_call(name, {{made, std::string(s.type)}}));
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
  std::vector<Candidate> all_;
};

}  // namespace

std::string with_stored_values(std::string module, Target target, bool is_nhwc) {
  if (target != Target::kCpuWithKernels) return module;
  std::string result;
  size_t from = 0;
  // Functions are indented by two in the module, their statements by four.
  for (size_t at = module.find("\n  func.func "); at != module.npos; at = module.find("\n  func.func ", from)) {
    const auto [begin, end] = body_in(module, at);
    result.append(module, from, begin - from);
    result += Block(std::string_view(module).substr(begin, end - begin), 4, is_nhwc).stored();
    from = end;
  }
  return result.append(module, from);
}

}  // namespace tpjrt::ops
