// Selects values to run among all pending slots.
#include "graph/pending.h"

#include <algorithm>
#include <unordered_set>

namespace tpjrt::graph {
namespace {

Component* root_of(const Value& value) { return Component::root(value.node->component.get()); }

// Counts pending nodes that were recorded after `since`: those that one value needs and the bytes that they read, until
// either is enough.
class NewWork {
 public:
  NewWork(uint64_t since, const Least& enough) : since_(since), enough_(enough) {}

  bool is_new(const Node& node) const { return !node.is_leaf() && node.leaves.empty() && node.id > since_; }
  bool is_enough() const { return nodes_.size() >= enough_.nodes || nbytes_ >= enough_.nbytes; }
  void look_at(const Node& node) {
    nodes_.assign(1, &node);
    for (size_t i = 0; i < nodes_.size() && !is_enough(); ++i) {
      for (const Value& operand : nodes_[i]->operands) {
        const Node* one = operand.node.get();
        if (is_new(*one) && std::find(nodes_.begin(), nodes_.end(), one) == nodes_.end()) nodes_.push_back(one);
        if (one->is_leaf()) nbytes_ += one->leaf_type->nbytes();
      }
    }
  }

 private:
  uint64_t since_;
  const Least& enough_;
  c10::SmallVector<const Node*, 16> nodes_;
  size_t nbytes_ = 0;
};

}  // namespace

std::vector<Value> pending(uint64_t since, const Least& least) {
  std::vector<Value> values;
  if (since == kEver && least.nodes >= Component::kLarge) {  // such components are listed, because every sync asks
    values = Component::large();
    std::erase_if(values, [&](const Value& value) {
      return root_of(value)->nodes < least.nodes || root_of(value)->oldest > least.begun;
    });
    return values;
  }
  NewWork work(since, least);
  std::unordered_set<const Component*> components;
  StorageSlot::for_each_pending([&](const Value& value) {
    const Component* root = root_of(value);
    const bool may_run = !root->traced && root->oldest <= least.begun && (since != kEver || root->nodes >= least.nodes);
    if (!may_run || !work.is_new(*value.node)) return true;
    if (since != kEver && !work.is_enough()) work.look_at(*value.node);
    if (components.insert(root).second) values.push_back(value);
    return true;
  });
  if (since != kEver && !work.is_enough()) values.clear();
  return values;
}

bool any_pending() {
  bool any = false;
  StorageSlot::for_each_pending([&](const Value& value) { return !(any = !root_of(value)->traced); });
  return any;
}

}  // namespace tpjrt::graph
