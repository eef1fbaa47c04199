// The lazy graph: nodes, the values they give, and the cells that hold values.
//
// A Node is one ATen call on immutable operands; a Value is one of its results. A Cell is the mutable place a storage
// keeps its value in. A node is *pending* until the engine ran it, then each result that a cell held has a *leaf*: a node
// without a signature that owns device data.
//
// Note [Components]: pending nodes that share an ancestor or a descendant form a component (union-find); each
// component lists the cells that hold one of its values. A sync runs whole components: no value in it has to be computed
// twice, and nothing outside of it is touched.
//
// Threads: everything that changes a cell, a component or a node's `leaf` happens under graph_lock(). Signature, operands
// and numbers of a node never change while it is pending. `mark` and `local` belong to whoever holds the engine's lock.
#pragma once

#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "graph/number.h"
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

// The cells of one component, as a ring. `next == this`: not listed.
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

class Component final : public c10::intrusive_ptr_target {
 public:
  Link cells;                            // sentinel of the ring; used by the root only
  uint32_t nodes = 0;                    // recorded so far
  uint64_t oldest = 0;                   // the least id of its nodes
  bool traced = false;                   // rests on a placeholder: it can't be run
  c10::intrusive_ptr<Component> parent;  // null: root

  static Component* root(Component* component);
  // Joins two roots and gives the surviving one.
  static Component* join(Component* a, Component* b);
  // A value of each component of kLarge nodes or more that can be run, the last that grew so large first. Under graph_lock().
  static std::vector<Value> large();
  static constexpr uint32_t kLarge = 100;
  ~Component() override;

 private:
  friend NodePtr make_node(SignaturePtr, c10::SmallVectorImpl<Value>&, c10::SmallVectorImpl<Number>&);
  static std::vector<c10::intrusive_ptr<Component>>& listed();
  bool listed_as_large_ = false;
};
using ComponentPtr = c10::intrusive_ptr<Component>;

class Node final : public c10::intrusive_ptr_target {
 public:
  Node(SignaturePtr signature, uint64_t id) : signature(signature), id(id) {}
  // A leaf.
  Node(TypePtr type, std::shared_ptr<Data> data) : leaf_type(type), data(std::move(data)) {}
  ~Node() override;

  bool is_leaf() const { return signature == nullptr; }

  SignaturePtr signature = nullptr;
  uint64_t id = 0;  // recording order: operands have smaller ids
  c10::SmallVector<Value, 3> operands;
  c10::SmallVector<Number, 2> numbers;
  ComponentPtr component;               // of a pending node
  c10::SmallVector<NodePtr, 1> leaves;  // once executed: one entry a result, null where nobody held it

  TypePtr leaf_type = nullptr;
  std::shared_ptr<Data> data;  // a leaf's; null for a placeholder (see engine/lower/call_lowering.h)

  uint64_t mark = 0;   // the walk that last saw this node
  uint32_t local = 0;  // its index in that walk
  uint32_t uses = 0;   // of a leaf: operands seen in that walk
};

// Holds a storage's value. Not movable: while the value is pending it is a member of two rings, its component's and
// that of all pending cells.
class Cell : public Link {
 public:
  Cell() = default;
  ~Cell();
  // Under graph_lock().
  const Value& value() const { return value_; }
  void bind(Value value);
  // The leaf this cell held before its pending value: what an in-place update may overwrite. Compared, never followed.
  const Node* previous_leaf() const { return previous_leaf_; }
  // Calls f with each pending value, until it gives false. Under graph_lock(). See graph/pending.h.
  template <class F>
  static void for_each_pending(F&& f) {
    for (const Link* link = all().next; link != &all(); link = link->next) {
      if (!f(static_cast<const Everywhere*>(link)->cell->value())) return;
    }
  }

 private:
  struct Everywhere : Link {
    explicit Everywhere(Cell* cell) : cell(cell) {}
    Cell* cell;
  };
  static Everywhere& all();
  void unlist();

  Everywhere everywhere_{this};
  Value value_;
  const Node* previous_leaf_ = nullptr;
};

// The one lock of the graph. Held for moments only: never across a dispatch, Meta, the engine or the GIL.
std::mutex& graph_lock();

// Records a node; the operands are moved in. Under graph_lock().
NodePtr make_node(SignaturePtr signature, c10::SmallVectorImpl<Value>& operands, c10::SmallVectorImpl<Number>& numbers);
// The id of the last one. Under graph_lock().
uint64_t newest_id();
NodePtr make_leaf(TypePtr type, std::shared_ptr<Data> data);

// If the value was executed meanwhile, its leaf; else itself. Under graph_lock().
const Value& settle(Value& value);

inline TypePtr Value::type() const { return node->is_leaf() ? node->leaf_type : node->signature->results[index]; }
inline bool Value::is_leaf() const { return node && node->is_leaf(); }

}  // namespace tpjrt::graph
