// The attributes of a composite: its call's arguments other than the operands.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/lower/emit_call.h"
#include "graph/signature.h"

namespace tpjrt::engine {

// Returns the attributes by name, in MLIR syntax. `numbers` that vary are operands, not attributes.
std::map<std::string, std::string> attributes_of(const graph::Signature& signature,
                                                 const std::vector<LoweredScalar>& scalars);

}  // namespace tpjrt::engine
