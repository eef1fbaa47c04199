// Requested composites: calls that keep their meaning in a program's text.
//
// A composite's name is its op's, "aten.gelu.default", or the user's name of a group of calls, "my.op". The composites
// that are requested when a call is recorded become part of its signature, and so of its graph's fingerprint. Programs
// with and without composites therefore differ in their fingerprints.
#pragma once

#include <atomic>
#include <compare>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace tpjrt::kernels {
class Table;
}

namespace tpjrt::graph {

// Interned: equal sets have one address for the life of the process.
struct Composites {
  bool all = false;
  bool by_default = false;                     // `names` are those that kernels can claim, and the text keeps none
  std::set<std::string> names;                 // ignored if `all`
  std::map<std::string, std::string> renamed;  // names for a consumer of the text
  const kernels::Table* kernels = nullptr;     // kernels that may replace them (src/kernels); null: none
  // Returns true if the set has this name, or the name that it is the backward of.
  bool contains(std::string name) const;
  // Returns true if it stays in the text when no kernel replaces it.
  bool stays(const std::string& name) const { return !by_default && contains(name); }
  auto operator<=>(const Composites&) const = default;
};
using CompositesPtr = const Composites*;  // null: none

// Returns null for an empty set.
CompositesPtr intern(const Composites& composites);
std::string composite_name(std::string_view op);  // "aten.gelu.default" of "aten::gelu"
// Turns "my.op.backward" into "my.op". Returns false, and changes nothing, if the name is no backward's.
bool to_forward(std::string& name);

// The composites that are requested now, in the whole process.
inline std::atomic<CompositesPtr>& asked_composites() {
  static constinit std::atomic<CompositesPtr> asked{nullptr};
  return asked;
}

}  // namespace tpjrt::graph
