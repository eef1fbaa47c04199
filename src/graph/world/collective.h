// Recognizes ops that concern several ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/signature.h"

namespace tpjrt::graph {

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
