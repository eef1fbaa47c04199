// Calls that keep their meaning in a program's text, as stablehlo.composite.
//
// Note [Composites]: a node is an ATen call with a schema, so its composite follows from the node and is made when the
// node is emitted, whatever its lowering. The op's name is the composite's. Arguments other than tensors are attributes
// named as in the schema. Operands are the tensors in the schema's order, then the inputs that vary: scalars and the
// random key. Runtime assertions of the lowering (Note [Runtime assertions]) stay outside, so that a replacement only
// computes the results.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/lower/emit_call.h"

namespace tpjrt::engine {

std::set<std::string> composite_names();  // all ops that have one

// Returns true if the op has a composite that was requested or has a default kernel (Note [Default kernels]).
bool is_composite(const graph::Signature& signature);

// Emits a call like emit_call, but without a composite.
using EmitPlainly = hlo::Values (*)(ops::Emit& e, const graph::Signature& signature, const hlo::Values& operands,
                                    const std::vector<LoweredScalar>& scalars, const hlo::Value& key);

hlo::Values emit_composite(ops::Emit& e, const graph::Signature& signature, const hlo::Values& operands,
                           const std::vector<LoweredScalar>& scalars, const hlo::Value& key, EmitPlainly plainly);

// A composite's operands and the types of the tensors that they represent.
struct Operands {
  hlo::Values values;
  std::vector<graph::TypePtr> types;

  void push_back(const hlo::Value& value, graph::TypePtr type);
  void push_back(const hlo::Value& number);  // or a key
};

// Emits the composite of this name; `results` emits its decomposition from the operands or from others like them.
// Undefined results are left out. A kernel may replace it (Note [Kernels]). Otherwise it is inlined unless the text
// must keep it. `signature` is the call's.
hlo::Values composite(ops::Emit& e, const graph::Signature& signature, const std::string& name,
                      const std::map<std::string, std::string>& attributes, const Operands& operands,
                      const hlo::Region& results);

}  // namespace tpjrt::engine
