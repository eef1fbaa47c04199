// The lazy graph: nodes, the values they compute, and the storage slots that hold values.
//
// A Node is one ATen call on immutable operands, and a Value is one of its results. A StorageSlot is the
// mutable place where a storage keeps its value. A node is *pending* until the engine has run it. Then each result that
// a slot held has a *leaf*: a node without a signature that owns device data.
//
// Threads: graph_lock() guards every change of a slot, a component or a node's `leaves`. A node's signature, operands
// and numbers never change while it is pending. The engine's lock guards `mark` and `local`.
#pragma once

#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "graph/scalar_value.h"
#include "graph/signature.h"

namespace tpjrt::graph {

class Node;
using NodePtr = c10::intrusive_ptr<Node>;

struct Value {
  NodePtr node;
  uint32_t index = 0;

  explicit operator bool() const { return static_cast<bool>(node); }
  bool operator==(const Value& other) const { return node == other.node && index == other.index; }
  TypePtr type() const;
  bool is_leaf() const;
};

// Device data of a leaf; the engine derives from it.
struct Data {
  virtual ~Data() = default;
};

// The storage slots of one component, as a ring. `next == this`: not listed.
struct Link {
  Link* previous = this;
  Link* next = this;
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  bool listed() const { return next != this; }
  void unlink() {
    previous->next = next;
    next->previous = previous;
    previous = next = this;
  }
  void insert_before(Link& where) {
    previous = where.previous;
    next = &where;
    previous->next = this;
    where.previous = this;
  }
};

// Note [Components]: pending nodes that share an ancestor or a descendant form a component (union-find). Each component
// lists the storage slots that hold one of its values. A sync runs whole components, so no value has to be computed
// twice, and nothing outside of them is touched.
class Component final : public c10::intrusive_ptr_target {
 public:
  Link slots;                            // sentinel of the ring; used by the root only
  uint32_t nodes = 0;                    // number recorded so far
  uint64_t oldest = 0;                   // the least id of its nodes
  bool traced = false;                   // depends on a placeholder: it can't run
  c10::intrusive_ptr<Component> parent;  // null: root

  static Component* root(Component* component);
  // Joins two roots and returns the surviving one.
  static Component* join(Component* a, Component* b);
  // Returns a value of each component with kLarge nodes or more that can run; the last that grew so large comes first.
  // Call it under graph_lock().
  static std::vector<Value> large();
  static constexpr uint32_t kLarge = 100;
  ~Component() override;

 private:
  friend NodePtr make_node(SignaturePtr, c10::SmallVectorImpl<Value>&, c10::SmallVectorImpl<ScalarValue>&);
  static std::vector<c10::intrusive_ptr<Component>>& listed();
  bool listed_as_large_ = false;
};
using ComponentPtr = c10::intrusive_ptr<Component>;

class Node final : public c10::intrusive_ptr_target {
 public:
  Node(SignaturePtr signature, uint64_t id) : signature(signature), id(id) {}
  // Constructs a leaf.
  Node(TypePtr type, std::shared_ptr<Data> data) : leaf_type(type), data(std::move(data)) {}
  ~Node() override;

  bool is_leaf() const { return signature == nullptr; }

  SignaturePtr signature = nullptr;
  uint64_t id = 0;  // recording order: operands have smaller ids
  c10::SmallVector<Value, 3> operands;
  c10::SmallVector<ScalarValue, 2> scalars;
  ComponentPtr component;               // of a pending node
  c10::SmallVector<NodePtr, 1> leaves;  // once executed: one for each result, null if nobody held it

  TypePtr leaf_type = nullptr;
  std::shared_ptr<Data> data;  // of a leaf; null for a placeholder (see engine/lower/call_lowering.h)

  uint64_t mark = 0;   // the last walk that visited this node
  uint32_t local = 0;  // its index in that walk
  uint32_t uses = 0;   // of a leaf: number of operands in that walk
};

// A storage slot: holds a storage's value. Not movable, because a slot with a pending value is a member of two rings:
// its component's and that of all pending slots.
class StorageSlot : public Link {
 public:
  StorageSlot() = default;
  ~StorageSlot();
  // Call these under graph_lock().
  const Value& value() const { return value_; }
  void bind(Value value);
  // The leaf in this slot before its pending value, which an in-place update may overwrite. Compared, never
  // dereferenced.
  const Node* previous_leaf() const { return previous_leaf_; }
  // Calls f with each pending value until it returns false. Call it under graph_lock(). See pending().
  template <class F>
  static void for_each_pending(F&& f) {
    for (const Link* link = all().next; link != &all(); link = link->next) {
      if (!f(static_cast<const Everywhere*>(link)->slot->value())) return;
    }
  }

 private:
  struct Everywhere : Link {
    explicit Everywhere(StorageSlot* slot) : slot(slot) {}
    StorageSlot* slot;
  };
  static Everywhere& all();
  void unlist();

  Everywhere everywhere_{this};
  Value value_;
  const Node* previous_leaf_ = nullptr;
};

// The only lock of the graph. Held briefly, never across a dispatch, Meta, the engine or the GIL.
std::mutex& graph_lock();

// Records a node; operands are moved in. Call it under graph_lock().
NodePtr make_node(SignaturePtr signature, c10::SmallVectorImpl<Value>& operands,
                  c10::SmallVectorImpl<ScalarValue>& scalars);
// Returns the id of the last node. Call it under graph_lock().
uint64_t newest_id();
NodePtr make_leaf(TypePtr type, std::shared_ptr<Data> data);

// Returns the value's leaf if it was executed meanwhile, otherwise the value itself. Call it under graph_lock().
const Value& settle(Value& value);

inline TypePtr Value::type() const { return node->is_leaf() ? node->leaf_type : node->signature->results[index]; }
inline bool Value::is_leaf() const { return node && node->is_leaf(); }

// Returns the nodes that `results` depend on, leaves included, operands first. For the cold path: the engine's walk
// does this and more in one pass.
std::vector<const Node*> topological_order(const std::vector<Value>& results);

// Recorded work that should start although nobody reads it.

// The least amount of work that is worth a program of its own.
struct Least {
  size_t nodes = 0;
  size_t nbytes = SIZE_MAX;     // read from leaves by new nodes; enough without the nodes
  uint64_t begun = UINT64_MAX;  // required in any case: the component's oldest node isn't newer
};
inline constexpr Least kLarge{.nodes = Component::kLarge};
inline constexpr uint64_t kEver = 0;  // `since`: before all nodes

// Returns a value of each component that can run and should be started. Call it under graph_lock(). With `since` =
// kEver: of each with enough nodes. With a node's id: of each whose tensors got pending values after it. Nothing if
// that work is too little: no tensor needs enough such nodes, and together they read too few bytes.
std::vector<Value> pending(uint64_t since, const Least& least);
bool any_pending();

}  // namespace tpjrt::graph
