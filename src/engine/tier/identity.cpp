// Writing a tape without addresses.
#include "engine/tier/identity.h"

#include <sstream>
#include <unordered_map>

namespace tpjrt::engine {
namespace {

using graph::Parameter;
using graph::Signature;
using graph::TapeGraph;

void write(std::ostream& out, const Signature& s) {
  out << s.name << '@' << int{s.device} << '(';
  for (const Parameter& parameter : s.parameters) {
    out << parameter.name << ':' << static_cast<int>(parameter.kind) << '=';
    if (parameter.kind == Parameter::Kind::kConstant) out << parameter.constant;
    for (const Parameter::Entry& entry : parameter.entries) {
      out << static_cast<int>(entry.source) << '.' << entry.index << (entry.wrapped_number ? "w" : "") << ' ';
    }
    out << parameter.first << '+' << parameter.count << ';';
  }
  for (const graph::TypePtr type : s.operands) out << graph::to_string(*type) << ' ';
  out << "->";
  for (const graph::TypePtr type : s.results) out << (type ? graph::to_string(*type) : "none") << ' ';
  out << ')' << (s.composites ? "c" : "") << '\n';
}

}  // namespace

std::string identity(const graph::Walk& walk) {
  const TapeGraph tape = graph::read_tape(walk.tape);
  std::ostringstream out;
  const auto source = [&](const TapeGraph::Source& value) {
    out << (value.leaf ? 'l' : 'n') << value.number << '.' << value.index << ' ';
  };
  for (const graph::TypePtr type : tape.leaves) out << graph::to_string(*type) << ' ';
  std::unordered_map<const Signature*, size_t> numbers;
  for (const TapeGraph::Call& call : tape.calls) {
    const auto [at, is_new] = numbers.try_emplace(call.signature, numbers.size());
    if (is_new) write(out, *call.signature);
    out << at->second << ' ';
    for (const TapeGraph::Source& operand : call.operands) source(operand);
    out << '\n';
  }
  for (const TapeGraph::Source& result : tape.results) source(result);
  for (const graph::Walk::Alias& alias : walk.aliases) out << alias.leaf << '>' << alias.result << ' ';
  return out.str();
}

}  // namespace tpjrt::engine
