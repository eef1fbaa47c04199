// Writes a fingerprint without addresses. Shape-polymorphic keys of graphs: equal for graphs that differ only in sizes.
#include "engine/tier/graph_keys.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine/tier/policy.h"

namespace tpjrt::engine {

namespace {

using graph::DecodedGraph;
using graph::Parameter;
using graph::Signature;

void add(std::string& text, uint64_t number, char end) {
  char digits[20];
  text.append(digits, std::to_chars(digits, std::end(digits), number).ptr);
  text += end;
}

// Appends a constant. This avoids streams: a new graph has many constants, and a stream would take most of the time.
void add(std::string& text, const c10::IValue& constant) {
  if (constant.isNone()) {
    text += "None";
  } else if (constant.isInt()) {
    text += std::to_string(constant.toInt());
  } else if (constant.isBool()) {
    text += constant.toBool() ? "True" : "False";
  } else {
    std::ostringstream out;
    out << constant;
    text += out.str();
  }
}

void add(std::string& text, const Signature& s) {
  text += s.name;
  text += '@';
  text += std::to_string(int{s.device});
  text += '(';
  for (const Parameter& parameter : s.parameters) {
    text += parameter.name;
    text += ':';
    add(text, static_cast<uint64_t>(parameter.kind), '=');
    if (parameter.kind == Parameter::Kind::kConstant) add(text, parameter.constant);
    for (const Parameter::Entry& entry : parameter.entries) {
      add(text, static_cast<uint64_t>(entry.source), '.');
      add(text, entry.index, entry.wrapped_number ? 'w' : ' ');
    }
    add(text, parameter.first, '+');
    add(text, parameter.count, ';');
  }
  for (const graph::TypePtr type : s.operands) text += graph::to_string(*type) + ' ';
  text += "->";
  for (const graph::TypePtr type : s.results) text += (type ? graph::to_string(*type) : "none") + ' ';
  text += s.composites ? ")c\n" : ")\n";
}

}  // namespace

std::string identity(const graph::Walk& walk) {
  const DecodedGraph decoded = graph::decode_fingerprint(walk.fingerprint);
  std::string text;
  const auto source = [&](const DecodedGraph::Source& value) {
    text += value.leaf ? 'l' : 'n';
    add(text, value.number, '.');
    add(text, value.index, ' ');
  };
  for (const graph::TypePtr type : decoded.leaves) text += graph::to_string(*type) + ' ';
  std::unordered_map<const Signature*, size_t> numbers;
  for (const DecodedGraph::Call& call : decoded.calls) {
    const auto [at, is_new] = numbers.try_emplace(call.signature, numbers.size());
    if (is_new) add(text, *call.signature);
    add(text, at->second, ' ');
    for (const DecodedGraph::Source& operand : call.operands) source(operand);
    text += '\n';
  }
  for (const DecodedGraph::Source& result : decoded.results) source(result);
  for (const graph::Walk::Alias& alias : walk.aliases) {
    add(text, alias.leaf, '>');
    add(text, alias.result, ' ');
  }
  return text;
}

namespace {

using graph::Node;
using graph::Value;

constexpr size_t kMostKeys = size_t{1} << 14;

}  // namespace

uint64_t hash_of_calls(const graph::Walk& walk, const std::function<bool(const Node&)>& chosen,
                       const std::function<uint64_t(const Node&)>& word) {
  std::map<std::pair<const Node*, uint32_t>, uint64_t> numbers;  // numbers of values, in the order of their first use
  uint64_t hash = 0;
  for (const Node* node : walk.nodes) {
    if (!chosen(*node)) continue;
    hash = graph::mixed(hash, word(*node));
    for (const Value& operand : node->operands) {
      hash = graph::mixed(hash, numbers.try_emplace({operand.node.get(), operand.index}, numbers.size()).first->second);
    }
    for (uint32_t k = 0; k < node->signature->results.size(); ++k) numbers.try_emplace({node, k}, numbers.size());
  }
  return hash;
}

bool has_integer_ops_only(const graph::Walk& walk) {
  return std::ranges::all_of(walk.nodes, [](const Node* node) { return is_of_few_integers(*node); });
}

uint64_t shape_key(const graph::Walk& walk) {
  return hash_of_calls(
      walk, [](const Node& node) { return !is_of_few_integers(node); },
      [](const Node& node) {
        uint64_t word = std::hash<std::string_view>()(node.signature->name);
        for (const graph::TypePtr type : node.signature->operands) {
          word = graph::mixed(word, static_cast<uint64_t>(type->dtype));
        }
        return word;
      });
}

int GraphKeys::count(uint64_t key, const graph::Walk& walk) {
  if (seen_.size() == kMostKeys) seen_.clear();
  Seen& seen = seen_[key];
  if (seen.first == 0) seen.first = walk.hash;
  if (seen.first == walk.hash) return 0;
  if (seen.second == 0) seen.second = walk.hash;
  return seen.second == walk.hash ? 1 : 2;
}

}  // namespace tpjrt::engine
