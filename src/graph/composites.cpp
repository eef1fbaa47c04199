// The sets of composites of this process, and composites' names.
#include "graph/composites.h"

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

}  // namespace tpjrt::graph
