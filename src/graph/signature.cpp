// The sets of composites of this process, and what a signature says of an op in a world.
#include "graph/signature.h"

#include <c10/util/Exception.h>

#include <mutex>

namespace tpjrt::graph {

CompositesPtr intern(const Composites& composites) {
  if (!composites.all && !composites.by_default && composites.names.empty()) return nullptr;
  static auto* lock = new std::mutex;
  static auto* sets = new std::set<Composites>;
  std::lock_guard guard(*lock);
  return &*sets->insert(composites).first;
}

bool Composites::contains(std::string name) const {
  if (all) return true;
  do {
    if (names.contains(name)) return true;
  } while (to_forward(name));
  return false;
}

bool to_forward(std::string& name) {
  constexpr std::string_view kBackward = ".backward";
  if (!name.ends_with(kBackward)) return false;
  name.resize(name.size() - kBackward.size());
  return true;
}

std::string composite_name(std::string_view op) {
  const size_t colons = op.find("::");
  const std::string_view rest = op.substr(colons + 2);
  return std::string(op.substr(0, colons)) + "." + std::string(rest) + (rest.find('.') == rest.npos ? ".default" : "");
}

// The ops of a world.

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
