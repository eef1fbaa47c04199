// Kernels in the places of composites: the offer, and what a claim is emitted as (Note [Kernels], kernels/kernel.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/lower/emit_call.h"
#include "kernels/claiming.h"

namespace tpjrt::engine {

// Who claims the composite of this call: nobody where the program is one that is only shown. Throws what is wrong with a
// kernel. `operands`: their types.
kernels::Answer offer(const graph::Signature& signature, const std::string& name,
                      const std::map<std::string, std::string>& attributes,
                      const std::vector<graph::TypePtr>& operands);

// The results, of the types of the signature's. Throws where the kernel gives others.
hlo::Values emit_claim(ops::Emit& e, const graph::Signature& signature, const std::string& name,
                       const kernels::Answer& answer, const hlo::Values& operands,
                       const std::vector<graph::TypePtr>& types);

}  // namespace tpjrt::engine
