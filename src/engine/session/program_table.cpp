// Makes programs from walks.
#include "engine/session/program_table.h"

#include <algorithm>
#include <mutex>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "engine/executable/xla_options.h"
#include "engine/log/description.h"
#include "engine/log/metrics.h"
#include "engine/lower/module/emit_program.h"
#include "engine/memory/mappings.h"
#include "engine/session/out_of_memory.h"
#include "engine/session/rejected_program.h"
#include "engine/session/session.h"
#include "graph/node.h"
#include "graph/print.h"
#include "graph/signature.h"
#include "hlo/builder.h"
#include "kernels/table.h"
#include "ops/xla_cpu/cpu_lowerings.h"

namespace tpjrt::engine {
namespace {

using graph::Node;

// Returns the most elements of an operand or a result.
int64_t most_elements(const Node* node) {
  int64_t most = 0;
  for (const auto* types : {&node->signature->operands, &node->signature->results}) {
    for (const graph::TypePtr type : *types) most = std::max(most, type ? type->numel() : 0);
  }
  return most;
}

// Returns true if no operand or result has more elements than this. A product of such matrices takes tens of
// microseconds.
bool is_small(const graph::Walk& walk) {
  constexpr int64_t kElements = 128 * 128;
  return std::ranges::all_of(walk.nodes, [](const Node* node) { return most_elements(node) <= kElements; });
}

// Returns true if the graph writes element by element or row by row, as a Python loop does.
bool writes(const graph::Walk& walk) {
  constexpr size_t kFew = 16, kShare = 8;
  const auto count = std::count_if(walk.nodes.begin(), walk.nodes.end(),
                                   [](const Node* node) { return node->signature->name == "pjrt::write"; });
  return static_cast<size_t>(count) >= std::max(kFew, walk.nodes.size() / kShare);
}

// Returns true if calls on equal types recur, as in a network of equal layers.
bool has_repetition(const graph::Walk& walk) {
  constexpr size_t kTimes = 4;
  std::unordered_set<graph::SignaturePtr> different;
  for (const Node* node : walk.nodes) different.insert(node->signature);
  return walk.nodes.size() > kTimes * different.size();
}

// Note [Emitters]: XLA:CPU has two sets of emitters. The newer ones run MLIR's passes for each kernel, which takes
// milliseconds or more. They share one kernel among equal ones, and their kernels are faster on large data. The older
// ones compile a program of small tensors in two thirds of the time (over OpInfo's samples, forward and backward), and
// writes into a tensor in a tenth, where the newer ones read the whole tensor. They compile equal kernels anew, so 30
// equal layers with Adam take 1.6 times as long.
//
// The older ones serve real dtypes of 16 bits or more, on one device, with few gathers. They convert to 8-bit floats by
// way of float16, which rounds twice and changes some values even in a copy, and their complex powers lose digits. They
// recompute the operand of a gather for each use, so that in a chain each gather takes two to four times as long as the
// one before. In a world only the newer ones are used, so that programs of different sizes compute shards and wholes
// bit by bit alike.
bool needs_newer(std::string_view text) {
  constexpr int kGathers = 6;
  constexpr std::string_view kGather = "\"stablehlo.gather\"(";
  for (const std::string_view type : {"f8E4M3", "f8E5M2", "complex<"}) {
    if (text.find(type) != text.npos) return true;
  }
  size_t at = 0;
  for (int gathers = 0; gathers <= kGathers; ++gathers, ++at) {
    at = text.find(kGather, at);
    if (at == text.npos) return false;
  }
  return true;
}

Traits traits_of(const graph::Walk& walk, std::string_view text, size_t replicas = 1) {
  const bool small = is_small(walk);
  const bool sooner = writes(walk) || (small && !has_repetition(walk));
  return {small, sooner && replicas == 1 && !needs_newer(text)};
}

// Returns true if XLA would hand the program to another thread for nothing (Note [Caller's thread]): the caller waits
// for it, or it takes less time than two thread switches.
bool belongs_to_callers_thread(const graph::Walk& walk, bool small) {
  constexpr size_t kFewCalls = 16;
  constexpr int64_t kFewElements = 1 << 7, kManyElements = 1 << 22;  // XLA runs it at once; switches don't matter
  if (!walk.is_awaited && !(small && walk.nodes.size() <= kFewCalls)) return false;
  int64_t elements = 0;
  for (const Node* node : walk.nodes) elements += most_elements(node);
  return elements >= kFewElements && elements < kManyElements;
}

// XLA's GPU compiler divides by the memory that a program's arguments and results leave.
void check_capacity(Session& session, const graph::Walk& walk, c10::DeviceIndex device) {
  size_t nbytes = 0;
  for (const graph::NodePtr& leaf : walk.leaves) nbytes += static_cast<size_t>(leaf->leaf_type->nbytes());
  for (const graph::Value& value : walk.results) nbytes += static_cast<size_t>(value.type()->nbytes());
  for (const graph::Walk::Alias& alias : walk.aliases) {
    nbytes -= static_cast<size_t>(walk.results[alias.result].type()->nbytes());
  }
  if (walk.nodes.empty() || nbytes <= session.capacity(device)) return;
  throw_out_of_memory(
      nbytes, device,
      LargestResult::of(walk)->description() + " Nothing was changed: tensors keep their pending values.");
}

Collectives collectives_of(const graph::Walk& walk) {
  Collectives collectives;
  for (const Node* node : walk.nodes) {
    const graph::Signature& signature = *node->signature;
    const std::optional<std::string_view> op = graph::collective(signature);
    if (!op) continue;
    Collective& counted = collectives[std::string(*op)];
    counted.calls++;
    counted.bytes += static_cast<uint64_t>(signature.operands.at(0)->nbytes());
  }
  return collectives;
}

// Returns true if the program's text may have composites.
bool keeps_composites(const graph::Walk& walk) {
  return std::any_of(walk.nodes.begin(), walk.nodes.end(), [](const Node* node) {
    return node->signature->composites != nullptr && !node->signature->composites->by_default;
  });
}

std::string composite_of_nothing() {
  hlo::Builder b("composite");
  const hlo::Value x = b.parameter({hlo::ElementType::kF32, {}});
  return b.finish(b.composite("pjrt.nothing", {}, {x}, [](const hlo::Values& values) { return values; }));
}

}  // namespace

bool ProgramTable::knows_composites(pjrt::Client& client) {
  if (asked_ == &client) return knows_composites_;
  try {
    (void)client.compile(composite_of_nothing());
    knows_composites_ = true;
  } catch (const pjrt::Error&) {
    knows_composites_ = false;
  }
  asked_ = &client;
  return knows_composites_;
}

// Drops programs if they use too many mappings (Note [Mappings]).
void ProgramTable::make_room() {
  constexpr uint32_t kBetweenLooks = 16;
  if (++compiles_since_look_ < kBetweenLooks) return;
  compiles_since_look_ = 0;
  if (are_mappings_scarce()) drop_older();
}

void ProgramTable::drop_older() {
  session_.exclusively([&] {
    session_.await_all();
    cache_.drop_older_half();
  });
}

void ProgramTable::forget() {
  session_.exclusively([&] {
    session_.await_all();
    cache_.clear();
  });
}

std::shared_ptr<PendingCompile> ProgramTable::prepare(const graph::Walk& walk, bool with_defaults) {
  make_room();
  const int64_t start = now_ns(), cpu = process_cpu_ns();
  auto pending = std::make_shared<PendingCompile>();
  pending->program = std::make_shared<Program>();
  Program& program = *pending->program;
  program.fingerprint = walk.fingerprint;
  program.num_calls = walk.nodes.size();
  pjrt::Client& client = session_.client();
  program.slots = cache_.slots_for(walk);
  cache_.remember(walk);
  const auto device = walk.nodes.empty() ? static_cast<c10::DeviceIndex>(client.own_device())
                                         : static_cast<c10::DeviceIndex>(walk.nodes.back()->signature->device);
  if (!client.is_host_memory()) check_capacity(session_, walk, device);
  EmittedProgram emitted;
  {
    const bool knows = !keeps_composites(walk) || knows_composites(client);
    const kernels::Claiming claiming(client, with_defaults);
    emitted = emit_program(walk, program.slots, /*with_assertions=*/true, session_.target(), knows);
    program.composites = claiming.all_done();
    pending->default_kernels = claiming.defaults();
    program.kernels = std::move(emitted.kernels);
  }
  if (listener_) listener_(graph::print(walk.results), emitted.text);
  if (!emitted.assertions.empty()) {
    program.assertions = std::make_shared<const std::vector<ProgramAssertion>>(std::move(emitted.assertions));
  }
  std::vector<uint32_t> calls;
  for (const ProgramAssertion& assertion : program.assertions ? *program.assertions : std::vector<ProgramAssertion>())
    calls.push_back(assertion.call);
  program.sources = std::make_shared<const Sources>(walk, calls);
  program.aliases = walk.aliases;
  for (const graph::Value& value : walk.results) program.result_types.push_back(graph::dense(value.type()));
  program.collectives = collectives_of(walk);
  const Traits traits = traits_of(walk, emitted.text, client.replicas());
  if (client.replicas() == 1 && emitted.processes.empty() && belongs_to_callers_thread(walk, traits.small)) {
    emitted.text = ops::run_in_callers_thread(std::move(emitted.text), session_.target());
  }
  pending->options = compile_options(session_.target(), device, traits, client.spans_processes());
  pending->options.replicas = static_cast<int>(client.replicas());
  pending->options.processes = std::move(emitted.processes);
  pending->text = std::move(emitted.text);
  pending->prepared_ns = now_ns() - start;
  pending->prepared_cpu_ns = process_cpu_ns() - cpu;
  return pending;
}

void ProgramTable::start(PendingCompile& pending) {
  const auto work = [session = &session_, text = pending.text, options = pending.options,
                     calls = pending.program->num_calls] {
    return session->compile_text(text, options, calls, Compiling::kInBackground);
  };
  pending.background.emplace(work);
}

std::shared_ptr<Program> ProgramTable::finish(const graph::Walk& walk, PendingCompile& pending) {
  const int64_t start = now_ns(), cpu = process_cpu_ns();
  const std::shared_ptr<Program> program = pending.program;
  Making making;
  try {
    const auto compile = [&](const BackgroundCompile::Enough& enough) {
      return session_.compile_text(pending.text, pending.options, walk.nodes.size(), Compiling::kAwaited, enough);
    };
    const CompiledText compiled =
        pending.background ? pending.background->result(compile) : compile([] { return false; });
    program->executable = compiled.executable;
    making.from_disk = compiled.from_disk;
    (making.from_disk ? session_.metrics.graphs_loaded_from_disk : session_.metrics.graphs_compiled)++;
  } catch (const pjrt::Error& error) {
    if (!pending.default_kernels.empty() && !error.is_out_of_memory()) {
      // A library's supported cases depend on its version as well, and only its rejection reveals them.
      TORCH_WARN("XLA refuses a program with ", *pending.default_kernels.begin(),
                 ", which is compiled with what it stands for instead: ", error.what(),
                 "\nTORCH_PJRT_LIBRARY_KERNELS=0 leaves it out at once.");
      return finish(walk, *prepare(walk, /*with_defaults=*/false));
    }
    throw_refusal(session_.client(), session_.target(), walk, error);
  }
  program->memory_size = program->executable->memory_size();
  program->largest = LargestResult::of(walk, program->memory_size);
  const int64_t spent = pending.prepared_ns + now_ns() - start;
  session_.metrics.compile_ns += spent;
  // The preparation of a background compile took place in an earlier step.
  const int64_t waited = pending.background ? spent - pending.prepared_ns : spent;
  session_.report_later({static_cast<double>(waited) * 1e-9, walk.nodes.size()});
  RunLog& log = session_.run_log;
  const auto before = log.is_on() ? cache_.all() : std::vector<std::shared_ptr<Program>>{};
  cache_.insert(walk.hash, program);
  if (log.is_on()) {
    making.seconds = static_cast<double>(spent) * 1e-9;
    making.cpu_seconds = static_cast<double>(pending.prepared_cpu_ns + process_cpu_ns() - cpu) * 1e-9;
    making.description = description_of(*program);
    if (const auto similar = most_similar(*program, before)) making.resembles = description_of(*similar);
    log.made(*program, std::move(making));
  }
  return program;
}

std::shared_ptr<Program> ProgramTable::find_or_compile(const graph::Walk& walk) {
  std::shared_ptr<Program> program = find(walk);
  return program ? program : compile(walk);
}

std::string ProgramTable::stablehlo(const std::vector<graph::Value>& results, ops::Target target,
                                    bool knows_composites) {
  std::string text;
  session_.exclusively([&] {
    graph::Walk walk;
    {
      std::lock_guard graph_guard(graph::graph_lock());
      graph::walk_trace(results, {}, {}, walk);  // placeholders included
    }
    std::vector<ScalarSlot> slots = cache_.slots_for(walk);
    text = emit_program(walk, slots, /*with_assertions=*/false, target, knows_composites).text;
  });
  return text;
}

std::vector<ExportedText> ProgramTable::exported(const graph::Walk& walk) {
  constexpr const char* kCure =
      " Save whole weights (full_tensor(), or get_model_state_dict with full_state_dict=True), and export the module "
      "with them in a process by itself, without a process group";
  pjrt::Client& client = session_.client();
  TORCH_CHECK_NOT_IMPLEMENTED(client.replicas() == 1,
                              "torch_pjrt.export: a program in a file is for one device, and this "
                              "process has a world of ",
                              client.replicas(), "; export it in a process without one.", kCure);
  for (const graph::Node* node : walk.nodes) {
    const auto op = graph::collective(*node->signature);
    TORCH_CHECK_NOT_IMPLEMENTED(!op, "torch_pjrt.export: a program in a file is for one device, and this one has an ",
                                op.value_or(""), " between processes.", kCure);
  }
  std::vector<ScalarSlot> slots;
  for (const graph::ScalarValue& number : walk.scalars) slots.push_back({number});
  const auto emit = [&](std::string platform, ops::Target target) {
    EmittedProgram emitted =
        emit_program(walk, slots, /*with_assertions=*/true, target, /*knows_composites=*/true, Interface::kExported);
    ExportedText exported{std::move(platform),
                          hlo::without_locations(emitted.text),
                          emitted.draws,
                          std::move(emitted.unchanged),
                          std::move(emitted.assertions),
                          {},
                          {}};
    if (exported.platform != "any") exported.options = compile_options(target, 0, traits_of(walk, exported.text));
    return exported;
  };
  std::vector<ExportedText> all{emit("any", ops::Target::kAny)};
  const std::string& own = client.platform_name();
  if (own != "cpu") all.push_back(emit("cpu", ops::Target::kCpu));
  const kernels::Claiming claiming(client, /*with_defaults=*/false);                 // cuDNN may reject the file's GPU
  all.push_back(emit(own, is_cpu(client) ? ops::Target::kCpu : session_.target()));  // loaders have no handlers
  all.back().composites = claiming.all_done();
  return all;
}

void ProgramTable::report_program(const graph::Walk& walk) {
  if (!run_listener_) return;
  pjrt::Client& client = session_.client();
  std::vector<ScalarSlot> slots = cache_.slots_for(walk);
  const bool knows = !keeps_composites(walk) || knows_composites(client);
  const kernels::Claiming claiming(client);
  run_listener_(emit_program(walk, slots, /*with_assertions=*/true, session_.target(), knows).text);
}

void ProgramTable::set_run_listener(RunListener listener) {
  session_.exclusively([&] { std::swap(run_listener_, listener); });
}

void ProgramTable::set_listener(ProgramListener listener) {
  session_.exclusively([&] { std::swap(listener_, listener); });
}

}  // namespace tpjrt::engine
