// The lazy graph: construction, components, and destruction and search without recursion, because a graph may be deep.
// Selects values to run among all pending slots.
#include "graph/node.h"

#include <pthread.h>

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tpjrt::graph {

namespace {

uint64_t newest = 1;  // guarded by graph_lock(); 0 is before all nodes (kEver)

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

std::mutex& graph_lock() {
  // Outlives static destructors, because tensors may be freed at interpreter exit. Forks wait for it, so that a child
  // may free its tensors, too.
  static auto* lock = [] {
    pthread_atfork([] { graph_lock().lock(); }, [] { graph_lock().unlock(); }, [] { graph_lock().unlock(); });
    return new std::mutex;
  }();
  return *lock;
}

Component* Component::root(Component* component) {
  while (component->parent) {
    if (component->parent->parent) component->parent = component->parent->parent;
    component = component->parent.get();
  }
  return component;
}

Component* Component::join(Component* a, Component* b) {
  if (a == b) return a;
  if (a->nodes < b->nodes) std::swap(a, b);
  if (b->slots.listed()) {
    Link* first = b->slots.next;
    Link* last = b->slots.previous;
    b->slots.previous = b->slots.next = &b->slots;
    first->previous = a->slots.previous;
    a->slots.previous->next = first;
    last->next = &a->slots;
    a->slots.previous = last;
  }
  a->nodes += b->nodes;
  a->oldest = std::min(a->oldest, b->oldest);
  a->traced |= b->traced;
  b->parent = ComponentPtr::reclaim_copy(a);
  return a;
}

std::vector<ComponentPtr>& Component::listed() {
  static auto* components = new std::vector<ComponentPtr>;
  return *components;
}

std::vector<Value> Component::large() {
  // Drops components that have run, whose tensors were freed, or that were joined to another.
  std::erase_if(listed(), [](const ComponentPtr& one) { return one->parent || !one->slots.listed() || one->traced; });
  std::vector<Value> values;
  for (size_t i = listed().size(); i-- > 0;) {
    values.push_back(static_cast<StorageSlot*>(listed()[i]->slots.next)->value());
  }
  return values;
}

Component::~Component() {
  // Releases a chain of parents without recursion, because it can be long.
  ComponentPtr above = std::move(parent);
  while (above && above.use_count() == 1) above = std::move(above->parent);
}

// Operands are released through a queue of the thread, because a chain of a million nodes must not recurse.
Node::~Node() {
  bool last_holder = false;
  for (const Value& operand : operands)
    last_holder |= !operand.node->is_leaf() && operand.node.use_count() <= operands.size();
  if (!last_holder) return;
  static thread_local std::vector<Value>* queue = nullptr;
  if (queue) {
    for (Value& operand : operands) {
      if (!operand.node->is_leaf()) queue->push_back(std::move(operand));
    }
    return;
  }
  std::vector<Value> mine;
  queue = &mine;
  for (Value& operand : operands) mine.push_back(std::move(operand));
  while (!mine.empty()) {
    Value value = std::move(mine.back());
    mine.pop_back();
  }
  queue = nullptr;
}

StorageSlot::~StorageSlot() { unlist(); }

StorageSlot::Everywhere& StorageSlot::all() {
  static auto* ring = new Everywhere(nullptr);
  return *ring;
}

void StorageSlot::unlist() {
  if (!listed()) return;
  unlink();
  everywhere_.unlink();
}

void StorageSlot::bind(Value value) {
  if (value_.is_leaf()) previous_leaf_ = value_.node.get();
  unlist();
  value_ = std::move(value);
  if (!value_) return;
  if (value_.node->is_leaf()) {
    previous_leaf_ = nullptr;
    return;
  }
  insert_before(Component::root(value_.node->component.get())->slots);
  everywhere_.insert_before(all());
}

const Value& settle(Value& value) {
  if (value.node && !value.node->leaves.empty() && value.node->leaves[value.index]) {
    value = Value{value.node->leaves[value.index], 0};
  }
  return value;
}

uint64_t newest_id() { return newest; }

NodePtr make_node(SignaturePtr signature, c10::SmallVectorImpl<Value>& operands,
                  c10::SmallVectorImpl<ScalarValue>& scalars) {
  auto node = c10::make_intrusive<Node>(signature, ++newest);
  Component* component = nullptr;
  bool traced = false;
  node->operands.reserve(operands.size());
  for (Value& operand : operands) {
    settle(operand);
    traced |= operand.node->is_leaf() && !operand.node->data;
    if (Component* other = operand.node->component.get()) {
      other = Component::root(other);
      component = component ? Component::join(component, other) : other;
    }
    node->operands.push_back(std::move(operand));
  }
  node->scalars.append(scalars.begin(), scalars.end());
  if (component) {
    node->component = ComponentPtr::reclaim_copy(component);
  } else {
    node->component = c10::make_intrusive<Component>();
    node->component->oldest = node->id;
  }
  Component* root = Component::root(node->component.get());
  root->nodes++;
  root->traced |= traced;
  if (root->nodes >= Component::kLarge && !root->listed_as_large_) {
    root->listed_as_large_ = true;
    Component::listed().push_back(ComponentPtr::reclaim_copy(root));
  }
  return node;
}

NodePtr make_leaf(TypePtr type, std::shared_ptr<Data> data) { return c10::make_intrusive<Node>(type, std::move(data)); }

std::vector<const Node*> topological_order(const std::vector<Value>& results) {
  std::vector<const Node*> order;
  std::unordered_set<const Node*> seen;
  std::vector<std::pair<const Node*, size_t>> stack;
  for (const Value& value : results) {
    if (!value || !seen.insert(value.node.get()).second) continue;
    stack.emplace_back(value.node.get(), 0);
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      if (next == node->operands.size()) {
        order.push_back(node);
        stack.pop_back();
        continue;
      }
      const Node* operand = node->operands[next++].node.get();
      if (seen.insert(operand).second) stack.emplace_back(operand, 0);
    }
  }
  return order;
}

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
