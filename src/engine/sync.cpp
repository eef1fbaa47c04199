// Running what is pending: walk, find or compile the program, bind, execute, settle.
#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "device/interrupt.h"
#include "device/meta.h"
#include "device/modes.h"
#include "engine/bookkeeping.h"
#include "engine/context.h"
#include "engine/device_data.h"
#include "engine/emit_program.h"
#include "engine/errors.h"
#include "engine/interpret.h"
#include "engine/mappings.h"
#include "engine/refusal.h"
#include "graph/print.h"

namespace tpjrt::engine {
namespace {

using graph::Cell;
using graph::Link;
using graph::Node;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool any_pending(c10::ArrayRef<Cell*> cells) {
  bool any = false;
  for (const Cell* cell : cells) {
    const graph::Value& value = cell->value();
    if (!value) continue;
    any |= !value.is_leaf();
    if (value.is_leaf() && !value.node->data) {
      throw DependsOnData("its result depends on data, which is not there while a graph is traced");
    }
  }
  return any;
}

// No operand or result of more elements than this: a product of such matrices takes tens of microseconds.
bool is_small(const Walk& walk) {
  constexpr int64_t kElements = 128 * 128;
  for (const Node* node : walk.nodes) {
    for (const graph::TypePtr type : node->signature->operands) {
      if (type->numel() > kElements) return false;
    }
    for (const graph::TypePtr type : node->signature->results) {
      if (type && type->numel() > kElements) return false;
    }
  }
  return true;
}

// Does it write element after element, or row after row, as a loop in Python does?
bool writes(const Walk& walk) {
  constexpr size_t kFew = 16, kShare = 8;
  const auto count = std::count_if(walk.nodes.begin(), walk.nodes.end(),
                                   [](const Node* node) { return node->signature->name == "pjrt::write"; });
  return static_cast<size_t>(count) >= std::max(kFew, walk.nodes.size() / kShare);
}

// A cell of our own, which holds a value for as long as it is needed: a tensor's may go at any time.
class Held {
 public:
  Held() = default;
  explicit Held(graph::Value value) { cell_.bind(std::move(value)); }  // under graph_lock()
  ~Held() { let_go(); }
  // Gives whether there was something to hold.
  bool hold(const std::function<graph::Value()>& choice) {
    let_go();
    std::lock_guard lock(graph::graph_lock());
    cell_.bind(choice());
    return static_cast<bool>(cell_.value());
  }
  Cell* cell() { return &cell_; }

 private:
  void let_go() {
    graph::Value released;  // freed after the lock
    std::lock_guard lock(graph::graph_lock());
    released = cell_.value();
    cell_.bind({});
  }

  Cell cell_;
};

}  // namespace

void Context::sync(c10::ArrayRef<Cell*> cells, const char* cause) {
  {
    std::lock_guard graph_guard(graph::graph_lock());
    if (!any_pending(cells)) return;
  }
  const device::Location where = logged_location();
  exclusively([&] {
    run(cause, cells, where);
    // A loop that reads something in each round, though not what it computes, must not grow a graph of all rounds.
    if (running_ == 0) run_large("a large graph beside what was read", UINT64_MAX, where);
  });
}

void Context::run_large(const char* cause, uint64_t until, const device::Location& where) {
  Held large;
  while (large.hold([&] { return graph::Component::any_large(until); })) run(cause, {large.cell()}, where);
}

void Context::sync_large(const char* cause, uint64_t until) {
  const device::Location where = logged_location();
  exclusively([&] { run_large(cause, until, where); });
}

void Context::sync_all(const char* cause) {
  const device::Location where = logged_location();
  exclusively([&] {
    Held pending;
    while (pending.hold(&Cell::any_pending)) run(cause, {pending.cell()}, where);
  });
}

void Context::sync_rest(const char* cause, uint64_t since, graph::Amount least) {
  std::deque<Held> rest;
  std::vector<Cell*> cells;
  {
    std::lock_guard graph_guard(graph::graph_lock());
    for (const graph::Value& value : Cell::pending_since(since, least))
      cells.push_back(rest.emplace_back(value).cell());
  }
  if (cells.empty()) return;
  const device::Location where = logged_location();
  exclusively([&] { run(cause, cells, where); });
}

void Context::run(const char* cause, c10::ArrayRef<Cell*> cells, const device::Location& where) {
  // The buffers of this call: a nested sync (a lowering that records and reads) has its own.
  ++running_;
  const auto ran = c10::make_scope_exit([this] { --running_; });
  Walk walk;
  std::swap(walk, walk_);
  const auto find = [&] {
    const int64_t start = now_ns();
    {
      std::lock_guard graph_guard(graph::graph_lock());
      engine::walk(cells, walk);
    }
    std::shared_ptr<Program> program = walk.empty() ? nullptr : programs_.find(walk);
    metrics.prepare_ns += now_ns() - start;
    return program;
  };
  std::shared_ptr<Program> program = find();
  if (!program && !walk.empty() && run_parts(walk, where)) program = find();
  if (!walk.empty()) run(walk, program, cause, where);
  walk.clear();
  std::swap(walk, walk_);
}

void Context::run(const Walk& walk, std::shared_ptr<Program> program, const char* cause,
                  const device::Location& where) {
  metrics.count_sync(cause);
  std::optional<int64_t> spent;
  if (!program || !program->executable) {
    program = for_host(walk, std::move(program));
    if (program) spent = interpret(walk);
    if (!spent) program = nullptr;
  }
  if (!program) program = compile(walk);
  if (program->executable) {
    const int64_t bound = now_ns();
    bind(walk, *program);
    metrics.prepare_ns += now_ns() - bound;
    spent = execute(walk, *program);
  }
  if (run_log.is_on()) run_log.ran(*program, cause, where, *spent);
  settle(walk, *program);
  packed_.clear();
}

// The program for a graph that is run on the host for now: `program`, if that is what it is, or a new one. Null: it is to be
// compiled.
std::shared_ptr<Program> Context::for_host(const Walk& walk, std::shared_ptr<Program> program) {
  constexpr uint32_t kMostRuns = 1000;  // compiling costs more than these can save
  if (device::strict()) return nullptr;
  if (program) return ++program->runs_on_host < kMostRuns ? program : nullptr;
  if (cuts_.is_batch(walk)) return Program::on_host(walk);  // not kept: it will hardly come again
  if (!is_bookkeeping(walk)) return nullptr;
  program = Program::on_host(walk);
  programs_.insert(walk.hash, program);
  return program;
}

// How long it took, in ns. Nothing where a call raised: then the compiled program will tell of it as programs do (Note
// [Requirements]).
std::optional<int64_t> Context::interpret(const Walk& walk) {
  RECORD_FUNCTION("pjrt::interpret", {});
  const device::BelowEverything below;  // a mode of the user's has seen these calls when they were recorded
  const int64_t start = now_ns();
  try {
    const auto device = walk.nodes.back()->signature->device;
    const auto values = engine::interpret(walk, [&](const Node& leaf) {
      data_of(leaf).buffer->await();
      return host_tensor(leaf);
    });
    for (const at::Tensor& value : values) {
      outputs_.push_back(to_device(value, device, /*owned=*/true));
    }
  } catch (const std::exception&) {
    device::let_interrupts_pass();
    outputs_.clear();
    return std::nullopt;
  }
  metrics.executions++;
  metrics.graphs_interpreted++;
  metrics.nodes_executed += walk.nodes.size();
  const int64_t spent = now_ns() - start;
  metrics.execute_ns += spent;
  return spent;
}

bool Context::run_parts(const Walk& walk, const device::Location& where) {
  const auto is_found_again = [&](uint64_t hash) { return programs_.is_found_again(hash); };
  const std::optional<Cut> cut = cuts_.find(walk, /*may_interpret=*/!device::strict(), is_found_again);
  if (!cut) return false;
  Parts parts(walk, cut->part);
  for (uint32_t i = 0; i + 1 < parts.count(); ++i) {  // the last one is what is left
    Walk part;
    {
      std::lock_guard graph_guard(graph::graph_lock());
      parts.walk(i, part);
    }
    if (!part.empty()) run(part, programs_.find(part), cut->cause, where);
  }
  return true;
}

// Lets go of programs where they take up too much (Note [Mappings]).
void Context::make_room() {
  constexpr uint32_t kBetweenLooks = 16;
  if (++compiles_since_look_ < kBetweenLooks) return;
  compiles_since_look_ = 0;
  if (are_mappings_scarce()) drop_older_programs();
}

void Context::drop_older_programs() {
  exclusively([&] {
    for (const auto& queue : queues_) {
      try {
        queue->now()->wait();
      } catch (const pjrt::Error&) {
        // A program that failed is over, too; whoever reads its results is told.
      }
    }
    programs_.drop_older_half();
  });
}

std::shared_ptr<Program> Context::compile(const Walk& walk) {
  make_room();
  const int64_t start = now_ns();
  auto program = std::make_shared<Program>();
  program->tape = walk.tape;
  program->slots = programs_.slots_for(walk);
  programs_.remember(walk);
  EmittedProgram emitted = emit_program(walk, program->slots, /*with_requirements=*/true, is_cpu());
  if (program_listener_) program_listener_(graph::print(walk.results), emitted.text);
  if (!emitted.requirements.empty()) {
    program->requirements = std::make_shared<const std::vector<ProgramRequirement>>(std::move(emitted.requirements));
  }
  program->aliases = walk.aliases;
  for (const graph::Value& value : walk.results) program->result_types.push_back(graph::dense(value.type()));
  Making making;
  const pjrt::CompileOptions options =
      compile_options(walk.nodes.empty() ? 0 : walk.nodes.back()->signature->device, {is_small(walk), writes(walk)});
  try {
    const CompiledText compiled = compile_text(emitted.text, options, walk.nodes.size());
    program->executable = compiled.executable;
    making.from_disk = compiled.from_disk;
  } catch (const pjrt::Error& error) {
    throw_refusal(client(), walk, error);
  }
  const int64_t spent = now_ns() - start;
  metrics.compile_ns += spent;
  const auto before = run_log.is_on() ? programs_.all() : std::vector<std::shared_ptr<Program>>{};
  programs_.insert(walk.hash, program);
  if (run_log.is_on()) {
    making.seconds = static_cast<double>(spent) * 1e-9;
    making.outline = outline_of(*program);
    if (const auto similar = most_similar(*program, before)) making.resembles = outline_of(*similar);
    run_log.made(*program, std::move(making));
  }
  return program;
}

std::shared_ptr<Program> Context::program_for(const Walk& walk) {
  std::shared_ptr<Program> program = programs_.find(walk);
  return program && program->executable ? program : compile(walk);
}

void Context::bind(const Walk& walk, const Program& program) {
  arguments_.clear();
  kept_.clear();
  packed_.clear();
  donated_.clear();
  for (const graph::NodePtr& leaf : walk.leaves) arguments_.push_back(data_of(*leaf).buffer->handle());
  for (const Walk::Alias& alias : program.aliases) {
    const graph::NodePtr& leaf = walk.leaves[alias.leaf];
    // Only this graph and the walk itself hold it: nobody can read it afterwards.
    const bool free = leaf.use_count() == leaf->uses + 1 && !data_of(*leaf).is_shared();
    if (free) {
      donated_.push_back(data_of(*leaf).buffer.get());
    } else {
      kept_.push_back(alias.leaf);
    }
  }
  packed_.make(client(), program, walk.numbers);
  packed_.append_to(arguments_);
}

int64_t Context::execute(const Walk& walk, const Program& program) {
  RECORD_FUNCTION("pjrt::execute", {});
  const int64_t start = now_ns();
  pjrt::Event done(client().api(), nullptr);
  for (const pjrt::Buffer* buffer : donated_) buffer->set_counted(false);
  try {
    program.executable->execute(arguments_, kept_, outputs_, &done);
  } catch (const pjrt::Error& error) {
    for (const pjrt::Buffer* buffer : donated_) buffer->set_counted(!buffer->is_deleted());
    throw_failure(walk, error);
  }
  started(program.executable->device_index(), std::move(done));
  if (program.requirements) requirements.started(program.requirements, outputs_.back());
  metrics.executions++;
  metrics.nodes_executed += walk.nodes.size();
  const int64_t spent = now_ns() - start;
  metrics.execute_ns += spent;
  return spent;
}

// The results become leaves; cells that held them hold those, and the nodes are let go.
void Context::settle(const Walk& walk, const Program& program) {
  std::vector<graph::Value> released;  // freed after the lock
  std::lock_guard graph_guard(graph::graph_lock());
  for (size_t i = 0; i < walk.results.size(); ++i) {
    Node& node = *walk.results[i].node;
    if (node.leaves.empty()) node.leaves.resize(node.signature->results.size());
    node.leaves[walk.results[i].index] =
        graph::make_leaf(program.result_types[i], std::make_shared<DeviceData>(std::move(outputs_[i])));
  }
  outputs_.clear();
  for (const graph::Value& result : walk.results) {
    graph::Component* root = graph::Component::root(result.node->component.get());
    for (Link* link = root->cells.next; link != &root->cells;) {
      auto* cell = static_cast<Cell*>(link);
      link = link->next;
      const graph::Value& value = cell->value();
      if (value.node->leaves.empty() || !value.node->leaves[value.index]) continue;
      released.push_back(value);
      cell->bind({value.node->leaves[value.index], 0});
    }
  }
}

int64_t Context::prepare_only(c10::ArrayRef<Cell*> cells) {
  std::lock_guard guard(lock_);
  const int64_t start = now_ns();
  {
    std::lock_guard graph_guard(graph::graph_lock());
    engine::walk(cells, walk_);
  }
  const std::shared_ptr<Program> program = programs_.find(walk_);
  TORCH_CHECK(program && program->executable, "the graph is not known yet: sync it once first");
  bind(walk_, *program);
  const int64_t spent = now_ns() - start;
  packed_.clear();
  walk_.clear();
  return spent;
}

}  // namespace tpjrt::engine
