// Calls that run on the CPU through other PyTorch calls, because PyTorch has no kernel for them or a wrong one, and
// random draws, which take a key of the device instead of a generator.
//
// A call's arguments, for functions that run it on the CPU where only other devices have a kernel.
//
// Calls whose PyTorch CPU kernel gives a wrong result.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "graph/scalar_value.h"
#include "graph/signature.h"

namespace tpjrt::kernels {

// The random numbers that a program would draw (ops/creation/draw.h), drawn on the host: the same bits for the same
// key.

// A call's key, and its counter.
using RandomState = std::array<uint64_t, 2>;

// Returns the key that a program makes of a call's two numbers (random_key in engine/lower/module/emit_program.cpp).
RandomState random_state_of(uint64_t seed, uint64_t offset);

// Returns a PyTorch generator for PyTorch's own kernels, seeded with the key.
at::Generator generator_of(const RandomState& state);

// Returns true with the given probability.
at::Tensor random_chance(RandomState& state, double probability, c10::IntArrayRef sizes);
// Returns numbers in [0, 1).
at::Tensor random_uniform(RandomState& state, c10::ScalarType dtype, c10::IntArrayRef sizes);
// Returns from + bits % range in int64, with 32 bits where that is enough; a range of 0 means 2^64.
at::Tensor random_integers(RandomState& state, int64_t from, uint64_t range, c10::IntArrayRef sizes);

using Tensors = std::vector<at::Tensor>;

// A call's arguments by their names in the schema.
struct HostArguments {
  const graph::Signature& signature;
  c10::ArrayRef<graph::ScalarValue> scalars;
  c10::ArrayRef<at::Tensor> operands;
  RandomState state{};  // for a call that draws

  const graph::Parameter& parameter(std::string_view name) const {
    for (const graph::Parameter& parameter : signature.parameters) {
      if (parameter.name == name) return parameter;
    }
    throw std::logic_error(signature.name + " has no argument " + std::string(name));
  }
  const c10::IValue& constant(std::string_view name) const { return parameter(name).constant; }
  at::Tensor tensor(std::string_view name) const {
    const graph::Parameter& p = parameter(name);
    if (p.kind != graph::Parameter::Kind::kTensor || p.entries[0].source != graph::Parameter::Entry::Source::kOperand)
      return {};
    return operands[p.entries[0].index];
  }
  Tensors tensors(std::string_view name) const {
    Tensors all;
    for (const graph::Parameter::Entry& entry : parameter(name).entries) {
      all.push_back(entry.source == graph::Parameter::Entry::Source::kOperand ? operands[entry.index] : at::Tensor());
    }
    return all;
  }
  double number(std::string_view name) const {
    const graph::Parameter& p = parameter(name);
    return p.kind == graph::Parameter::Kind::kScalar ? scalars[p.first].scalar().toDouble() : p.constant.toDouble();
  }
  bool flag(std::string_view name) const { return constant(name).toBool(); }
  bool has(std::string_view name) const {
    const graph::Parameter& p = parameter(name);
    return p.kind != graph::Parameter::Kind::kConstant || !p.constant.isNone();
  }
  int64_t integer(std::string_view name) const {
    const graph::Parameter& p = parameter(name);
    if (p.kind != graph::Parameter::Kind::kScalar) return p.constant.toInt();
    return scalars[p.first].scalar().toLong();
  }
  std::optional<double> optional_number(std::string_view name) const {
    const graph::Parameter& p = parameter(name);
    if (p.kind == graph::Parameter::Kind::kConstant && p.constant.isNone()) return std::nullopt;
    return number(name);
  }
};

struct HostArguments;  // host_kernel.h

// Returns the results, on the operands' device. Throws errors in the arguments. May be called from any thread.
using HostKernel = std::vector<at::Tensor> (*)(const HostArguments& arguments);

// Returns null where PyTorch's own kernel runs the call, or nothing does.
HostKernel host_kernel(const graph::Signature& signature);
// Likewise, for kernels that take tensors of any device.
HostKernel any_device_kernel(const graph::Signature& signature);

// Returns null where PyTorch's kernel is right.
HostKernel corrected(const graph::Signature& signature);

// Random draws on the CPU from a key.

// Returns this device's own draw (ops/creation/random.cpp), with the same bits as a program: the same integers, and
// floats that differ by the last bits of a logarithm or a sine. Returns null for any other call.
HostKernel own_draw(const graph::Signature& signature);

// Returns a draw by PyTorch's kernel from a generator seeded with the key: poisson, binomial, gamma, Dirichlet and
// permutations. Programs on the CPU call the same functions; other devices draw other numbers
// (ops/creation/draw.cpp). Returns null for any other call.
HostKernel pytorch_draw(const graph::Signature& signature);

}  // namespace tpjrt::kernels
