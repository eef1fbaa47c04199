// Tracks the flow of values through a graph's calls.
#include "engine/lower/module/emit_program.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace tpjrt::engine {
namespace {

using graph::Node;
using graph::Parameter;
using graph::Signature;

constexpr size_t kWord = 64;

// Returns the op's name without its overload.
std::string_view base_name(const Signature& s) {
  const std::string_view name = s.name;
  return name.substr(0, name.find('.'));
}

// Returns true for ops that overwrite all of `self` and read none of it.
bool fills(const Signature& s) {
  static const std::unordered_set<std::string_view> kNames = {
      "aten::fill_",        "aten::zero_",          "aten::copy_",          "aten::uniform_",    "aten::normal_",
      "aten::exponential_", "aten::cauchy_",        "aten::geometric_",     "aten::log_normal_", "aten::random_",
      "aten::bernoulli_",   "aten::_foreach_zero_", "aten::_foreach_copy_",
  };
  return kNames.contains(base_name(s));
}

// The flow of values through one kind of call.
struct Flow {
  std::vector<char> read;        // by operand: does the call read its values?
  std::vector<int64_t> element;  // by operand: its index in its list, or -1
  bool by_element = false;       // an op on lists: result i is computed from the lists' i-th tensors

  explicit Flow(const Signature& s) : read(s.operands.size(), 1), element(s.operands.size(), -1) {
    const std::string_view name = base_name(s);
    by_element = name.starts_with("aten::_foreach_") || name.starts_with("aten::_fused_ad") ||
                 name.starts_with("aten::_fused_sgd");
    const bool is_fill = fills(s);
    for (size_t p = 0; p < s.parameters.size(); ++p) {
      const Parameter& parameter = s.parameters[p];
      const bool is_out = s.op && p < s.op->schema().arguments().size() && s.op->schema().arguments()[p].is_out();
      for (size_t i = 0; i < parameter.entries.size(); ++i) {
        const Parameter::Entry& entry = parameter.entries[i];
        if (entry.source != Parameter::Entry::Source::kOperand) continue;
        if (parameter.kind == Parameter::Kind::kTensorList) element[entry.index] = static_cast<int64_t>(i);
        if (is_out || (is_fill && p == 0)) read[entry.index] = 0;
      }
    }
  }
};

// Returns the list element that a result is computed from; -1: all.
int64_t element_of(const Signature& s, const Flow& flow, size_t result) {
  if (!flow.by_element) return -1;
  const size_t fresh = s.results.size() - s.mutated.size();
  return result < fresh ? static_cast<int64_t>(result) : flow.element[s.mutated[result - fresh]];
}

void join(std::vector<uint64_t>& to, const std::vector<uint64_t>& from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] |= from[i];
}

void set(std::vector<uint64_t>& bits, size_t i) { bits[i / kWord] |= uint64_t{1} << i % kWord; }
bool has(const std::vector<uint64_t>& bits, size_t i) { return (bits[i / kWord] >> i % kWord & 1) != 0; }

}  // namespace

Sources::Sources(const graph::Walk& walk, const std::vector<uint32_t>& calls) : leaves_(walk.leaves.size()) {
  const size_t words = words_ = (leaves_ + calls.size() + kWord - 1) / kWord;
  std::vector<Bits> of_leaf(leaves_, Bits(words));
  for (size_t i = 0; i < leaves_; ++i) set(of_leaf[i], i);
  std::multimap<uint32_t, size_t> required;  // by call
  for (size_t i = 0; i < calls.size(); ++i) required.emplace(calls[i], leaves_ + i);
  std::unordered_map<graph::SignaturePtr, Flow> flows;
  std::vector<std::vector<Bits>> of_call(walk.nodes.size());  // one for all results, or one for each
  const auto of = [&](const graph::Value& value) -> const Bits& {
    if (value.node->is_leaf()) return of_leaf[value.node->local];
    const std::vector<Bits>& results = of_call[value.node->local];
    return results.size() == 1 ? results[0] : results[value.index];
  };
  for (const Node* node : walk.nodes) {
    const Signature& s = *node->signature;
    const Flow& flow = flows.try_emplace(node->signature, s).first->second;
    Bits own(words);
    const auto [first, last] = required.equal_range(node->local);
    for (auto it = first; it != last; ++it) set(own, it->second);
    std::vector<Bits>& results = of_call[node->local];
    results.assign(flow.by_element ? std::max<size_t>(s.results.size(), 1) : 1, own);
    for (size_t r = 0; r < results.size(); ++r) {
      const int64_t element = flow.by_element ? element_of(s, flow, r) : -1;
      for (size_t i = 0; i < node->operands.size(); ++i) {
        const bool is_other = element >= 0 && flow.element[i] >= 0 && flow.element[i] != element;
        if (flow.read[i] && !is_other) join(results[r], of(node->operands[i]));
      }
    }
  }
  for (const graph::Value& result : walk.results) results_.push_back(of(result));
  auto order = std::make_shared<AssertionOrder>();
  order->calls = calls;
  order->first = leaves_;
  for (const uint32_t call : calls) order->bits.push_back(of_call[call][0]);
  order_ = std::move(order);
  name_assertions();
}

void Sources::name_assertions() {
  assertions_.assign(results_.size(), nullptr);
  std::map<std::vector<uint32_t>, std::shared_ptr<const std::vector<uint32_t>>> known;
  const size_t count = order_->calls.size();
  for (size_t r = 0; r < results_.size() && count > 0; ++r) {
    std::vector<uint32_t> which;
    for (size_t i = 0; i < count; ++i) {
      if (has(results_[r], leaves_ + i)) which.push_back(static_cast<uint32_t>(i));
    }
    if (which.empty()) continue;
    auto& one = known[which];
    if (!one) one = std::make_shared<const std::vector<uint32_t>>(which);
    assertions_[r] = one;
  }
}

void Sources::add_to_all(size_t place) {
  const Bits added = results_[place];
  for (Bits& bits : results_) join(bits, added);
  name_assertions();
}

std::vector<ChecksPtr> Sources::checks(const std::vector<ChecksPtr>& leaves,
                                       const std::shared_ptr<RunChecks>& run) const {
  // Leaves with equal checks form a group.
  std::vector<std::pair<ChecksPtr, Bits>> groups;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i] || leaves[i]->have_passed()) continue;
    auto group = std::ranges::find(groups, leaves[i], &std::pair<ChecksPtr, Bits>::first);
    if (group == groups.end()) group = groups.insert(group, {leaves[i], Bits(words_)});
    set(group->second, i);
  }
  const auto reaches = [&](size_t group, const Bits& bits) {
    const Bits& leaves_of_group = groups[group].second;
    for (size_t w = 0; w < bits.size(); ++w) {
      if ((leaves_of_group[w] & bits[w]) != 0) return true;
    }
    return false;
  };
  std::vector<ChecksPtr> found(results_.size());
  using Key = std::pair<std::vector<size_t>, const void*>;
  std::map<Key, ChecksPtr> known;
  std::map<const void*, std::shared_ptr<const Check>> own;
  for (size_t r = 0; r < results_.size(); ++r) {
    Key key{{}, run ? assertions_[r].get() : nullptr};
    for (size_t g = 0; g < groups.size(); ++g) {
      if (reaches(g, results_[r])) key.first.push_back(g);
    }
    if (key.first.empty() && !key.second) continue;
    ChecksPtr& checks = known[key];
    if (!checks) {
      std::vector<std::shared_ptr<const Check>> all;
      for (const size_t g : key.first) {
        for (const auto& check : groups[g].first->all()) {
          if (!check->has_passed() && std::ranges::find(all, check) == all.end()) all.push_back(check);
        }
      }
      std::ranges::sort(all, {}, [](const auto& check) { return check->run().number(); });
      if (key.second) {
        std::shared_ptr<const Check>& check = own[key.second];
        if (!check) check = Check::make(run, assertions_[r]);
        all.push_back(check);
      }
      checks = std::make_shared<const Checks>(std::move(all));
    }
    found[r] = checks;
  }
  if (run) {
    Follows follows{order_, {}};
    if (!groups.empty()) follows.earlier.resize(order_->calls.size());
    for (size_t i = 0; i < follows.earlier.size(); ++i) {
      for (size_t g = 0; g < groups.size(); ++g) {
        if (reaches(g, order_->bits[i])) follows.earlier[i].push_back(groups[g].first);
      }
    }
    run->set_settled(std::move(follows));
  }
  return found;
}

}  // namespace tpjrt::engine
