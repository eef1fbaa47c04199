// Prints graphs.
#include "graph/print.h"

#include <charconv>
#include <sstream>
#include <unordered_map>

namespace tpjrt::graph {
namespace {

class Printer {
 public:
  std::string print(const std::vector<Value>& results) {
    for (const Node* node : topological_order(results)) line(*node);
    out_ << "return";
    for (size_t i = 0; i < results.size(); ++i) out_ << (i ? ", " : " ") << name(results[i]);
    out_ << "\n";
    return out_.str();
  }

 private:
  std::string name(const Value& value) {
    if (!value) return "none";
    std::string text = "%" + std::to_string(names_.at(value.node.get()));
    if (!value.node->is_leaf() && value.node->signature->results.size() > 1) text += "." + std::to_string(value.index);
    return text;
  }

  std::string text(const Node& node, const Parameter::Entry& entry) {
    switch (entry.source) {
      case Parameter::Entry::Source::kUndefined: return "none";
      case Parameter::Entry::Source::kOperand: return name(node.operands[entry.index]);
      case Parameter::Entry::Source::kScalar: break;
    }
    return to_string(node.scalars[entry.index]);
  }

  std::string text(const Node& node, const Parameter& parameter) {
    std::string list;
    switch (parameter.kind) {
      case Parameter::Kind::kConstant: {
        std::ostringstream out;
        out << parameter.constant;
        return out.str();
      }
      case Parameter::Kind::kTensor: return text(node, parameter.entries.at(0));
      case Parameter::Kind::kScalar: return to_string(node.scalars[parameter.first]);
      case Parameter::Kind::kTensorList:
        for (const auto& entry : parameter.entries) list += (list.empty() ? "" : ", ") + text(node, entry);
        break;
      case Parameter::Kind::kScalarList:
        for (uint32_t i = 0; i < parameter.count; ++i) {
          list += (list.empty() ? "" : ", ") + to_string(node.scalars[parameter.first + i]);
        }
        break;
    }
    return "[" + list + "]";
  }

  void line(const Node& node) {
    const size_t number = names_.size();
    names_.emplace(&node, number);
    out_ << "%" << number << " = ";
    if (node.is_leaf()) {
      out_ << to_string(*node.leaf_type) << (node.data ? " leaf\n" : " placeholder\n");
      return;
    }
    const Signature& signature = *node.signature;
    for (size_t i = 0; i < signature.results.size(); ++i) {
      out_ << (i ? ", " : "") << (signature.results[i] ? to_string(*signature.results[i]) : "none");
    }
    out_ << " " << signature.name << "(";
    for (size_t i = 0; i < signature.parameters.size(); ++i) {
      const Parameter& parameter = signature.parameters[i];
      out_ << (i ? ", " : "") << parameter.name << "=" << text(node, parameter);
    }
    out_ << ")";
    if (!signature.file.empty()) out_ << "  # " << signature.file << ":" << signature.line;
    out_ << "\n";
  }

  std::ostringstream out_;
  std::unordered_map<const Node*, size_t> names_;
};

}  // namespace

std::string to_string(const ScalarValue& number) {
  if (number.kind == ScalarValue::Kind::kDouble) {
    char digits[32];
    std::string shortest(digits, std::to_chars(digits, digits + sizeof(digits), number.as_double()).ptr);
    const bool integral = shortest.find_first_not_of("-0123456789") == std::string::npos;
    return integral ? shortest + ".0" : shortest;
  }
  std::ostringstream out;
  out << c10::IValue(number.scalar());
  return out.str();
}

std::string print(const std::vector<Value>& results) { return Printer().print(results); }

}  // namespace tpjrt::graph
