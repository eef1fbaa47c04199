// Traces, records and emits groups.
#include "engine/lower/group.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "device/services/python_hooks.h"
#include "device/tensor/access.h"
#include "device/tensor/storage.h"
#include "engine/lower/emit_composite.h"
#include "graph/composites.h"
#include "graph/signature.h"
#include "hlo/type.h"

namespace tpjrt::engine {
namespace {

using graph::DecodedGraph;
using graph::NodePtr;
using graph::Parameter;
using graph::Signature;
using hlo::Values;

// Placeholders of a trace are dense, without lazy conjugation or negation.
at::Tensor dense(const at::Tensor& tensor) {
  const at::Tensor resolved = tensor.resolve_conj().resolve_neg();
  return resolved.is_non_overlapping_and_dense() ? resolved : resolved.contiguous();
}

struct Key {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::vector<uint64_t> words;
  auto operator<=>(const Key&) const = default;
};

// Returns the signature of this key, or a new one for the caller to fill in. Call it under graph_lock().
Signature* interned(const Key& key, bool& is_new) {
  static auto* signatures = new std::map<Key, std::unique_ptr<Signature>>;
  auto& slot = (*signatures)[key];
  is_new = !slot;
  if (!slot) slot = std::make_unique<Signature>();
  return slot.get();
}

}  // namespace

// Watches for writes to tensors that existed before the trace.
struct Group::Watch : device::WriteWatcher {
  Watch(const std::vector<at::Tensor>& placeholders, uint64_t since) : since(since) {
    for (const at::Tensor& tensor : placeholders) {
      device::LazyStorage* storage = device::storage_of(tensor);
      placeholder_of[storage->slot.value().node.get()] = storage;
    }
  }

  void before_write(device::LazyStorage* storage) override {
    const graph::Value& value = storage->slot.value();
    if (!value || (!value.is_leaf() && value.node->id > since)) return;  // made by the trace, or never written
    const auto placeholder = placeholder_of.find(value.node.get());
    if (placeholder != placeholder_of.end() && placeholder->second != storage) return;  // a copy, made by the trace
    if (std::any_of(written.begin(), written.end(), [&](const auto& one) { return one.first.get() == storage; }))
      return;
    written.emplace_back(c10::intrusive_ptr<device::LazyStorage>::reclaim_copy(storage), value);
  }

  void restore() {
    for (auto& [storage, value] : written) storage->slot.bind(value);
  }

  uint64_t since;
  std::map<const graph::Node*, device::LazyStorage*> placeholder_of;
  std::vector<std::pair<c10::intrusive_ptr<device::LazyStorage>, graph::Value>> written;
};

Group::Group(const std::vector<at::Tensor>& operands) {
  Subgraph graph;
  for (const at::Tensor& tensor : operands) {
    TORCH_CHECK(device::is_pjrt(tensor), "expected tensors on a pjrt device, got one on ", tensor.device());
    operands_.push_back(dense(tensor));
    placeholders_.push_back(graph.add_placeholder(device::type_of(operands_.back()), tensor.device().index()));
  }
  leaves_ = std::move(graph.placeholders);
  std::lock_guard lock(graph::graph_lock());
  watch_ = std::make_unique<Watch>(placeholders_, graph::newest_id());
}

Group::~Group() { end(); }

void Group::end() {
  if (!watch_) return;
  const std::unique_ptr<Watch> done = std::move(watch_);  // releases storages after the lock
  std::lock_guard lock(graph::graph_lock());
  done->restore();
}

bool crosses_ranks(const graph::Signature& signature) {
  if (graph::world_op(signature)) return true;
  return signature.name == "pjrt::composite" && lowering_of(signature).group->crosses_ranks;
}

std::vector<int64_t> Group::written() const {
  std::vector<int64_t> indices;
  if (!watch_) return indices;
  for (const auto& [storage, value] : watch_->written) {
    const auto at =
        std::find_if(leaves_.begin(), leaves_.end(), [&](const NodePtr& leaf) { return leaf == value.node; });
    indices.push_back(at == leaves_.end() ? -1 : at - leaves_.begin());
  }
  return indices;
}

std::vector<at::Tensor> Group::record(const std::string& name, const std::map<std::string, std::string>& attributes,
                                      const std::vector<at::Tensor>& results) {
  const graph::CompositesPtr asked = graph::asked_composites();
  TORCH_CHECK(asked, "composite '", name, "' is not asked for");
  const c10::DeviceIndex device = operands_.at(0).device().index();
  const device::Location where = device::user_location();
  graph::Walk walk;
  std::vector<at::Tensor> given;
  for (const at::Tensor& tensor : results) given.push_back(tensor.resolve_conj().resolve_neg());
  std::lock_guard lock(graph::graph_lock());
  std::vector<graph::Value> values;
  for (const at::Tensor& tensor : given) values.push_back(device::read(tensor));
  graph::walk_trace(values, {}, {}, walk);
  bool crosses = false;
  for (const graph::Node* node : walk.nodes) {
    crosses |= crosses_ranks(*node->signature);
    if (node->signature->random) {
      throw ops::Unsupported("composite '" + name + "' draws random numbers: draw them outside, and pass the tensor");
    }
  }
  c10::SmallVector<graph::Value, 8> operands;
  for (const at::Tensor& tensor : operands_) operands.push_back(device::read(tensor));
  std::vector<uint32_t> places;
  for (const NodePtr& leaf : walk.leaves) {
    const auto at = std::find(leaves_.begin(), leaves_.end(), leaf);
    places.push_back(static_cast<uint32_t>(at - leaves_.begin()));
    if (at != leaves_.end()) continue;
    places.back() = static_cast<uint32_t>(operands.size());
    operands.push_back({leaf, 0});
  }
  Key key{name, attributes, walk.fingerprint};
  key.words.insert(key.words.end(), places.begin(), places.end());
  key.words.push_back(static_cast<uint64_t>(device));
  key.words.push_back(reinterpret_cast<uint64_t>(asked));
  for (const graph::Value& value : operands) key.words.push_back(reinterpret_cast<uint64_t>(value.type()));
  bool is_new = false;
  Signature* signature = interned(key, is_new);
  if (is_new) {
    auto lowering = std::make_shared<CallLowering>();
    lowering->group = std::make_shared<GroupBody>(
        GroupBody{name, attributes, graph::decode_fingerprint(walk.fingerprint), places, operands_.size(), crosses});
    signature->name = "pjrt::composite";
    signature->lowering = std::move(lowering);
    signature->device = static_cast<int8_t>(device);
    signature->composites = asked;
    signature->file = where.file;
    signature->line = where.line;
    Parameter called;
    called.name = "name";
    called.constant = name;
    signature->parameters.push_back(std::move(called));
    for (const graph::Value& value : operands) signature->add_operand("operand", value.type());
    Parameter scalars;
    scalars.name = "numbers";
    scalars.kind = Parameter::Kind::kScalarList;
    scalars.count = signature->scalars = static_cast<uint32_t>(walk.scalars.size());
    if (scalars.count > 0) signature->parameters.push_back(std::move(scalars));
    for (const graph::Value& value : values) signature->results.push_back(graph::dense(value.type()));
  }
  c10::SmallVector<graph::ScalarValue, 4> scalars(walk.scalars.begin(), walk.scalars.end());
  return device::make_node_tensors(signature, operands, scalars);
}

Values emit_group(ops::Emit& e, const GroupBody& body, const Signature& signature, const Values& operands,
                  const std::vector<LoweredScalar>& scalars) {
  Operands inputs{operands, signature.operands};
  std::vector<int64_t> at(scalars.size(), -1);
  for (size_t i = 0; i < scalars.size(); ++i) {
    if (!scalars[i].varies) continue;
    at[i] = static_cast<int64_t>(inputs.values.size());
    inputs.push_back(scalars[i].value);
  }
  const auto results = [&](const Values& arguments) {
    std::vector<Values> done;
    const auto value = [&](const DecodedGraph::Source& source) {
      return source.leaf ? arguments[body.operands[source.number]] : done[source.number][source.index];
    };
    size_t next = 0;
    for (const DecodedGraph::Call& call : body.graph.calls) {
      Values given;
      for (const DecodedGraph::Source& source : call.operands) given.push_back(value(source));
      std::vector<LoweredScalar> own;
      for (uint32_t k = 0; k < call.signature->scalars; ++k, ++next) {
        own.push_back(scalars[next]);
        own.back().value =
            at[next] < 0 ? constant_of(e, scalars[next].number) : arguments[static_cast<size_t>(at[next])];
      }
      done.push_back(emit_call(e, *call.signature, given, own, {}));
    }
    Values last;
    for (const DecodedGraph::Source& source : body.graph.results) last.push_back(value(source));
    return last;
  };
  std::map<std::string, std::string> attributes = body.attributes;
  if (inputs.values.size() > body.tensors) {
    std::vector<std::string> besides(operands.size() - body.tensors, "captured");
    besides.resize(inputs.values.size() - body.tensors, "number");
    std::string& names = attributes["operands"];
    if (names.empty()) names = hlo::attribute(std::vector<std::string>(body.tensors, "argument"));
    names = hlo::longer(names, besides);
  }
  return composite(e, signature, body.name, attributes, inputs, results);
}

}  // namespace tpjrt::engine
