// Emits a whole graph: arguments in memory order, the nodes, results in memory order.
#include "engine/lower/module/emit_program.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/lower/emit_call.h"
#include "graph/errors.h"
#include "graph/signature.h"
#include "graph/world.h"
#include "kernels/table.h"
#include "ops/claims/claims.h"
#include "ops/rule/dims.h"
#include "ops/xla_cpu/cpu_lowerings.h"

namespace tpjrt::engine {
namespace {

using graph::ScalarValue;
using hlo::Dims;
using hlo::ElementType;
using hlo::Type;
using hlo::Value;
using hlo::Values;
using ops::Emit;

// Note [Buffers]: a buffer is the storage's memory as torch lays it out: dense, its dimensions in memory order.
struct MemoryForm {
  Type type;                    // of the buffer
  Dims to_memory, from_memory;  // permutations
};

MemoryForm memory_form(const graph::TensorType& type, Interface interface = Interface::kOwn) {
  auto order = type.memory_order();
  if (interface == Interface::kExported) std::sort(order.begin(), order.end());
  MemoryForm form;
  form.type.element = ops::element_of(type.dtype);
  form.to_memory.assign(order.begin(), order.end());
  form.from_memory.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    form.type.dims.push_back(type.sizes[static_cast<size_t>(order[i])]);
    form.from_memory[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return form;
}

// Note [NHWC layout]: CPU kernels take images in NHWC layout (Note [Claims]). Such an argument or
// result is not a transposed tensor but one with that layout: XLA:CPU would copy a transposed one, 16-bit floats even
// by way of float32, where a layout costs nothing. All plugins that accept handlers read such layouts.
Dims nhwc_order(const graph::TensorType& type, ops::Target target) {
  if (target != ops::Target::kCpuWithKernels || type.rank() < 4 || type.rank() > 5) return {};
  Dims order = ops::channels_last(type.rank());
  const auto outermost_first = type.memory_order();
  return std::equal(order.rbegin(), order.rend(), outermost_first.begin()) ? order : Dims();
}

Type logical(const graph::TensorType& type) {
  return {ops::element_of(type.dtype), Dims(type.sizes.begin(), type.sizes.end())};
}

// Layouts of a program's own arguments and results. Exported programs have none, nor does an alias whose layouts
// differ.
struct Orders {
  std::vector<Dims> leaves, results;
};

Orders orders_of(const graph::Walk& walk, const std::vector<int64_t>& arguments, const std::vector<int64_t>& places,
                 ops::Target target, Interface interface) {
  Orders orders{std::vector<Dims>(walk.leaves.size()), std::vector<Dims>(walk.results.size())};
  if (interface == Interface::kExported) return orders;
  for (size_t i = 0; i < orders.leaves.size(); ++i) {
    if (arguments[i] >= 0) orders.leaves[i] = nhwc_order(*walk.leaves[i]->leaf_type, target);
  }
  for (size_t i = 0; i < orders.results.size(); ++i) {
    if (places[i] >= 0) orders.results[i] = nhwc_order(*walk.results[i].type(), target);
  }
  for (const graph::Walk::Alias& alias : walk.aliases) {
    if (walk.leaves[alias.leaf]->leaf_type->sizes == walk.results[alias.result].type()->sizes &&
        orders.leaves[alias.leaf] == orders.results[alias.result]) {
      continue;
    }
    orders.leaves[alias.leaf].clear();
    orders.results[alias.result].clear();
  }
  return orders;
}

// Returns true if the program has NHWC images, as arguments or from the library's convolutions. XLA propagates the
// layout to the ops between them.
bool has_nhwc_images(const graph::Walk& walk, const Orders& orders, ops::Target target) {
  if (target != ops::Target::kCpuWithKernels) return false;
  const auto is_order = [](const Dims& order) { return !order.empty(); };
  if (std::any_of(orders.leaves.begin(), orders.leaves.end(), is_order)) return true;
  return std::any_of(walk.nodes.begin(), walk.nodes.end(), [](const graph::Node* node) {
    const graph::Signature& signature = *node->signature;
    return signature.name.find("convolution") != std::string::npos && !signature.operands.empty() &&
           ops::is_claimed(ops::Heavy::kConvolution, ops::element_of(signature.operands[0]->dtype), {ops::kAnyWork});
  });
}

// Reads the promoted scalars from the packed arguments (ScalarArguments).
class ScalarVectors {
 public:
  ScalarVectors(Emit& e, const std::vector<ScalarSlot>& slots) : e_(e) {
    size_t doubles = 0, integers = 0;
    for (const ScalarSlot& slot : slots) {
      if (!slot.promoted) continue;
      doubles += slot.constant.kind == ScalarValue::Kind::kComplex  ? 2
                 : slot.constant.kind == ScalarValue::Kind::kDouble ? 1
                                                                    : 0;
      integers += slot.constant.kind != ScalarValue::Kind::kComplex && slot.constant.kind != ScalarValue::Kind::kDouble;
    }
    doubles_.pieces = pieces(ElementType::kF64, doubles);
    integers_.pieces = pieces(ElementType::kS64, integers);
  }

  Value value(const ScalarSlot& slot) {
    if (!slot.promoted) return constant_of(e_, slot.constant);
    switch (slot.constant.kind) {
      case ScalarValue::Kind::kDouble: return next(doubles_);
      case ScalarValue::Kind::kComplex: {
        Value real = next(doubles_);
        return e_.complex(real, next(doubles_));
      }
      case ScalarValue::Kind::kBool: return e_.to(next(integers_), ElementType::kPred);
      default: return next(integers_);
    }
  }

 private:
  struct Packed {
    Values pieces;
    size_t next = 0;
  };

  Values pieces(ElementType element, size_t count) {
    Values values;
    for (size_t first = 0; first < count; first += kScalarsInVector) {
      values.push_back(e_.parameter({element, {static_cast<int64_t>(std::min(kScalarsInVector, count - first))}}));
    }
    return values;
  }

  Value next(Packed& flattened) {
    const size_t at = flattened.next++;
    const auto i = static_cast<int64_t>(at % kScalarsInVector);
    return e_.reshape(e_.slice(flattened.pieces[at / kScalarsInVector], {i}, {i + 1}, {1}), {});
  }

  Emit& e_;
  Packed doubles_, integers_;
};

// Returns the state of a draw: a key for each (seed, offset), by SplitMix64, and a counter that begins at 0. With the
// offset as the counter, successive draws would be shifted copies of each other.
Value random_key(Emit& e, const Value& seed, const Value& offset) {
  const Type word{ElementType::kU64, {}};
  const auto mixed = [&](const Value& x, int64_t shift, uint64_t factor) {
    Value y = e.binary("xor", x, e.binary("shift_right_logical", x, e.constant(shift, word)));
    return factor ? e.mul(y, e.constant_u64(factor, word)) : y;
  };
  Value step = e.mul(e.bitcast_convert(offset, word), e.constant_u64(0x9E3779B97F4A7C15, word));
  Value key = e.add(e.bitcast_convert(seed, word), step);
  key = mixed(mixed(mixed(key, 30, 0xBF58476D1CE4E5B9), 27, 0x94D049BB133111EB), 31, 0);
  return e.concatenate({e.reshape(key, {1}), e.zeros({ElementType::kU64, {1}})}, 0);
}

// The keys of an exported program (Note [Exported programs]), in the order in which the trace drew them.
class StateKeys {
 public:
  StateKeys(Emit& e, bool draws) : e_(e) {
    if (draws) state_ = e.parameter({ElementType::kS64, {2}});
  }

  // Returns the key of a draw. Draws that share a key in the trace share one here.
  Value key(const ScalarValue& seed, const ScalarValue& offset) {
    const auto drawn =
        static_cast<int64_t>(drawn_.emplace(std::pair(seed.bits, offset.bits), drawn_.size()).first->second);
    return random_key(e_, half(0), e_.add(half(1), e_.constant(drawn, {ElementType::kS64, {}})));
  }
  Value next() {
    const auto count = static_cast<int64_t>(drawn_.size());
    const Value offset = e_.add(half(1), e_.constant(count, {ElementType::kS64, {}}));
    return e_.concatenate({e_.reshape(half(0), {1}), e_.reshape(offset, {1})}, 0);
  }

 private:
  Value half(int64_t i) { return e_.reshape(e_.slice(state_, {i}, {i + 1}, {1}), {}); }

  Emit& e_;
  Value state_;
  std::map<std::pair<uint64_t, uint64_t>, size_t> drawn_;  // a key of the trace -> the number of keys before it
};

// Slices the members out of the flattened states (Note [Flattened state]) and stores each, in its buffer's layout, as
// its leaf's value.
void unpack(Emit& e, const graph::Walk& walk, Values& leaves) {
  for (const graph::FlattenedState& state : walk.states) {
    const Value whole = e.parameter({ops::element_of(state.dtype), {state.elements}});
    for (const graph::FlattenedState::Member& member : state.members) {
      const Type type = memory_form(*walk.leaves[member.leaf]->leaf_type).type;
      const Value flat = e.slice(whole, {member.first}, {member.first + type.elements()}, {1});
      leaves[member.leaf] = e.reshape(flat, type.dims);
    }
  }
}

Value flattened(Emit& e, const graph::FlattenedState& state, const Values& results) {
  Values members;
  for (const graph::FlattenedState::Member& member : state.members) {
    const Value& result = results[member.result];
    members.push_back(e.reshape(result, {result.type.elements()}));
  }
  return e.concatenate(members, 0);
}

// Returns the processes of the program's collectives: one group's or, in a captured step, the world's
// (device/process_group/backend.h). Replicas are numbered by ascending process.
std::vector<int> processes_of(const graph::Walk& walk) {
  std::vector<int64_t> ranks;
  if (graph::in_world()) return {};
  for (const graph::Node* node : walk.nodes) {
    if (!graph::collective(*node->signature)) continue;
    std::vector<int64_t> its = graph::ranks_of(*node->signature);
    std::sort(its.begin(), its.end());
    TORCH_INTERNAL_ASSERT(ranks.empty() || ranks == its, "one program has collectives of two sets of processes");
    ranks = std::move(its);
  }
  return {ranks.begin(), ranks.end()};
}

Value extremes(Emit& e) {
  Values words;
  for (const ops::Assertion& assertion : e.assertions()) {
    words.push_back(e.reshape(assertion.least, {1}));
    words.push_back(e.reshape(assertion.greatest, {1}));
  }
  return e.concatenate(words, 0);
}

}  // namespace

EmittedProgram emit_program(const graph::Walk& walk, std::vector<ScalarSlot>& slots, bool with_assertions,
                            ops::Target target, bool knows_composites, Interface interface) {
  Emit e("graph", target);
  std::vector<int> processes = processes_of(walk);
  e.set_replicas(static_cast<int64_t>(processes.empty() ? graph::world_size().load() : processes.size()));
  if (auto* claiming = kernels::Claiming::current()) claiming->begin();
  if (!with_assertions) e.without_assertions();
  if (!knows_composites) e.set_composites_as_calls();
  const std::vector<int64_t> arguments = graph::argument_places(walk), places = graph::result_places(walk);
  const Orders orders = orders_of(walk, arguments, places, target, interface);
  e.set_nhwc(has_nhwc_images(walk, orders, target));
  Values leaves(walk.leaves.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (arguments[i] < 0) continue;
    const graph::TensorType& type = *walk.leaves[i]->leaf_type;
    const Dims& order = orders.leaves[i];
    leaves[i] = e.parameter(order.empty() ? memory_form(type, interface).type : logical(type), order);
  }
  unpack(e, walk, leaves);
  ScalarVectors promoted(e, slots);
  const bool is_exported = interface == Interface::kExported;
  const bool draws = is_exported && std::any_of(walk.nodes.begin(), walk.nodes.end(),
                                                [](const graph::Node* node) { return node->signature->random; });
  StateKeys keys(e, draws);
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!orders.leaves[i].empty()) continue;
    leaves[i] = e.transpose(leaves[i], memory_form(*walk.leaves[i]->leaf_type, interface).from_memory);
  }
  std::vector<Values> done(walk.nodes.size());
  const auto lowered = [&](const graph::Value& value) -> const Value& {
    return value.node->is_leaf() ? leaves[value.node->local] : done[value.node->local][value.index];
  };
  std::vector<ProgramAssertion> assertions;
  size_t slot = 0;
  std::vector<char> pins(slots.size(), 0);
  const std::vector<ops::Overwrites> overwrites =
      is_cpu(target) ? overwrites_of(walk, slots) : std::vector<ops::Overwrites>(walk.nodes.size());
  for (const graph::Node* node : walk.nodes) {
    e.set_overwrites(overwrites[node->local]);
    const graph::Signature& signature = *node->signature;
    if (!signature.file.empty()) e.set_location(signature.file, signature.line);
    Values operands;
    for (const graph::Value& operand : node->operands) operands.push_back(lowered(operand));
    std::vector<LoweredScalar> scalars;
    for (size_t i = 0; i < node->scalars.size(); ++i, ++slot) {
      scalars.push_back(
          {node->scalars[i], promoted.value(slots[slot]), slots[slot].promoted, reinterpret_cast<bool*>(&pins[slot])});
    }
    Value key;
    if (signature.random) {
      const LoweredScalar &seed = scalars[scalars.size() - 2], &offset = scalars.back();
      key = draws ? keys.key(seed.number, offset.number) : random_key(e, seed.value, offset.value);
      scalars.resize(scalars.size() - 2);
    }
    done[node->local] = emit_call(e, signature, operands, scalars, key);
    for (size_t i = assertions.size(); i < e.assertions().size(); ++i) {
      assertions.push_back(program_assertion(e.assertions()[i], *node));
    }
    e.set_location("", 0);
  }
  bool again = false;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!pins[i]) continue;
    again |= slots[i].promoted;
    slots[i].pinned = true;
    slots[i].promoted = false;
  }
  if (again) return emit_program(walk, slots, with_assertions, target, knows_composites, interface);
  Values values, results;
  std::vector<Dims> result_orders;
  for (size_t i = 0; i < walk.results.size(); ++i) {
    const graph::Value& value = walk.results[i];
    const bool in_its_layout = !orders.results[i].empty();
    values.push_back(in_its_layout ? lowered(value)
                                   : e.transpose(lowered(value), memory_form(*value.type(), interface).to_memory));
    if (places[i] < 0) continue;
    results.push_back(values.back());
    result_orders.push_back(orders.results[i]);
  }
  std::vector<uint32_t> unchanged;
  for (const graph::Walk::Alias& alias : walk.aliases) {
    e.alias(arguments[alias.leaf], places[alias.result]);
    if (is_exported && values[alias.result].id == leaves[alias.leaf].id) unchanged.push_back(alias.result);
  }
  int64_t next = graph::count_of_own(arguments);
  for (const graph::FlattenedState& state : walk.states) {
    e.alias(next++, static_cast<int64_t>(results.size()));
    results.push_back(flattened(e, state, values));
  }
  if (draws) {
    e.alias(next, static_cast<int64_t>(results.size()));
    results.push_back(keys.next());
  }
  if (!assertions.empty()) results.push_back(extremes(e));
  result_orders.resize(results.size());
  std::string text = ops::with_updates_in_place(e.finish(results, result_orders), target);
  return {ops::with_stored_values(std::move(text), target, e.is_nhwc()),
          std::move(processes),
          draws,
          std::move(unchanged),
          std::move(assertions),
          e.kernel_calls()};
}

}  // namespace tpjrt::engine
