// Derives the classes of each node's results from those of its operands.
#include "engine/replication/replication.h"

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "engine/lower/group.h"
#include "engine/memory/device_data.h"
#include "graph/signature.h"
#include "graph/world.h"

namespace tpjrt::engine {

namespace {

using graph::constant;
using graph::Node;

// Returns the unique instance of these classes, which lives as long as the process. Instances are compared by pointer,
// and few exist.
Replication interned(Classes classes) {
  static std::mutex lock;
  static auto* known = new std::map<Classes, Replication>;
  const std::lock_guard guard(lock);
  Replication& found = (*known)[classes];
  if (!found) found = std::make_shared<const Classes>(std::move(classes));
  return found;
}

// Gives ranks with equal keys the same class. Returns null if all keys are equal.
template <class Key>
Replication numbered(const std::vector<Key>& by_rank) {
  std::map<Key, uint32_t> scalars;
  Classes classes;
  for (const Key& key : by_rank) {
    classes.push_back(scalars.emplace(key, static_cast<uint32_t>(scalars.size())).first->second);
  }
  return scalars.size() > 1 ? interned(std::move(classes)) : nullptr;
}

uint32_t class_of(const Replication& replication, size_t rank) { return replication ? (*replication)[rank] : 0; }

// Returns one class for each rank: nothing is known to be equal.
Replication each_its_own() {
  Classes classes(graph::world_size());
  std::iota(classes.begin(), classes.end(), 0);
  return interned(std::move(classes));
}

// Ranks agree on a result if they agree on all operands. A promise covers all ranks together, so it can't be combined
// with operands that divide them.
Replication common(const std::vector<Replication>& operands) {
  Replication one;
  for (const Replication& operand : operands) {
    if (!operand || operand == one) continue;
    if (!one) {
      one = operand;
      continue;
    }
    if (is_promised(one) || is_promised(operand)) return each_its_own();
    std::vector<std::pair<uint32_t, uint32_t>> keys;
    for (size_t rank = 0; rank < one->size(); ++rank) keys.emplace_back((*one)[rank], (*operand)[rank]);
    one = numbered(keys);
  }
  return one;
}

// A rank's result of a collective depends on the group's values in order and, if each rank gets its own part, on its
// position.
Replication after_collective(const graph::Signature& signature, std::string_view op, const Replication& input) {
  const std::vector<int64_t> groups = graph::ranks_of(signature);
  const auto size = static_cast<size_t>(constant(signature, "group_size").toInt());
  const bool parts = op == "reduce_scatter" || op == "all_to_all";
  std::vector<std::vector<uint32_t>> keys(graph::world_size());
  for (size_t first = 0; first < groups.size(); first += size) {
    std::vector<uint32_t> classes;
    for (size_t i = 0; i < size; ++i) classes.push_back(class_of(input, static_cast<size_t>(groups[first + i])));
    if (op == "broadcast") classes = {classes[static_cast<size_t>(constant(signature, "source").toInt())]};
    for (size_t i = 0; i < size; ++i) {
      std::vector<uint32_t>& key = keys[static_cast<size_t>(groups[first + i])];
      key = classes;
      if (parts) key.push_back(static_cast<uint32_t>(i));
    }
  }
  Replication found = numbered(keys);
  // Groups that agree only by a promise may have different values.
  if (!is_promised(input) || size == keys.size()) return found;
  return found ? each_its_own() : promised();
}

Replication after(const graph::Signature& signature, const std::vector<Replication>& operands) {
  const std::optional<std::string_view> op = graph::world_op(signature);
  if (!op) return crosses_ranks(signature) ? each_its_own() : common(operands);
  if (*op == "promised_equal") return operands[0] ? promised() : nullptr;
  if (*op == "per_rank") return numbered(constant(signature, "values").toIntVector());
  return after_collective(signature, *op, common(operands));
}

}  // namespace

const Replication& promised() {
  static const Replication all = std::make_shared<const Classes>(graph::world_size(), 0);
  return all;
}

ReplicationAnalysis::Place ReplicationAnalysis::place_of(const graph::Value& value) {
  return {value.node->is_leaf(), static_cast<uint32_t>(value.node->local)};
}

ReplicationAnalysis::ReplicationAnalysis(const graph::Walk& walk) {
  for (const Node* node : walk.nodes) {
    const auto first = static_cast<uint32_t>(operands_.size());
    for (const graph::Value& operand : node->operands) operands_.push_back(place_of(operand));
    steps_.push_back({node->signature, first, static_cast<uint32_t>(operands_.size())});
  }
  for (const graph::Value& value : walk.results) results_.push_back(place_of(value));
}

std::vector<Replication> ReplicationAnalysis::results(const std::vector<Replication>& leaves) const {
  std::vector<Replication> nodes, operands, results;
  const auto of = [&](const Place& place) { return place.is_leaf ? leaves.at(place.index) : nodes.at(place.index); };
  for (const Step& step : steps_) {
    operands.clear();
    for (uint32_t i = step.first_operand; i < step.end_operand; ++i) operands.push_back(of(operands_[i]));
    nodes.push_back(after(*step.signature, operands));
  }
  for (const Place& place : results_) results.push_back(of(place));
  return results;
}

std::vector<Replication> replications(const graph::Walk& walk) {
  std::vector<Replication> leaves;
  for (const graph::NodePtr& leaf : walk.leaves) leaves.push_back(data_of(*leaf).replication);
  return ReplicationAnalysis(walk).results(leaves);
}

}  // namespace tpjrt::engine
