// Writes a fingerprint without addresses.
#include "engine/tier/identity.h"

#include <charconv>
#include <cstdint>
#include <iterator>
#include <sstream>
#include <unordered_map>

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

}  // namespace tpjrt::engine
