// What a composite says of its call beside the operands.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/lower/emit_call.h"

namespace tpjrt::engine {

// By name, in MLIR syntax. `numbers` that vary are operands and no attributes.
std::map<std::string, std::string> attributes_of(const graph::Signature& signature,
                                                 const std::vector<LoweredNumber>& numbers);

}  // namespace tpjrt::engine
