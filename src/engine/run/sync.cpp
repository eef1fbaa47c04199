// Runs pending work: walk, find or compile the program, bind, launch, settle.
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "device/services/foreign_trace.h"
#include "engine/lower/call_lowering.h"
#include "engine/memory/device_data.h"
#include "engine/replication/replication.h"
#include "engine/run/interpret.h"
#include "engine/run/lazy_engine.h"
#include "graph/errors.h"
#include "graph/fingerprint/parts.h"
#include "graph/signature.h"

namespace tpjrt::engine {
namespace {

using graph::Link;
using graph::Node;
using graph::StorageSlot;

bool any_pending(c10::ArrayRef<StorageSlot*> slots) {
  bool any = false;
  for (const StorageSlot* slot : slots) {
    const graph::Value& value = slot->value();
    if (!value) continue;
    any |= !value.is_leaf();
    if (value.is_leaf()) (void)data_of(*value.node);
  }
  return any;
}

// Groups pending storage slots by device, because a program runs on one. Empty if all are on one device.
std::map<int, std::vector<StorageSlot*>> by_device(c10::ArrayRef<StorageSlot*> slots) {
  std::map<int, std::vector<StorageSlot*>> found;
  const std::lock_guard graph_guard(graph::graph_lock());
  const auto device_of = [](const StorageSlot* slot) { return slot->value().node->signature->device; };
  const auto is_pending = [](const StorageSlot* slot) { return slot->value() && !slot->value().is_leaf(); };
  const StorageSlot* first = nullptr;
  bool are_of_one = true;
  for (const StorageSlot* slot : slots) {
    if (!is_pending(slot)) continue;
    if (!first) first = slot;
    are_of_one &= device_of(slot) == device_of(first);
  }
  if (are_of_one) return found;
  for (StorageSlot* slot : slots) {
    if (is_pending(slot)) found[device_of(slot)].push_back(slot);
  }
  return found;
}

// A storage slot that keeps a value alive during a sync: the tensor that owns it may be freed at any time.
class Held {
 public:
  explicit Held(graph::Value value) { slot_.bind(std::move(value)); }  // call under graph_lock()
  ~Held() {
    graph::Value released;  // freed after the lock is released
    std::lock_guard lock(graph::graph_lock());
    released = slot_.value();
    slot_.bind({});
  }
  StorageSlot* slot() { return &slot_; }

 private:
  StorageSlot slot_;
};

}  // namespace

void LazyEngine::sync(c10::ArrayRef<StorageSlot*> slots, const char* cause) try {
  {
    std::lock_guard graph_guard(graph::graph_lock());
    if (!any_pending(slots)) return;
  }
  const device::Location where = session_.logged_location();
  session_.exclusively([&] {
    run(cause, slots, where);
    // A loop that reads a value in each iteration, but not the value it computes, must not grow a graph of all
    // iterations.
    if (running_ == 0) start("a large graph beside what was read", graph::kEver, graph::kLarge, where);
  });
} catch (const graph::DependsOnData& error) {
  if (is_tracing_decomposition())
    throw graph::DependsOnData("a value is needed, which only a run has", error.placeholder);
  device::raise_value_needed(error, cause);
}

void LazyEngine::start(const char* cause, uint64_t since, const graph::Least& least, const device::Location& where) {
  std::deque<Held> held;
  std::vector<StorageSlot*> slots;
  const auto choose = [&] {
    slots.clear();
    held.clear();
    std::vector<graph::Value> chosen;  // freed after the lock is released
    std::lock_guard graph_guard(graph::graph_lock());
    chosen = graph::pending(since, least);
    for (const graph::Value& value : chosen) slots.push_back(held.emplace_back(value).slot());
    return !slots.empty();
  };
  if (!choose()) {
    if (since == graph::kEver) check_process();  // requested by the user
    return;
  }
  session_.exclusively([&] {
    if (since != graph::kEver) return run(cause, slots, where);
    do {  // a graph that is cut leaves a rest
      for (StorageSlot* slot : slots) run(cause, slot, where);
    } while (choose());
  });
}

void LazyEngine::run(const char* cause, c10::ArrayRef<StorageSlot*> slots, const device::Location& where) {
  if (slots.size() > 1) {
    const std::map<int, std::vector<StorageSlot*>> of_devices = by_device(slots);
    for (const auto& [device, own] : of_devices) run(cause, own, where);
    if (!of_devices.empty()) return;
  }
  ++running_;
  const auto ran = c10::make_scope_exit([this] { --running_; });
  Sync sync;
  std::swap(sync, sync_);
  graph::Walk& walk = sync.walk;
  const auto find = [&] {
    const int64_t start = now_ns();
    {
      std::lock_guard graph_guard(graph::graph_lock());
      graph::walk(slots, walk);
    }
    std::shared_ptr<Program> program = walk.empty() ? nullptr : session_.programs.find(walk);
    session_.metrics.prepare_ns += now_ns() - start;
    return program;
  };
  std::shared_ptr<Program> program = find();
  const bool is_part = !program && !walk.empty() && run_parts(where, sync);
  if (is_part) program = find();
  if (!walk.empty()) run(walk, program, is_part, cause, where, sync);
  walk.clear();
  std::swap(sync, sync_);
}

void LazyEngine::run(const graph::Walk& walk, std::shared_ptr<Program> program, bool is_part, const char* cause,
                     const device::Location& where, Sync& sync) {
  session_.metrics.count_sync(cause);
  session_.programs.report_program(walk);
  Chosen chosen;
  if (!program) {
    if (may_interpret(walk, is_part)) chosen = interpreted_or_compiled(walk);
    program = chosen.program;
  }
  if (!program) program = session_.programs.compile(walk);
  const int64_t before = session_.metrics.execute_ns;
  const bool logs = session_.run_log.is_on();
  const int64_t cpu = logs ? process_cpu_ns() : 0;
  const std::optional<Work> work = logs ? std::optional(work_of(walk, interpret_by())) : std::nullopt;
  uint64_t copied = 0;
  const std::optional<uint64_t> interpreted = chosen.calls ? run_calls(walk, *chosen.calls) : std::nullopt;
  if (interpreted) {
    copied = *interpreted;
  } else {
    if (chosen.calls) program = session_.programs.compile(walk);  // the plugin may have memory that PyTorch lacks
    launch_bound(walk, *program, sync);
    settle(walk, *program, sync.launch);
  }
  if (logs) {
    session_.run_log.ran(*program, cause, where, session_.metrics.execute_ns - before, copied, work,
                         process_cpu_ns() - cpu);
  }
}

bool LazyEngine::run_parts(const device::Location& where, Sync& sync) {
  // Each process would cut by its own caches, and their programs would differ.
  if (runs_on_all_ranks(sync.walk)) return false;
  const Cut cut = profiles_.cut(sync.walk, interpret_by());
  if (cut.part.empty()) return false;
  graph::Parts parts(sync.walk, cut.part);
  for (uint32_t i = 0; i + 1 < parts.count(); ++i) {  // the last part is the rest
    graph::Walk walk;
    {
      std::lock_guard graph_guard(graph::graph_lock());
      parts.walk(i, walk);
    }
    if (!walk.empty()) run(walk, session_.programs.find(walk), /*is_part=*/true, cut.cause, where, sync);
  }
  return true;
}

void LazyEngine::launch_bound(const graph::Walk& walk, const Program& program, Sync& sync) {
  const int64_t bound = now_ns();
  bind(walk, program, sync);
  const int64_t start = now_ns();
  launch(session_, program, sync.launch, Until::kStarted, "Nothing was changed: tensors keep their pending values.");
  session_.metrics.prepare_ns += start - bound;
  session_.metrics.execute_ns += now_ns() - start;
  sync.scalars.clear();
}

void LazyEngine::bind(const graph::Walk& walk, const Program& program, Sync& sync) {
  Launch& launch = sync.launch;
  launch.clear();
  for (const graph::NodePtr& leaf : walk.leaves) {
    const DeviceData& data = data_of(*leaf);
    launch.add_lender(data.lender);
    launch.arguments.push_back(data.buffer.get());
  }
  for (const graph::Walk::Alias& alias : program.aliases) {
    const graph::NodePtr& leaf = walk.leaves[alias.leaf];
    if (is_last(leaf)) {
      launch.donated.push_back(data_of(*leaf).buffer.get());
    } else {
      launch.kept.push_back(alias.leaf);
    }
  }
  sync.scalars.make(session_.client(), program, walk.scalars);
  sync.scalars.append_to(launch.arguments);
}

namespace {

// Binds slots of computed values to their leaves, and releases the nodes. `leaf(i)`: the leaf of the walk's result i.
template <class LeafOf>
void bind_leaves(const graph::Walk& walk, const LeafOf& leaf) {
  std::vector<graph::Value> released;  // freed after the lock is released
  std::lock_guard graph_guard(graph::graph_lock());
  for (size_t i = 0; i < walk.results.size(); ++i) {
    Node& node = *walk.results[i].node;
    if (node.leaves.empty()) node.leaves.resize(node.signature->results.size());
    node.leaves[walk.results[i].index] = leaf(i);
  }
  for (const graph::Value& result : walk.results) {
    graph::Component* root = graph::Component::root(result.node->component.get());
    for (Link* link = root->slots.next; link != &root->slots;) {
      auto* slot = static_cast<StorageSlot*>(link);
      link = link->next;
      const graph::Value& value = slot->value();
      if (value.node->leaves.empty() || !value.node->leaves[value.index]) continue;
      released.push_back(value);
      slot->bind({value.node->leaves[value.index], 0});
    }
  }
}

// Returns the assertions that each result of the walk depends on (Note [Runtime assertions]); empty: none for all.
// `sources`: null if the walk has no program, whose assertions are then those of `calls`.
std::vector<ChecksPtr> checks_of(const graph::Walk& walk, const Sources* sources, const std::shared_ptr<RunChecks>& run,
                                 const std::vector<uint32_t>& calls = {}) {
  std::vector<ChecksPtr> leaves;
  for (size_t i = 0; i < walk.leaves.size(); ++i) {
    const ChecksPtr& checks = static_cast<const DeviceData&>(*walk.leaves[i]->data).checks;
    if (!checks || checks->have_passed()) continue;
    leaves.resize(walk.leaves.size());
    leaves[i] = checks;
  }
  const bool found_none = !run || (!sources && run->is_done() && !run->any_failed());
  if (leaves.empty() && found_none) return {};
  return sources ? sources->checks(leaves, run) : Sources(walk, calls).checks(leaves, run);
}

}  // namespace

void LazyEngine::settle(const graph::Walk& walk, const Program& program, Launch& launch) {
  const bool in_world = program.executable->replicas() > 1;
  const std::vector<Replication> replicated = in_world ? replications(walk) : std::vector<Replication>();
  const std::vector<ChecksPtr> checks = checks_of(walk, program.sources.get(), launch.run);
  bind_leaves(walk, [&](size_t i) {
    graph::NodePtr leaf = leaf_of(program.result_types[i], std::move(launch.results[i]));
    auto& data = static_cast<DeviceData&>(*leaf->data);
    if (!replicated.empty()) data.replication = replicated[i];
    if (!checks.empty()) data.checks = checks[i];
    return leaf;
  });
  launch.clear();
}

void LazyEngine::settle(const graph::Walk& walk, const Program& program, const CallChecks& calls,
                        std::vector<std::shared_ptr<DeviceData>>& results) {
  const std::vector<ChecksPtr> checks = checks_of(walk, nullptr, calls.run, calls.calls);
  for (size_t i = 0; i < checks.size(); ++i) results[i]->checks = checks[i];
  bind_leaves(walk, [&](size_t i) { return graph::make_leaf(program.result_types[i], std::move(results[i])); });
  results.clear();
}

graph::Value LazyEngine::known(const graph::Value& value) {
  if (session_.client().replicas() > 1) return {};
  graph::NodePtr leaf;
  session_.exclusively([&] {
    Sync sync;
    try {
      std::lock_guard graph_guard(graph::graph_lock());
      graph::walk_values({value}, sync.walk);
    } catch (const graph::DependsOnData&) {
      return;
    }
    const auto is_drawn = [](const graph::ScalarValue& number) {
      return number.kind == graph::ScalarValue::Kind::kKey;
    };
    if (std::any_of(sync.walk.scalars.begin(), sync.walk.scalars.end(), is_drawn)) return;
    std::shared_ptr<Program> program = session_.programs.find(sync.walk);
    if (!program || !program->executable) program = session_.programs.compile(sync.walk);
    bind(sync.walk, *program, sync);
    TORCH_INTERNAL_ASSERT(sync.launch.donated.empty(), "who holds the value holds what it is made of");
    launch(session_, *program, sync.launch, Until::kStarted, "Nothing was changed.");
    leaf = leaf_of(program->result_types[0], std::move(sync.launch.results.at(0)));
  });
  return {std::move(leaf), 0};
}

int64_t LazyEngine::prepare_only(c10::ArrayRef<StorageSlot*> slots) {
  int64_t spent = 0;
  session_.exclusively([&] {
    const int64_t start = now_ns();
    {
      std::lock_guard graph_guard(graph::graph_lock());
      graph::walk(slots, sync_.walk);
    }
    const std::shared_ptr<Program> program = session_.programs.find(sync_.walk);
    TORCH_CHECK(program && program->executable, "the graph is not known yet: sync it once first");
    bind(sync_.walk, *program, sync_);
    spent = now_ns() - start;
    sync_.scalars.clear();
    sync_.launch.clear();
    sync_.walk.clear();
  });
  return spent;
}

}  // namespace tpjrt::engine
