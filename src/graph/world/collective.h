// Which ops of a graph concern several ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/signature.h"

namespace tpjrt::graph {

// An op of ours for worlds (device/world/collectives.cpp): what comes behind "pjrt_world::". Nothing for other ops.
std::optional<std::string_view> world_op(const Signature& signature);
// The same of those in which ranks communicate.
std::optional<std::string_view> collective(const Signature& signature);
// Its ranks: one group behind the other.
std::vector<int64_t> ranks_of(const Signature& signature);
// A constant argument by its name.
const c10::IValue& constant(const Signature& signature, std::string_view name);

}  // namespace tpjrt::graph
