// Records and emits loops and branches.
#include "engine/lower/control_flow.h"

#include <algorithm>

#include "device/services/python_hooks.h"
#include "device/tensor/access.h"
#include "device/tensor/storage.h"
#include "engine/lower/emit_call.h"
#include "engine/lower/group.h"
#include "graph/node.h"

namespace tpjrt::engine {
namespace {

using graph::NodePtr;
using graph::Signature;
using hlo::ElementType;
using hlo::Type;
using hlo::Values;
using ops::Assertion;
using ops::Emit;

graph::TypePtr contiguous_type(const at::Tensor& tensor) {
  return graph::intern_contiguous(tensor.scalar_type(), tensor.sizes());
}

// Makes a node with regions. Its operands are the placeholders', then the regions' captured tensors (constants, for
// example).
class Recorder {
 public:
  Recorder(const char* name, CallLowering::Control control) : lowering_(std::make_shared<CallLowering>()) {
    signature_.name = name;
    lowering_->control = control;
  }

  void operand(const char* name, const at::Tensor& tensor) { operand(name, contiguous_value(tensor)); }

  void region(const Region& region) {
    Subgraph graph = region.graph();
    for (const graph::Node* node : graph::topological_order(graph.results)) {
      const auto is_node = [node](const NodePtr& other) { return other.get() == node; };
      if (!node->is_leaf() || std::any_of(graph.placeholders.begin(), graph.placeholders.end(), is_node)) continue;
      own_.push_back(NodePtr::reclaim_copy(const_cast<graph::Node*>(node)));
    }
    lowering_->regions.push_back(std::move(graph));
  }

  std::vector<at::Tensor> record(std::vector<graph::TypePtr> results, c10::DeviceIndex device) {
    for (const NodePtr& leaf : own_) {
      for (Subgraph& graph : lowering_->regions) graph.placeholders.push_back(leaf);
      operand("constant", graph::Value{leaf, 0});
    }
    signature_.results = std::move(results);
    signature_.device = device;
    const device::Location where = device::user_location();
    signature_.file = where.file;
    signature_.line = where.line;
    signature_.lowering = lowering_;
    // The signature is not interned, because no two traces of a loop are compared. A program may outlive everything
    // else that refers to the node.
    const Signature* signature = new Signature(std::move(signature_));
    c10::SmallVector<graph::ScalarValue, 1> scalars;
    std::lock_guard lock(graph::graph_lock());
    return device::make_node_tensors(signature, operands_, scalars);
  }

 private:
  void operand(const char* name, graph::Value value) {
    signature_.add_operand(name, value.type());
    operands_.push_back(std::move(value));
  }

  Signature signature_;
  std::shared_ptr<CallLowering> lowering_;
  c10::SmallVector<graph::Value, 8> operands_;
  std::vector<NodePtr> own_;
};

std::vector<graph::TypePtr> types_of(const Subgraph& graph) {
  std::vector<graph::TypePtr> types;
  for (const graph::Value& value : graph.results) types.push_back(value.type());
  return types;
}

Values emit_region(Emit& e, const Subgraph& graph, const Values& operands) {
  return emit_subgraph(e, graph, operands, /*key=*/{});
}

// Runtime assertions are checked outside of a region, where its values are out of scope. The region returns them after
// its results.
Values with_assertions(Values results, const std::vector<Assertion>& required) {
  for (const Assertion& assertion : required) {
    results.push_back(assertion.least);
    results.push_back(assertion.greatest);
  }
  return results;
}

// Scalars that satisfy the assertions, for a region that does not run.
Values passing_values(Emit& e, const std::vector<Assertion>& required) {
  Values values;
  for (const Assertion& assertion : required) {
    values.push_back(e.constant(assertion.low, Type{ElementType::kS64, {}}));
    values.push_back(e.constant(assertion.high - 1, Type{ElementType::kS64, {}}));
  }
  return values;
}

// Registers the assertions outside of the region. Takes their values from the end of `results`.
void require_outside(Emit& e, std::vector<Assertion> required, Values& results) {
  const size_t first = results.size() - 2 * required.size();
  for (size_t i = 0; i < required.size(); ++i) {
    required[i].least = results[first + 2 * i];
    required[i].greatest = results[first + 2 * i + 1];
    e.require(std::move(required[i]));
  }
  results.resize(first);
}

// Returns the assertions of a region. Their values are not used.
std::vector<Assertion> assertions_of(const Emit& e, const Subgraph& graph, const Values& operands) {
  Emit scratch("region", e.target());
  if (!e.has_assertions()) return {};
  Values parameters;
  for (const hlo::Value& operand : operands) parameters.push_back(scratch.parameter(operand.type));
  (void)emit_region(scratch, graph, parameters);
  return scratch.assertions();
}

Values emit_while(Emit& e, const CallLowering& lowering, const Values& operands) {
  const Subgraph &condition = lowering.regions[0], &body = lowering.regions[1];
  const auto carried = static_cast<int64_t>(body.results.size());
  if (!assertions_of(e, condition, operands).empty()) {
    throw ops::Unsupported("the condition of the loop reads elements whose index is data");
  }
  const std::vector<Assertion> required = assertions_of(e, body, operands);
  Values initial(operands.begin(), operands.begin() + carried);
  const Values none = passing_values(e, required);
  initial.insert(initial.end(), none.begin(), none.end());
  const auto all = [&](const Values& state) {
    Values values(state.begin(), state.begin() + carried);
    values.insert(values.end(), operands.begin() + carried, operands.end());
    return values;
  };
  Values results = e.while_loop(
      initial, [&](const Values& state) -> Values { return {e.reshape(emit_region(e, condition, all(state))[0], {})}; },
      [&](const Values& state) {
        Values next;
        const std::vector<Assertion> iteration = e.requiring([&] { next = emit_region(e, body, all(state)); });
        next = with_assertions(std::move(next), iteration);
        for (size_t i = static_cast<size_t>(carried); i < next.size(); i += 2) {
          next[i] = e.minimum(next[i], state[i]);
          next[i + 1] = e.maximum(next[i + 1], state[i + 1]);
        }
        return next;
      });
  require_outside(e, required, results);
  return results;
}

Values emit_if(Emit& e, const CallLowering& lowering, const Values& operands) {
  const Values inputs(operands.begin() + 1, operands.end());
  std::vector<Assertion> required[2];
  for (size_t i = 0; i < 2; ++i) required[i] = assertions_of(e, lowering.regions[i], inputs);
  const auto branch = [&](size_t taken) {
    return [&, taken](const Values&) {
      Values results;
      const std::vector<Assertion> own =
          e.requiring([&] { results = emit_region(e, lowering.regions[taken], inputs); });
      for (size_t i = 0; i < 2; ++i) {
        if (i == taken) {
          results = with_assertions(std::move(results), own);
        } else {
          const Values values = passing_values(e, required[i]);
          results.insert(results.end(), values.begin(), values.end());
        }
      }
      return results;
    };
  };
  Values results = e.if_else(e.reshape(operands[0], {}), branch(0), branch(1));
  required[0].insert(required[0].end(), required[1].begin(), required[1].end());
  require_outside(e, required[0], results);
  return results;
}

}  // namespace

graph::Value contiguous_value(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  std::lock_guard lock(graph::graph_lock());
  const graph::Value value = device::read(dense);
  const graph::TypePtr type = contiguous_type(tensor);
  return value.type() == type ? value : device::convert(value, type, dense.device().index());
}

Region::Region(const std::vector<at::Tensor>& operands) {
  for (const at::Tensor& operand : operands) {
    tensors_.push_back(graph_.add_placeholder(contiguous_type(operand), operand.device().index()));
  }
}

void Region::finish(const std::vector<at::Tensor>& results) {
  for (const at::Tensor& result : results) graph_.results.push_back(contiguous_value(result));
  {
    std::lock_guard lock(graph::graph_lock());
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (device::storage_of(tensors_[i])->slot.value().node != graph_.placeholders[i]) {
        throw ops::Unsupported("a loop or branch that writes to what it is given");
      }
    }
  }
  for (const graph::Node* node : graph::topological_order(graph_.results)) {
    if (!node->is_leaf() && node->signature->random) {
      throw ops::Unsupported("a loop or branch that draws random numbers");
    }
    if (!node->is_leaf() &&
        crosses_ranks(*node->signature)) {  // if some ranks skip the collective, the others wait forever
      throw ops::Unsupported("a loop or branch with collectives, or values of single ranks");
    }
  }
  tensors_.clear();
}

std::vector<at::Tensor> while_loop(const std::vector<at::Tensor>& operands, size_t carried, const Region& condition,
                                   const Region& body) {
  Recorder recorder("pjrt::while", CallLowering::Control::kWhile);
  for (size_t i = 0; i < operands.size(); ++i) recorder.operand(i < carried ? "carried" : "input", operands[i]);
  const std::vector<graph::TypePtr> decides = types_of(condition.graph()), types = types_of(body.graph());
  if (decides.size() != 1 || decides[0]->dtype != c10::kBool || decides[0]->numel() != 1) {
    throw ops::Unsupported("a loop whose condition is not one boolean");
  }
  for (size_t i = 0; i < carried; ++i) {
    if (types.size() != carried || types[i] != contiguous_type(operands[i])) {
      throw ops::Unsupported("a loop that changes the sizes or the dtype of what it carries");
    }
  }
  recorder.region(condition);
  recorder.region(body);
  return recorder.record(types, operands.at(0).device().index());
}

std::vector<at::Tensor> if_else(const at::Tensor& predicate, const std::vector<at::Tensor>& operands,
                                const Region& on_true, const Region& on_false) {
  Recorder recorder("pjrt::if", CallLowering::Control::kIf);
  recorder.operand("predicate", predicate);
  for (const at::Tensor& operand : operands) recorder.operand("input", operand);
  const std::vector<graph::TypePtr> types = types_of(on_true.graph());
  if (types != types_of(on_false.graph())) throw ops::Unsupported("branches that give results of different types");
  if (predicate.scalar_type() != c10::kBool || predicate.numel() != 1) {
    throw ops::Unsupported("a branch whose predicate is not one boolean");
  }
  recorder.region(on_true);
  recorder.region(on_false);
  return recorder.record(types, predicate.device().index());
}

hlo::Values emit_control(Emit& e, const CallLowering& lowering, const Values& operands) {
  return lowering.control == CallLowering::Control::kWhile ? emit_while(e, lowering, operands)
                                                           : emit_if(e, lowering, operands);
}

}  // namespace tpjrt::engine
