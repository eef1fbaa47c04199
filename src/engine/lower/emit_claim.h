// Kernels in place of composites: the offer, and the emission of a claim (Note [Kernels], kernels/table.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/signature.h"
#include "hlo/builder.h"
#include "kernels/table.h"
#include "ops/rule/emit.h"

namespace tpjrt::engine {

// Returns the kernel that claims this call's composite; none in programs that are only printed. Throws if a kernel is
// invalid. `operands`: their types.
kernels::Answer offer(const graph::Signature& signature, const std::string& name,
                      const std::map<std::string, std::string>& attributes,
                      const std::vector<graph::TypePtr>& operands);

// Returns the results, with the signature's result types. Throws if the kernel gives other types.
hlo::Values emit_claim(ops::Emit& e, const graph::Signature& signature, const std::string& name,
                       const kernels::Answer& answer, const hlo::Values& operands,
                       const std::vector<graph::TypePtr>& types);

}  // namespace tpjrt::engine
