// Walks components: the hot half of a sync.
#include "graph/fingerprint/walk.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "graph/errors.h"

namespace tpjrt::graph {

namespace {

// The lowest two bits of a fingerprint word are its kind, so that different graphs never give the same words.
enum Word : uint64_t { kNode = 0, kOperand = 1, kLeaf = 2, kResult = 3 };

class Walker {
 public:
  explicit Walker(Walk& out, bool placeholders = false) : out_(out), placeholders_(placeholders), mark_(++last_mark_) {}

  void visit(Node* root) {
    if (root->is_leaf()) {
      (void)leaf(root);
      return;
    }
    if (root->mark == mark_) return;
    root->mark = mark_;
    stack_.push_back({root, 0});
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      if (frame.next == frame.node->operands.size()) {
        emit(frame.node);
        stack_.pop_back();
        continue;
      }
      Value& operand = frame.node->operands[frame.next++];
      Node* node = operand.node.get();
      if (!node->leaves.empty()) node = settle(operand).node.get();
      if (node->mark == mark_) continue;
      if (node->is_leaf()) {
        (void)leaf(node);
        continue;
      }
      node->mark = mark_;
      stack_.push_back({node, 0});
    }
  }

  void result(const Value& value) {
    out_.fingerprint.push_back(reference(value) << 2 | kResult);
    out_.results.push_back(value);
  }

 private:
  struct Frame {
    Node* node;
    size_t next;
  };

  uint32_t leaf(Node* node) {
    if (node->mark == mark_) return node->local;
    if (!node->data && !placeholders_)
      throw DependsOnData("its result depends on data, which is not there while a graph is traced", node);
    node->mark = mark_;
    node->local = static_cast<uint32_t>(out_.leaves.size());
    node->uses = 0;
    out_.leaves.push_back(NodePtr::reclaim_copy(node));
    out_.fingerprint.push_back(reinterpret_cast<uint64_t>(node->leaf_type) << 2 | kLeaf);
    return node->local;
  }

  static uint64_t reference(const Value& value) {
    return static_cast<uint64_t>(value.node->local) << 20 | static_cast<uint64_t>(value.index) << 1 |
           static_cast<uint64_t>(value.node->is_leaf());
  }

  void emit(Node* node) {
    node->local = static_cast<uint32_t>(out_.nodes.size());
    out_.nodes.push_back(node);
    out_.fingerprint.push_back(reinterpret_cast<uint64_t>(node->signature) << 2 | kNode);
    for (const Value& operand : node->operands) {
      if (operand.node->is_leaf()) operand.node->uses++;
      out_.fingerprint.push_back(reference(operand) << 2 | kOperand);
    }
    out_.scalars.insert(out_.scalars.end(), node->scalars.begin(), node->scalars.end());
  }

  Walk& out_;
  bool placeholders_;
  uint64_t mark_;
  std::vector<Frame> stack_;
  static uint64_t last_mark_;  // guarded by the engine's lock
};

uint64_t Walker::last_mark_ = 0;

void finish(Walk& out) {
  const auto add = [&](const auto& alias) {
    out.fingerprint.push_back((static_cast<uint64_t>(alias.leaf) << 32 | alias.result) << 2 | Word::kLeaf);
  };
  for (const Walk::Alias& alias : out.aliases) add(alias);
  for (const FlattenedState& state : out.states) {
    out.fingerprint.push_back(~uint64_t{0} << 2 | Word::kLeaf);  // no alias has this value: there are fewer leaves
    for (const FlattenedState::Member& member : state.members) add(member);
  }
  uint64_t hash = out.fingerprint.size();
  for (const uint64_t word : out.fingerprint) hash = mixed(hash, word);
  out.hash = hash;
}

// Finds leaves of the walk by address alone, because a slot's previous leaf may be freed.
class LeafIndex {
 public:
  explicit LeafIndex(const Walk& walk) {
    for (uint32_t i = 0; i < walk.leaves.size(); ++i) by_address_.emplace_back(walk.leaves[i].get(), i);
    std::sort(by_address_.begin(), by_address_.end());
  }
  // Returns each leaf only once.
  std::optional<uint32_t> take(const Node* leaf) {
    const auto it = std::lower_bound(by_address_.begin(), by_address_.end(), std::pair<const Node*, uint32_t>(leaf, 0));
    if (it == by_address_.end() || it->first != leaf || it->second == kTaken) return std::nullopt;
    return std::exchange(it->second, kTaken);
  }

 private:
  static constexpr uint32_t kTaken = ~uint32_t{0};
  std::vector<std::pair<const Node*, uint32_t>> by_address_;
};

// Finds updates in place: results that may overwrite the memory of the leaf that their storage held before.
void find_aliases(const std::vector<StorageSlot*>& held, Walk& out) {
  LeafIndex leaves(out);
  uint32_t result = 0;
  for (const StorageSlot* slot : held) {
    while (!(out.results[result] == slot->value())) ++result;
    const Node* previous = slot->previous_leaf();
    if (!previous || (!out.aliases.empty() && out.aliases.back().result == result)) continue;
    const auto leaf = leaves.take(previous);
    if (leaf && out.leaves[*leaf]->leaf_type == slot->value().type()) out.aliases.push_back({*leaf, result});
  }
}

bool recorded_before(const Value& x, const Value& y) {
  return x.node->id != y.node->id ? x.node->id < y.node->id : x.index < y.index;
}

void add_root(const Value& value, std::vector<Component*>& roots) {
  if (!value || value.node->is_leaf()) return;
  Component* root = Component::root(value.node->component.get());
  if (std::find(roots.begin(), roots.end(), root) == roots.end()) roots.push_back(root);
}

std::vector<StorageSlot*> slots_of(const std::vector<Component*>& roots) {
  std::vector<StorageSlot*> held;
  for (Component* root : roots) {
    for (Link* link = root->slots.next; link != &root->slots; link = link->next)
      held.push_back(static_cast<StorageSlot*>(link));
  }
  return held;
}

void sort(std::vector<StorageSlot*>& held) {
  std::sort(held.begin(), held.end(),
            [](const StorageSlot* a, const StorageSlot* b) { return recorded_before(a->value(), b->value()); });
}

void walk_results(const std::vector<Value>& results, const std::vector<StorageSlot*>& held, Walk& out) {
  Walker walker(out);
  for (const Value& value : results) walker.visit(value.node.get());
  for (const Value& value : results) walker.result(value);
  find_aliases(held, out);
  finish(out);
}

}  // namespace

DecodedGraph decode_fingerprint(const std::vector<uint64_t>& fingerprint) {
  DecodedGraph graph;
  const auto source = [](uint64_t reference) {
    return DecodedGraph::Source{(reference & 1) != 0, static_cast<uint32_t>(reference >> 20),
                                static_cast<uint32_t>(reference >> 1 & ((1U << 19) - 1))};
  };
  for (const uint64_t word : fingerprint) {
    const uint64_t content = word >> 2;
    switch (word & 3) {
      case kNode: graph.calls.push_back({reinterpret_cast<SignaturePtr>(content), {}}); break;
      case kOperand: graph.calls.back().operands.push_back(source(content)); break;
      case kResult: graph.results.push_back(source(content)); break;
      case kLeaf:  // after the results: an alias, or a member of a flattened state
        if (graph.results.empty()) graph.leaves.push_back(reinterpret_cast<TypePtr>(content));
        break;
    }
  }
  return graph;
}

void Walk::clear() {
  nodes.clear();
  leaves.clear();
  results.clear();
  scalars.clear();
  aliases.clear();
  states.clear();
  fingerprint.clear();
  is_awaited = false;
}

void walk(c10::ArrayRef<StorageSlot*> slots, Walk& out) {
  out.clear();
  std::vector<Component*> roots;
  for (const StorageSlot* slot : slots) add_root(slot->value(), roots);
  std::vector<StorageSlot*> held = slots_of(roots);
  sort(held);
  Walker walker(out);
  for (StorageSlot* slot : held) walker.visit(slot->value().node.get());
  for (StorageSlot* slot : held) {
    if (out.results.empty() || !(out.results.back() == slot->value())) walker.result(slot->value());
  }
  find_aliases(held, out);
  finish(out);
}

void walk_some(const std::vector<Value>& within, const std::function<bool(const Node&)>& chosen,
               const std::vector<Value>& needed, Walk& out) {
  out.clear();
  std::vector<Component*> roots;
  for (const Value& value : within) add_root(value, roots);
  std::vector<StorageSlot*> held;
  for (StorageSlot* slot : slots_of(roots)) {
    if (chosen(*slot->value().node)) held.push_back(slot);
  }
  sort(held);
  std::vector<Value> results = needed;
  for (const StorageSlot* slot : held) results.push_back(slot->value());
  std::sort(results.begin(), results.end(), recorded_before);
  results.erase(std::unique(results.begin(), results.end()), results.end());
  walk_results(results, held, out);
}

void walk_values(const std::vector<Value>& results, Walk& out) {
  out.clear();
  walk_results(results, /*held=*/{}, out);
}

void walk_trace(const std::vector<Value>& results, c10::ArrayRef<Update> updates, c10::ArrayRef<uint32_t> supplied,
                Walk& out) {
  out.clear();
  Walker walker(out, /*placeholders=*/true);
  for (const Value& value : results) walker.visit(value.node.get());
  for (const Value& value : results) walker.result(value);
  LeafIndex leaves(out);
  std::vector<char> may_be_flattened;
  for (const Update& update : updates) {
    const auto leaf = leaves.take(update.leaf);
    if (!leaf || update.leaf->leaf_type != results[update.result].type()) continue;
    out.aliases.push_back({*leaf, update.result});
    may_be_flattened.push_back(static_cast<char>(update.may_be_flattened));
  }
  flatten_state(out, may_be_flattened);
  for (const uint32_t result : supplied) {
    out.aliases.push_back({static_cast<uint32_t>(out.leaves.size()), result});
    out.leaves.push_back(make_leaf(results[result].type(), nullptr));
  }
  finish(out);
}

std::vector<const Node*> in_recording_order(const Walk& walk) {
  std::vector<const Node*> nodes(walk.nodes.begin(), walk.nodes.end());
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->id < b->id; });
  return nodes;
}

}  // namespace tpjrt::graph
