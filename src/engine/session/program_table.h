// All programs of the process: found by their graphs, or compiled from them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/executable/background.h"
#include "engine/executable/program.h"
#include "ops/rule/backend_lowerings.h"

namespace tpjrt::engine {

class Session;

// Called with each program before it is compiled. The session's lock is held, so the listener must not sync.
using ProgramListener = std::function<void(const std::string& graph, const std::string& stablehlo)>;
// Called with each program before a lazy run, known programs included. The session's lock is held here, too.
using RunListener = std::function<void(const std::string& stablehlo)>;

// A pending compile.
struct PendingCompile {
  std::shared_ptr<Program> program;  // complete but for its executable
  std::string text;
  pjrt::CompileOptions options;
  std::set<std::string> default_kernels;  // those in its text (Note [Default kernels])
  int64_t prepared_ns = 0, prepared_cpu_ns = 0;
  std::optional<BackgroundCompile> background;  // set once it was started there
};

// A graph as the text of an exported program (Note [Exported programs]), without the user's files and lines, and the
// compile options for a plugin of the platform.
struct ExportedText {
  std::string platform;  // "any": every platform without a text of its own
  std::string text;
  bool draws = false;
  std::vector<uint32_t> unchanged;
  std::vector<ProgramAssertion> assertions;
  std::map<std::pair<std::string, std::string>, uint32_t> composites;  // (name, implementation) -> count
  pjrt::CompileOptions options;
};

class ProgramTable {
 public:
  explicit ProgramTable(Session& session) : session_(session) {}

  // Returns the program of a graph, or null. Call it under the session's lock, like the functions below.
  std::shared_ptr<Program> find(const graph::Walk& walk) { return cache_.find(walk); }
  // Compiles a graph. Throws, with the op and the user's line, if XLA rejects it.
  std::shared_ptr<Program> compile(const graph::Walk& walk) { return finish(walk, *prepare(walk)); }
  // Compile in two steps, between which the compile may run in the background. `with_defaults`: use default kernels
  // (Note [Default kernels]).
  std::shared_ptr<PendingCompile> prepare(const graph::Walk& walk, bool with_defaults = true);
  void start(PendingCompile& pending);
  std::shared_ptr<Program> finish(const graph::Walk& walk, PendingCompile& pending);
  std::shared_ptr<Program> find_or_compile(const graph::Walk& walk);
  // Returns texts for every platform, for the CPU, and for this client's platform; the last uses the registered
  // kernels.
  std::vector<ExportedText> exported(const graph::Walk& walk);
  // Passes the text of this graph's program to the run listener.
  void report_program(const graph::Walk& walk);
  // Returns true if there is a run listener.
  bool reports_runs() const { return static_cast<bool>(run_listener_); }
  void insert(uint64_t hash, std::shared_ptr<Program> program) { cache_.insert(hash, std::move(program)); }
  // Returns a serial for a graph that has no program yet.
  uint64_t new_serial() { return cache_.new_serial(); }
  // Records the scalars of an interpreted graph: those that change will be inputs of its program.
  void remember(const graph::Walk& walk) { cache_.remember(walk); }

  // The following functions take the lock. This one drops the least recently used half of all programs, once running
  // work is done.
  void drop_older();
  // Drops all programs that only the cache holds, and forgets which scalars varied.
  void forget();
  // Returns the module that computes these values.
  std::string stablehlo(const std::vector<graph::Value>& results, ops::Target target, bool knows_composites = true);
  // Sets the only listener; an empty one removes it.
  void set_listener(ProgramListener listener);
  void set_run_listener(RunListener listener);

 private:
  void make_room();
  // Returns true if the plugin accepts stablehlo.composite. Tried once, with a program that has one.
  bool knows_composites(pjrt::Client& client);

  Session& session_;
  ProgramCache cache_;
  ProgramListener listener_;
  RunListener run_listener_;
  uint32_t compiles_since_look_ = 0;
  const pjrt::Client* asked_ = nullptr;  // the client that knows_composites_ is about
  bool knows_composites_ = false;
};

}  // namespace tpjrt::engine
