// Running nodes by dispatching their calls on CPU tensors.
#include "engine/run/interpret.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "device/call/meta.h"
#include "device/services/interrupt.h"
#include "engine/lower/call_lowering.h"
#include "engine/run/host_kernels.h"
#include "engine/tier/cost.h"
#include "graph/errors.h"
#include "graph/order.h"
#include "pjrt/api/event.h"

namespace tpjrt::engine {
namespace {

using graph::Node;
using graph::Parameter;
using graph::Signature;
using graph::Value;
using Tensors = std::vector<at::Tensor>;

at::Tensor make(const graph::TensorType& type) {
  return at::empty_strided(type.sizes, type.strides, at::TensorOptions(c10::kCPU).dtype(type.dtype));
}

// At the start of its storage, too, so that a view of it can be told by its storage (`over`).
at::Tensor laid_out(const at::Tensor& tensor, const graph::TensorType& type) {
  if (tensor.sizes() != c10::IntArrayRef(type.sizes)) {
    throw graph::InternalError("a result of other sizes on the CPU: " + graph::to_string(type));
  }
  const auto lies_as = [&](const graph::TensorType& form) {
    return tensor.scalar_type() == form.dtype && tensor.strides() == c10::IntArrayRef(form.strides) &&
           tensor.storage_offset() == 0;
  };
  if (lies_as(type)) return tensor;
  const graph::TensorType& form = *graph::dense(&type);  // of what was expanded, each element by itself
  return lies_as(form) ? tensor : make(form).copy_(tensor);
}

Tensors laid_out(const Signature& s, Tensors results) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (s.results[i]) results[i] = laid_out(results[i], *s.results[i]);
  }
  return results;
}

// Nobody else reads this memory.
bool is_alone(const at::Tensor& tensor) { return tensor.use_count() == 1 && tensor.storage().use_count() == 1; }

// A tensor of another type over the memory of a dense one.
at::Tensor over(const at::Tensor& base, const Signature& view, c10::ScalarType dtype, int64_t offset) {
  std::vector<int64_t> sizes, strides;
  for (const Parameter& parameter : view.parameters) {
    if (parameter.name == "sizes") sizes = parameter.constant.toIntVector();
    if (parameter.name == "strides") strides = parameter.constant.toIntVector();
  }
  return at::empty({0}, at::TensorOptions(c10::kCPU).dtype(dtype)).set_(base.storage(), offset, sizes, strides);
}

// The nodes of this project itself (device/tensor/access.cpp).
at::Tensor run_own(const Node& node, Tensors operands) {
  const Signature& s = *node.signature;
  if (s.name == "pjrt::empty") return make(*s.results[0]).zero_();
  if (s.name == "pjrt::convert") return laid_out(operands[0], *s.results[0]);
  const int64_t offset = node.numbers.at(0).as_int();
  if (s.name == "pjrt::view") return laid_out(over(operands[0], s, s.results[0]->dtype, offset), *s.results[0]);
  at::Tensor base = is_alone(operands[0]) ? std::move(operands[0]) : make(*s.results[0]).copy_(operands[0]);
  at::Tensor place = over(base, s, operands[1].scalar_type(), offset), update = operands[1];
  for (int64_t dim = 0; dim < place.dim(); ++dim) {  // elements that share memory are written the same value
    if (place.stride(dim) != 0 || place.size(dim) < 2) continue;
    place = place.narrow(dim, 0, 1);
    update = update.narrow(dim, 0, 1);
  }
  place.copy_(update);
  return base;
}

// Can its kernel fail for what its operands hold, when it has written some of the result already? Indices do that.
bool may_fail_halfway(const Signature& s) {
  return std::any_of(s.operands.begin(), s.operands.end(),
                     [](graph::TypePtr type) { return c10::isIntegralType(type->dtype, /*includeBool=*/false); });
}

// Where it throws, operands are as they were.
Tensors run_call(const Node& node, const Tensors& operands) {
  const Signature& s = *node.signature;
  const bool copies = may_fail_halfway(s);
  std::vector<char> is_copied(operands.size());
  for (const uint32_t written : s.mutated) is_copied[written] = copies || !is_alone(operands[written]);
  Tensors given = operands;
  for (const uint32_t written : s.mutated) {
    if (is_copied[written]) given[written] = make(*graph::dense(s.operands[written])).copy_(operands[written]);
  }
  torch::jit::Stack stack = device::make_stack(s, node.numbers, [&](uint32_t operand) { return given[operand]; });
  for (c10::IValue& value : stack) {
    if (value.isDevice()) value = c10::Device(c10::kCPU);
  }
  s.op->callBoxed(stack);
  Tensors results = device::tensors_of(stack);
  results.resize(
      std::min(results.size(), s.results.size() - s.mutated.size()));  // without what is returned and written
  for (const uint32_t written : s.mutated) results.push_back(given[written]);
  if (results.size() != s.results.size())
    throw graph::InternalError(s.name + " gave another number of results on the CPU");
  return laid_out(s, std::move(results));
}

// Calls that a kernel refused: they are not tried again.
class Refused {
 public:
  bool has(graph::SignaturePtr signature) {
    const std::lock_guard guard(lock_);
    return signatures_.contains(signature);
  }
  void add(graph::SignaturePtr signature) {
    const std::lock_guard guard(lock_);
    signatures_.insert(signature);
  }

 private:
  std::mutex lock_;
  std::unordered_set<graph::SignaturePtr> signatures_;
};
Refused& refused() {
  static auto* set = new Refused;
  return *set;
}

// Does PyTorch's kernel compute something else than it means? The program doesn't.
bool is_wrong_on_the_cpu(const Signature& s) {
  const auto is = [&](std::string_view name) { return s.name == name; };
  // A remainder is NaN where the quotient is beyond the dtype, and its gradient counts no repeated index.
  if (is("aten::fmod.Tensor") || is("aten::fmod.Scalar") || is("aten::_embedding_bag_dense_backward")) return true;
  // Sums of 16 bits, and a bias that is added after they are rounded.
  return s.name.find("convolution") != std::string::npos && !s.operands.empty() &&
         c10::isReducedFloatingType(s.operands[0]->dtype);
}

bool has_kernel(const Signature& s) {
  // jax_call is given to the engine again, which must not be asked while it runs this.
  return s.op && !s.random && s.name != "torch_pjrt::jax_call" && !is_wrong_on_the_cpu(s) &&
         s.op->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
}

// For what its operands hold, or because PyTorch has no kernel for it.
bool may_fail(const Node& node) {
  const Signature& s = *node.signature;
  return !is_of_memory(s) && (!has_kernel(s) || refused().has(&s) || may_fail_halfway(s));
}

bool writes(const Node& node, size_t operand) {
  const Signature& s = *node.signature;
  return s.name == "pjrt::write" ? operand == 0 : std::ranges::find(s.mutated, operand) != s.mutated.end();
}

class Interpreter {
 public:
  Interpreter(const graph::Walk& walk, const Interpreting& with) : walk_(walk), with_(with) {
    for (const graph::NodePtr& leaf : walk.leaves) leaves_.push_back(with.leaf(leaf));
    leaf_uses_.resize(leaves_.size());
    for (const Node* node : walk.nodes) uses_.emplace_back(node->signature->results.size(), 0);
    const auto count = [&](const Value& value) {
      ++(value.is_leaf() ? leaf_uses_[value.node->local] : uses_[value.node->local][value.index]);
    };
    for (const Node* node : walk.nodes) {
      for (const Value& operand : node->operands) count(operand);
    }
    for (const Value& result : walk.results) count(result);
    for (size_t i = walk.nodes.size(); i > 0 && !may_fail(*walk.nodes[i - 1]); --i) safe_ = i - 1;
  }

  Tensors run() {
    for (const Node* node : walk_.nodes) {
      if (!wrote_) let_interrupt();
      Tensors operands;
      for (size_t i = 0; i < node->operands.size(); ++i) operands.push_back(take(node->operands[i], writes(*node, i)));
      values_.push_back(run(*node, operands));
      for (size_t i = 0; i < values_.back().size(); ++i) {
        if (uses_[node->local][i] == 0) values_.back()[i].reset();
      }
    }
    Tensors results;
    for (const Value& result : walk_.results) results.push_back(take(result, /*written=*/false));
    for (size_t i = 0; i < results.size(); ++i) {
      const graph::TensorType& type = *graph::dense(walk_.results[i].type());
      // Of its own: a view node may give its base, and a leaf's memory is the leaf's.
      const bool own =
          !walk_.results[i].is_leaf() && is_alone(results[i]) && results[i].storage().nbytes() == type.nbytes();
      if (!own) results[i] = make(type).copy_(results[i]);
    }
    return results;
  }

 private:
  // What nobody reads any more goes at once; of a leaf, if it is written.
  at::Tensor take(const Value& value, bool written) {
    if (value.is_leaf()) {
      const uint32_t leaf = value.node->local;
      const bool last = --leaf_uses_[leaf] == 0;
      if (!last || !written || values_.size() < safe_ || !with_.take(walk_.leaves[leaf])) return leaves_.at(leaf);
      wrote_ = true;
      return std::exchange(leaves_.at(leaf), {});
    }
    at::Tensor& held = values_.at(value.node->local).at(value.index);
    return --uses_[value.node->local][value.index] == 0 ? std::exchange(held, {}) : held;
  }

  void let_interrupt() {
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ < std::chrono::milliseconds(50)) return;
    looked_ = now;
    if (const pjrt::WaitHook hook = pjrt::wait_hook()) hook();
  }

  Tensors run(const Node& node, Tensors& operands) {
    const Signature& s = *node.signature;
    if (is_of_memory(s)) return {run_own(node, std::move(operands))};
    if (!refused().has(&s)) {
      try {
        if (auto results = run_on_host(node, operands)) return laid_out(s, std::move(*results));
        if (has_kernel(s)) return run_call(node, operands);
      } catch (const std::exception&) {
        device::let_interrupts_pass();
      }
      refused().add(&s);
    }
    if (s.op && !s.random) {
      const Subgraph& decomposition = lowering_of(s).decomposition;
      if (!decomposition.results.empty()) return laid_out(s, run(decomposition, operands));
    }
    return with_.alone(node, operands);
  }

  Tensors run(const Subgraph& graph, const Tensors& operands) {
    std::unordered_map<const Node*, Tensors> done;
    for (size_t i = 0; i < operands.size(); ++i) {  // views of them are taken as a placeholder lies
      done[graph.placeholders[i].get()] = {laid_out(operands[i], *graph.placeholders[i]->leaf_type)};
    }
    const auto value_of = [&](const Value& value) { return done.at(value.node.get())[value.index]; };
    for (const Node* node : graph::topological_order(graph.results)) {
      if (node->is_leaf()) continue;
      Tensors inputs;
      for (const Value& operand : node->operands) inputs.push_back(value_of(operand));
      done[node] = run(*node, inputs);
    }
    Tensors results;
    for (const Value& result : graph.results) results.push_back(result ? value_of(result) : at::Tensor());
    return results;
  }

  const graph::Walk& walk_;
  const Interpreting& with_;
  Tensors leaves_;
  std::vector<uint32_t> leaf_uses_;  // that are still to come
  size_t safe_ = SIZE_MAX;           // the node from which on nothing can fail
  bool wrote_ = false;               // to a leaf
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
  std::vector<Tensors> values_;              // by node
  std::vector<std::vector<uint32_t>> uses_;  // by node and result: that are still to come
};

}  // namespace

std::vector<at::Tensor> interpret(const graph::Walk& walk, const Interpreting& with) {
  return Interpreter(walk, with).run();
}

}  // namespace tpjrt::engine
