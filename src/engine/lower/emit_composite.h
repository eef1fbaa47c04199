// Calls that keep their meaning in a program's text, as stablehlo.composite.
//
// Note [Composites]: a node is an ATen call with a schema, so its composite follows from the node and is made where it is
// emitted, whatever its lowering. The name is the op's. What is no tensor is an attribute under its name in the schema;
// tensors are operands in the schema's order, then whatever varies: numbers that are the program's inputs, the random key.
// What the lowering requires of data (Note [Requirements]) stays outside, so that whoever replaces the composite
// computes its results and no more.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/lower/emit_call.h"

namespace tpjrt::engine {

std::set<std::string> composite_names();  // of all ops that have a meaning

// Is the call one that has a meaning, and is it asked for, or is there a default kernel for it (Note [Default kernels])?
bool is_composite(const graph::Signature& signature);

// emit_call without regard to what the call means.
using EmitPlainly = hlo::Values (*)(ops::Emit& e, const graph::Signature& signature, const hlo::Values& operands,
                                    const std::vector<LoweredNumber>& numbers, const hlo::Value& key);

hlo::Values emit_composite(ops::Emit& e, const graph::Signature& signature, const hlo::Values& operands,
                           const std::vector<LoweredNumber>& numbers, const hlo::Value& key, EmitPlainly plainly);

// What a composite is given: values, and the types of the tensors that they are.
struct Operands {
  hlo::Values values;
  std::vector<graph::TypePtr> types;

  void push_back(const hlo::Value& value, graph::TypePtr type);
  void push_back(const hlo::Value& number);  // or a key
};

// The composite of this name whose decomposition `results` emits from its operands, or from others like them. Undefined
// results are none of the composite's. A kernel may take its place (Note [Kernels]); where none does, and the text needn't
// keep it, it is what it is made of. `signature`: of the call that it is.
hlo::Values composite(ops::Emit& e, const graph::Signature& signature, const std::string& name,
                      const std::map<std::string, std::string>& attributes, const Operands& operands,
                      const hlo::Region& results);

}  // namespace tpjrt::engine
