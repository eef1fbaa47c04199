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
  bool by_default = false;                     // `names` are what kernels can claim, and the text keeps none of them
  std::set<std::string> names;                 // unless all
  std::map<std::string, std::string> renamed;  // what a consumer of the text calls them
  const kernels::Table* kernels = nullptr;     // that may take their places (src/kernels); null: none
  // Of this name, or of what it is the backward of.
  bool contains(std::string name) const;
  // Does it stand in the text where no kernel takes its place?
  bool stays(const std::string& name) const { return !by_default && contains(name); }
  auto operator<=>(const Composites&) const = default;
};
using CompositesPtr = const Composites*;  // null: none

// Null where it asks for none.
CompositesPtr intern(const Composites& composites);
std::string composite_name(std::string_view op);  // of "aten::gelu" "aten.gelu.default"
// "my.op.backward" becomes "my.op"; false, and unchanged, where the name is no backward's.
bool to_forward(std::string& name);

// What is asked for now, in the whole process.
inline std::atomic<CompositesPtr>& asked_composites() {
  static constinit std::atomic<CompositesPtr> asked{nullptr};
  return asked;
}

}  // namespace tpjrt::graph
