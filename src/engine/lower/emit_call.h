// From signatures and lowered operands to StableHLO: rules, inner calls and decompositions alike.
#pragma once

#include <c10/util/ArrayRef.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "engine/lower/call_lowering.h"
#include "graph/node.h"
#include "ops/rule/emit.h"

namespace tpjrt::engine {

// One number of a call, lowered.
struct LoweredNumber {
  graph::Number number;
  hlo::Value value;        // 0-d f64, s64, kPred or c128
  bool varies = false;     // an input of the program
  bool* pinned = nullptr;  // set when a rule needs to know the value
};

// The results of one call, in the order and of the types of signature.results. `key` is for random ops.
hlo::Values emit_call(ops::Emit& e, const graph::Signature& signature, const hlo::Values& operands,
                      const std::vector<LoweredNumber>& numbers, const hlo::Value& key);

// The nodes of a decomposition or a region, the operands in its placeholders' places.
hlo::Values emit_subgraph(ops::Emit& e, const Subgraph& graph, const hlo::Values& operands, const hlo::Value& key);

// One key of many that are made of one.
hlo::Value derived_key(ops::Emit& e, const hlo::Value& key, int64_t index);

// The module of this call alone, on parameters in its operands' places; numbers are constants, and keys among them are left
// out. What can be said of a call is tried on it: by rules while it is recorded, by XLA where that refuses a graph. Throws
// what its rule throws.
std::string emit_alone(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers, ops::Target target);

// Does its program, or one of what it is made of, check what its operands hold (Note [Requirements])? True where it can't be
// emitted.
bool requires_of_data(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers);

// Whether that can be emitted. False, with the reason, where a rule says Unsupported or emits what doesn't fit; the latter
// throws InternalError in strict mode.
bool try_emit(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers, ops::Target target,
              std::string& reason);

// For code that tries rules through Python, where an InternalError becomes another exception: forgets the last one of this
// thread, and throws it again if there was one since.
void forget_wrong_rule();
void rethrow_wrong_rule();

// A constant 0-d value of the number's own type.
hlo::Value constant_of(ops::Emit& e, const graph::Number& number);

}  // namespace tpjrt::engine
