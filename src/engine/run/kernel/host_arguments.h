// A call as those see it that do on the CPU what only other devices have kernels for.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/run/kernel/host_random.h"
#include "graph/node.h"

namespace tpjrt::engine {

using Tensors = std::vector<at::Tensor>;

// A call's arguments by their names in the schema.
struct HostArguments {
  const graph::Node& node;
  c10::ArrayRef<at::Tensor> operands;

  const graph::Parameter& parameter(std::string_view name) const {
    for (const graph::Parameter& parameter : node.signature->parameters) {
      if (parameter.name == name) return parameter;
    }
    throw std::logic_error(node.signature->name + " has no argument " + std::string(name));
  }
  const c10::IValue& constant(std::string_view name) const { return parameter(name).constant; }
  at::Tensor tensor(std::string_view name) const {
    const graph::Parameter& p = parameter(name);
    if (p.kind != graph::Parameter::Kind::kTensor || p.entries[0].source != graph::Parameter::Entry::Source::kOperand)
      return {};
    return operands[p.entries[0].index];
  }
  double number(std::string_view name) const {
    const graph::Parameter& p = parameter(name);
    return p.kind == graph::Parameter::Kind::kNumber ? node.numbers[p.first].scalar().toDouble()
                                                     : p.constant.toDouble();
  }
  RandomState random_state() const {  // the last two numbers
    const size_t count = node.numbers.size();
    return random_state_of(node.numbers[count - 2].bits, node.numbers[count - 1].bits);
  }
  bool has(std::string_view name) const {
    const graph::Parameter& p = parameter(name);
    return p.kind != graph::Parameter::Kind::kConstant || !p.constant.isNone();
  }
  int64_t integer(std::string_view name) const {
    const graph::Parameter& p = parameter(name);
    if (p.kind != graph::Parameter::Kind::kNumber) return p.constant.toInt();
    return node.numbers[p.first].scalar().toLong();
  }
  std::optional<double> optional_number(std::string_view name) const {
    const graph::Parameter& p = parameter(name);
    if (p.kind == graph::Parameter::Kind::kConstant && p.constant.isNone()) return std::nullopt;
    return number(name);
  }
};

// The kernel as a HostKernel.
template <Tensors (*kernel)(const HostArguments&)>
Tensors given(const graph::Node& node, c10::ArrayRef<at::Tensor> operands) {
  return kernel(HostArguments{node, operands});
}

}  // namespace tpjrt::engine
