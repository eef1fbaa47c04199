// Which calls keep their meaning in a program's text: the composites that are asked for.
//
// A composite's name is its op's, "aten.gelu.default", or what the user calls a group of calls, "my.op". What is asked for
// when a call is recorded becomes part of its signature, and so of the tape of its graph: programs with composites and
// without are told apart by what they are made of.
#pragma once

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace tpjrt::kernels {
class Table;
}

namespace tpjrt::graph {

// Interned: one address for equal ones, for the life of the process.
struct Composites {
  bool all = false;
  bool by_default = false;                     // those that a kernel can claim, of which the text keeps none
  std::set<std::string> names;                 // unless all
  std::map<std::string, std::string> renamed;  // what a consumer of the text calls them
  const kernels::Table* kernels = nullptr;     // that may take their places (src/kernels); null: none
  std::set<std::string> claimable;             // by_default: what these are for
  // Does it stand in the text where no kernel takes its place? A group's backward does with the group.
  bool stays(std::string name) const;
  bool contains(const std::string& name) const { return stays(name) || claimable.contains(name); }
  auto operator<=>(const Composites&) const = default;
};
using CompositesPtr = const Composites*;  // null: none

// Null where it asks for none.
CompositesPtr intern(const Composites& composites);
std::string composite_name(std::string_view op);  // of "aten::gelu" "aten.gelu.default"

// What is asked for now, in the whole process.
inline std::atomic<CompositesPtr>& asked_composites() {
  static constinit std::atomic<CompositesPtr> asked{nullptr};
  return asked;
}

}  // namespace tpjrt::graph
