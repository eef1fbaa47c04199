// Describes programs from their fingerprints.
#include "engine/log/description.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <unordered_map>

#include "graph/print.h"

namespace tpjrt::engine {
namespace {

using graph::Parameter;
using Field = Description::Field;

class Describer {
 public:
  Describer(const Program& program, const graph::DecodedGraph& decoded) : program_(program), decoded_(decoded) {}

  Description description() {
    Description result;
    result.graph = program_.serial;
    result.composites = program_.composites;
    result.kernels = program_.kernels;
    for (const graph::TypePtr type : decoded_.leaves) result.arguments.push_back(to_string(*type));
    for (const graph::DecodedGraph::Source& source : decoded_.results) result.results.push_back(place(source));
    for (const graph::Walk::Alias& alias : program_.aliases) result.reused.emplace_back(alias.leaf, alias.result);
    for (const graph::DecodedGraph::Call& call : decoded_.calls) {
      const graph::Signature& signature = *call.signature;
      Description::Call& described = result.calls.emplace_back();
      described.op = signature.name;
      described.file = signature.file;
      described.line = signature.line;
      for (size_t i = 0; i < signature.parameters.size(); ++i) add(call, i, described.fields);
      first_slot_ += signature.scalars;
    }
    return result;
  }

 private:
  static Description::Source place(const graph::DecodedGraph::Source& source) {
    const auto number = static_cast<int64_t>(source.number);
    return {source.leaf ? -1 - number : number, source.index};
  }

  void add(const graph::DecodedGraph::Call& call, size_t parameter_index, std::vector<Field>& fields) const {
    const Parameter& parameter = call.signature->parameters[parameter_index];
    const auto name = [&](size_t i, bool list) {
      return list ? parameter.name + "[" + std::to_string(i) + "]" : parameter.name;
    };
    switch (parameter.kind) {
      case Parameter::Kind::kConstant:
        fields.push_back({parameter.name, Field::Kind::kAttribute, constant(*call.signature, parameter_index), {}});
        break;
      case Parameter::Kind::kTensor:
      case Parameter::Kind::kTensorList:
        for (size_t i = 0; i < parameter.entries.size(); ++i) {
          add(call, name(i, parameter.kind == Parameter::Kind::kTensorList), parameter.entries[i], fields);
        }
        break;
      case Parameter::Kind::kScalar:
      case Parameter::Kind::kScalarList:
        for (uint32_t i = 0; i < parameter.count; ++i) {
          fields.push_back(number(name(i, parameter.kind == Parameter::Kind::kScalarList), parameter.first + i));
        }
        break;
    }
  }

  void add(const graph::DecodedGraph::Call& call, const std::string& name, const Parameter::Entry& entry,
           std::vector<Field>& fields) const {
    switch (entry.source) {
      case Parameter::Entry::Source::kUndefined: fields.push_back({name, Field::Kind::kTensor, "none", {}}); break;
      case Parameter::Entry::Source::kScalar: fields.push_back(number(name, entry.index)); break;
      case Parameter::Entry::Source::kOperand:
        fields.push_back({name, Field::Kind::kTensor, to_string(*call.signature->operands[entry.index]),
                          place(call.operands[entry.index])});
        break;
    }
  }

  Field number(const std::string& name, uint32_t index) const {
    const ScalarSlot& slot = program_.slots[first_slot_ + index];
    const auto kind = slot.promoted ? Field::Kind::kInput : slot.pinned ? Field::Kind::kPinned : Field::Kind::kScalar;
    return {name, kind, graph::to_string(slot.constant), {}};
  }

  static std::string constant(const graph::Signature& signature, size_t index) {
    const c10::IValue& value = signature.parameters[index].constant;
    // The schema's ScalarType arguments arrive as ints.
    if (value.isInt() && signature.op) {
      const c10::Type* type = signature.op->schema().arguments()[index].real_type().get();
      if (const auto* optional = type->castRaw<c10::OptionalType>()) type = optional->getElementType().get();
      if (type->kind() == c10::TypeKind::ScalarTypeType) return c10::toString(value.toScalarType());
    }
    std::ostringstream out;
    out << value;
    return out.str();
  }

  const Program& program_;
  const graph::DecodedGraph& decoded_;
  size_t first_slot_ = 0;
};

// The number of occurrences of each key.
template <class Key>
using Counts = std::unordered_map<Key, int64_t>;

struct Content {
  Counts<std::string_view> ops;
  Counts<graph::SignaturePtr> calls;
  Counts<graph::TypePtr> arguments;
  int64_t num_calls = 0;

  explicit Content(const Program& program) {
    const graph::DecodedGraph decoded = graph::decode_fingerprint(program.fingerprint);
    for (const graph::DecodedGraph::Call& call : decoded.calls) {
      ops[call.signature->name]++;
      calls[call.signature]++;
    }
    for (const graph::TypePtr type : decoded.leaves) arguments[type]++;
    num_calls = static_cast<int64_t>(decoded.calls.size());
  }
};

template <class Key>
int64_t in_common(const Counts<Key>& a, const Counts<Key>& b) {
  int64_t count = 0;
  for (const auto& [key, times] : a) {
    if (const auto it = b.find(key); it != b.end()) count += std::min(times, it->second);
  }
  return count;
}

}  // namespace

Description description_of(const Program& program) {
  return Describer(program, graph::decode_fingerprint(program.fingerprint)).description();
}

std::shared_ptr<const Program> most_similar(const Program& fresh,
                                            const std::vector<std::shared_ptr<Program>>& programs) {
  const Content content(fresh);
  std::shared_ptr<const Program> best;
  int64_t most = 0;
  for (const auto& program : programs) {
    const Content other(*program);
    const int64_t ops = in_common(content.ops, other.ops);
    if (2 * ops < std::max(content.num_calls, other.num_calls)) continue;
    const int64_t different = std::abs(content.num_calls - other.num_calls);
    const int64_t score = 2 * ops + in_common(content.calls, other.calls) +
                          in_common(content.arguments, other.arguments) - different +
                          (fresh.fingerprint == program->fingerprint ? 1 : 0);
    // Ties go to the latest program.
    if (best && (score < most || (score == most && program->serial < best->serial))) continue;
    best = program;
    most = score;
  }
  return best;
}

}  // namespace tpjrt::engine
