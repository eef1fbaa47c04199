// Reads a world op (Note [World], graph/world.h) from its signature: name, ranks, constant arguments.
#include "graph/signature.h"

#include <c10/util/Exception.h>

namespace tpjrt::graph {

std::optional<std::string_view> world_op(const Signature& signature) {
  constexpr std::string_view kOurs = "pjrt_world::";
  const std::string_view name = signature.name;
  return name.starts_with(kOurs) ? std::optional(name.substr(kOurs.size())) : std::nullopt;
}

std::optional<std::string_view> collective(const Signature& signature) {
  const std::optional<std::string_view> op = world_op(signature);
  return op == "per_rank" || op == "promised_equal" ? std::nullopt : op;
}

std::vector<int64_t> ranks_of(const Signature& signature) { return constant(signature, "groups").toIntVector(); }

const c10::IValue& constant(const Signature& signature, std::string_view name) {
  for (const Parameter& parameter : signature.parameters) {
    if (parameter.name == name) return parameter.constant;
  }
  TORCH_INTERNAL_ASSERT(false, signature.name, " has no argument ", name);
}

}  // namespace tpjrt::graph
