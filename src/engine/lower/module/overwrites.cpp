// Finds the writes that read the memory they overwrite.
#include "engine/lower/module/emit_program.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace tpjrt::engine {
namespace {

using graph::Node;

// The elements that a pjrt::view reads of its base, or that a pjrt::write writes to it.
struct Window {
  graph::TypePtr part;  // dtype and sizes
  std::vector<int64_t> strides;
  int64_t offset = 0;

  bool is_like(const Window& other) const {
    return part->dtype == other.part->dtype && part->sizes == other.part->sizes && strides == other.strides;
  }
  // Returns true if two windows of equal shape and strides don't overlap.
  bool is_apart_from(const Window& other) const {
    int64_t span = 1, step = 0;
    for (size_t i = 0; i < strides.size(); ++i) {
      span += (part->sizes[i] - 1) * strides[i];
      if (part->sizes[i] > 1) step = std::gcd(step, strides[i]);
    }
    const int64_t distance = std::abs(offset - other.offset);
    return distance >= span || (step != 0 && distance % step != 0);  // columns next to each other are apart
  }
};

// The windows of one memory, as long as every written value depends on it elementwise and through windows of equal
// shape that are identical or disjoint (rows, for example). A loop then reads each element before it writes it.
struct Rows {
  std::vector<Window> windows;
  bool broken = false;
};

class Overwrites {
 public:
  Overwrites(const graph::Walk& walk, const std::vector<ScalarSlot>& slots) : walk_(walk), slots_(slots) {
    size_t slot = 0;
    for (const Node* node : walk.nodes) {
      first_slot_.push_back(slot);
      slot += node->scalars.size();
    }
    // Values with equally many elements may share memory: XLA simplifies ops, and writes elementwise results over
    // operands.
    group_.resize(walk.leaves.size() + walk.nodes.size());
    std::iota(group_.begin(), group_.end(), size_t{0});
    for (const Node* node : walk.nodes) {
      const graph::TypePtr result = node->signature->results.empty() ? nullptr : node->signature->results[0];
      if (result == nullptr) continue;
      for (const graph::Value& operand : node->operands) {
        if (operand.type()->numel() == result->numel()) group_[group(operand.node.get())] = group(node);
      }
    }
  }

  // Returns how a node overwrites. Called in the order of the walk.
  ops::Overwrites at(const Node* node) {
    if (!writes(node)) return ops::Overwrites::kReadAnywhere;
    const Node* update = node->operands[1].node.get();
    const size_t memory = group(node->operands[0].node.get());
    std::vector<const Node*> readers;  // nodes that read the memory
    std::vector<const Node*> above = ancestors(update, memory, readers);
    const bool itself = group(update) == memory;
    if (readers.empty() && !itself) return ops::Overwrites::kNothingRead;
    Rows& rows = rows_[memory];
    const bool one = node->operands[1].type()->numel() <= 1;  // read before it is written
    rows.broken = rows.broken || one || itself || !keeps_rows(rows, node, readers, std::move(above));
    return rows.broken && !one ? ops::Overwrites::kReadAnywhere : ops::Overwrites::kReadInRows;
  }

 private:
  // Returns the node and its ancestors that are not this memory. Appends those that read the memory to `readers`.
  std::vector<const Node*> ancestors(const Node* node, size_t memory, std::vector<const Node*>& readers) {
    std::unordered_set<const Node*> seen;
    std::vector<const Node*> pending{node}, found;
    while (!pending.empty()) {
      const Node* reader = pending.back();
      pending.pop_back();
      if (reader->is_leaf() || !seen.insert(reader).second) continue;
      found.push_back(reader);
      bool reads = false;
      for (const graph::Value& operand : reader->operands) {
        const bool here = group(operand.node.get()) == memory;
        reads |= here;
        if (!here) pending.push_back(operand.node.get());
      }
      if (reads) readers.push_back(reader);
    }
    return found;
  }

  bool keeps_rows(Rows& rows, const Node* write, const std::vector<const Node*>& readers,
                  std::vector<const Node*> above) const {
    std::sort(above.begin(), above.end(), [](const Node* a, const Node* b) { return a->local < b->local; });
    std::unordered_set<const Node*> depends(readers.begin(), readers.end());
    for (const Node* node : above) {
      if (depends.contains(node)) continue;
      const bool reads = std::any_of(node->operands.begin(), node->operands.end(),
                                     [&](const graph::Value& operand) { return depends.contains(operand.node.get()); });
      if (!reads) continue;
      depends.insert(node);
      const graph::Signature& signature = *node->signature;
      const bool element_by_element = signature.op && signature.op->hasTag(at::Tag::pointwise) &&
                                      signature.results[0]->sizes == write->operands[1].type()->sizes;
      if (!element_by_element) return false;
    }
    std::vector<const Node*> users = readers;
    users.push_back(write);
    for (const Node* user : users) {
      if (user != write && user->signature->name != "pjrt::view") return false;
      if (first_of(user) != first_of(write)) return false;  // other values, such as a permutation
      const std::optional<Window> window = window_of(user);
      if (!window) return false;
      for (const Window& other : rows.windows) {
        if (!window->is_like(other)) return false;
        if (window->offset != other.offset && !window->is_apart_from(other)) return false;
      }
      rows.windows.push_back(*window);
    }
    return true;
  }

  // Returns the base before it was written to.
  static const Node* first_of(const Node* user) {
    const Node* base = user->operands[0].node.get();
    while (!base->is_leaf() && base->signature->name == "pjrt::write") base = base->operands[0].node.get();
    return base;
  }

  static bool writes(const Node* node) { return node->signature->name == "pjrt::write"; }

  // Returns nothing if the offset is an argument of the program, or if the op encodes its window differently.
  std::optional<Window> window_of(const Node* node) const {
    if (node->signature->op) return std::nullopt;
    if (slots_[first_slot_[node->local]].promoted) return std::nullopt;
    const bool writes = node->operands.size() > 1;
    const graph::TypePtr part = writes ? node->operands[1].type() : node->signature->results[0];
    const size_t strides = writes ? 3 : 2;
    return Window{part, node->signature->parameters[strides].constant.toIntVector(), node->scalars[0].as_int()};
  }

  size_t group(const Node* node) {
    size_t i = node->is_leaf() ? node->local : walk_.leaves.size() + node->local;
    while (group_[i] != i) i = group_[i] = group_[group_[i]];
    return i;
  }

  const graph::Walk& walk_;
  const std::vector<ScalarSlot>& slots_;
  std::vector<size_t> first_slot_;
  std::vector<size_t> group_;  // leaves, then nodes
  std::unordered_map<size_t, Rows> rows_;
};

}  // namespace

std::vector<ops::Overwrites> overwrites_of(const graph::Walk& walk, const std::vector<ScalarSlot>& slots) {
  Overwrites overwrites(walk, slots);
  std::vector<ops::Overwrites> result;
  for (const Node* node : walk.nodes) result.push_back(overwrites.at(node));
  return result;
}

}  // namespace tpjrt::engine
