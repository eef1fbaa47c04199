// The call of a node: an operator with its attributes, operand types and result types, but no values.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/composites.h"
#include "graph/type.h"

namespace tpjrt::graph {

// The precision of float32 products, by XLA's names. It is PyTorch's setting, on devices that have a choice. On a GPU
// the latter two are TF32; on a TPU they are three passes in bfloat16, and one.
enum class Precision : uint8_t { kHighest, kHigh, kDefault };

struct Precisions {
  Precision products = Precision::kHighest, convolutions = Precision::kHighest;
};

// Whose settings apply. A CPU has no choice, so no settings are read.
enum class PrecisionSettings : uint8_t { kNone, kCuda, kOther };

// One value for the whole process, which has one plugin. Set when its client is created, before the first call is
// recorded.
inline std::atomic<PrecisionSettings>& precision_settings() {
  static constinit std::atomic<PrecisionSettings> settings{PrecisionSettings::kNone};
  return settings;
}

// One schema argument of a node.
struct Parameter {
  enum class Kind : uint8_t {
    kConstant,    // None, int, float, bool, list, dtype, string, …, stored in `constant`
    kTensor,      // operand `first`
    kTensorList,  // operands [first, first + count); `entries` also has undefined ones, -1
    kScalar,      // a Scalar: number `first`
    kScalarList,  // numbers [first, first + count)
  };
  // One tensor of kTensor or kTensorList.
  struct Entry {
    enum class Source : uint8_t { kUndefined, kOperand, kScalar };  // kScalar: a 0-dim CPU tensor taken by value
    Source source = Source::kUndefined;
    uint32_t index = 0;  // into the node's operands or numbers
    TypePtr type = nullptr;
    bool wrapped_number = false;
  };
  std::string name;
  Kind kind = Kind::kConstant;
  c10::IValue constant;
  std::vector<Entry> entries;
  uint32_t first = 0, count = 0;
};

// The recorder interns signatures: a distinct call has one address for the life of the process. Two nodes do the same
// computation if their signatures are the same pointer, their operands are the same, and their scalars are equal.
struct Signature {
  std::string name;                       // "aten::add.Tensor", "pjrt::view"
  std::optional<c10::OperatorHandle> op;  // none for this project's own nodes ("pjrt::…")
  std::vector<Parameter> parameters;      // in schema order
  std::vector<TypePtr> operands;          // types of the node's tensor operands
  std::vector<TypePtr> results;           // fresh results, then the new values of mutated arguments; null: undefined
  uint32_t scalars = 0;                   // how many scalars a node has
  int8_t device = 0;                      // index of the operands' and results' device
  bool random = false;                    // the last two numbers are the random key
  CompositesPtr composites = nullptr;     // requested when it was recorded
  Precisions precisions;                  // requested when it was recorded
  std::vector<uint32_t> mutated;          // operand indices whose new values are the last results, in order

  // Counts consecutive intervals between reads that began with this call and were short (Note [Eager fast path],
  // device/start/eager_fast_path.h). Guarded by graph_lock(). Valid if `intervals_of` is the number of the current
  // policy.
  mutable uint8_t short_intervals = 0;
  mutable uint32_t intervals_of = 0;

  std::string file;  // the user's line that first recorded it
  int line = 0;

  // Owned by the engine: how the call is lowered. Written once, before the signature is published.
  mutable std::shared_ptr<const void> lowering;
  // Owned by the engine, under its lock: how the call runs on the host, once requested.
  mutable const void* on_host = nullptr;
  // The lowering was traced with the scalars of the first such call, so it is valid for those only (a decomposition).
  mutable bool lowering_holds_scalars = false;

  // Adds a tensor operand with this name.
  void add_operand(std::string called, TypePtr type) {
    Parameter parameter;
    parameter.name = std::move(called);
    parameter.kind = Parameter::Kind::kTensor;
    parameter.entries.push_back(
        {Parameter::Entry::Source::kOperand, static_cast<uint32_t>(operands.size()), type, false});
    parameters.push_back(std::move(parameter));
    operands.push_back(type);
  }
};

using SignaturePtr = const Signature*;

// The ops of a world (Note [World], graph/world.h).

// Returns the name after "pjrt_world::" of this project's world ops (device/collectives/collectives.cpp); nothing for
// other ops.
std::optional<std::string_view> world_op(const Signature& signature);
// Likewise for ops in which ranks communicate.
std::optional<std::string_view> collective(const Signature& signature);
// Returns the op's ranks, group after group.
std::vector<int64_t> ranks_of(const Signature& signature);
// Returns a constant argument by its name.
const c10::IValue& constant(const Signature& signature, std::string_view name);

}  // namespace tpjrt::graph
