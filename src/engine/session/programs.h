// All programs of the process: found by their graphs, or made of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/program/background.h"
#include "engine/program/program.h"
#include "ops/rule/target.h"

namespace tpjrt::engine {

class Session;

// Is told of each program before it is compiled. Called under the session's lock: it must not sync.
using ProgramListener = std::function<void(const std::string& graph, const std::string& stablehlo)>;
// Is told of each program before it is run lazily, known ones too; likewise.
using RunListener = std::function<void(const std::string& stablehlo)>;

// A program that is to be compiled.
struct Coming {
  std::shared_ptr<Program> program;  // all but its executable
  std::string text;
  pjrt::CompileOptions options;
  std::set<std::string> default_kernels;  // what it has of them (Note [Default kernels])
  int64_t prepared_ns = 0, prepared_cpu_ns = 0;
  std::optional<BackgroundCompile> background;  // once it has started there
};

// A graph as the text of a program that leaves (Note [Exported programs]), without the user's files and lines, and what a
// plugin for the platform is told to compile it with.
struct ExportedText {
  std::string platform;  // "any": every one that has no text of its own
  std::string text;
  bool draws = false;
  std::vector<uint32_t> unchanged;
  std::vector<ProgramRequirement> requirements;
  std::map<std::pair<std::string, std::string>, uint32_t> composites;  // (name, who does it) -> how many
  pjrt::CompileOptions options;
};

class Programs {
 public:
  explicit Programs(Session& session) : session_(session) {}

  // Under the session's lock.
  std::shared_ptr<Program> find(const graph::Walk& walk) { return cache_.find(walk); }
  // Throws, with the op and the user's line, what XLA refuses.
  std::shared_ptr<Program> compile(const graph::Walk& walk) { return finish(walk, *prepare(walk)); }
  // The same in two steps: between them it may be compiled in the background.
  // `with_defaults`: with the default kernels (Note [Default kernels]).
  std::shared_ptr<Coming> prepare(const graph::Walk& walk, bool with_defaults = true);
  void start(Coming& coming);
  std::shared_ptr<Program> finish(const graph::Walk& walk, Coming& coming);
  std::shared_ptr<Program> find_or_compile(const graph::Walk& walk);
  // For every platform, for the CPU, and for this client's: that with the kernels that are registered.
  std::vector<ExportedText> exported(const graph::Walk& walk);
  // To whoever listens to runs: the text of this graph's program.
  void tell(const graph::Walk& walk);
  // Is anybody told of each run?
  bool tells_of_runs() const { return static_cast<bool>(run_listener_); }
  void insert(uint64_t hash, std::shared_ptr<Program> program) { cache_.insert(hash, std::move(program)); }
  // Of a graph that has no program yet.
  uint64_t new_serial() { return cache_.new_serial(); }
  // Takes down the numbers of a graph that is run without a program: where they change, its program will take them.
  void remember(const graph::Walk& walk) { cache_.remember(walk); }

  // These take the lock.
  // Lets go of the half of all programs that was not used for longest, when what is under way is done.
  void drop_older();
  // Lets go of all programs that nobody else holds, and of which numbers varied.
  void forget();
  // The module that these values are.
  std::string stablehlo(const std::vector<graph::Value>& results, ops::Target target, bool knows_composites = true);
  // One at a time; an empty one ends it.
  void set_listener(ProgramListener listener);
  void set_run_listener(RunListener listener);

 private:
  void make_room();
  // Does the plugin take stablehlo.composite? Asked of it once, by a program that has one.
  bool knows_composites(pjrt::Client& client);

  Session& session_;
  ProgramCache cache_;
  ProgramListener listener_;
  RunListener run_listener_;
  uint32_t compiles_since_look_ = 0;
  const pjrt::Client* asked_ = nullptr;  // the client that knows_composites_ is of
  bool knows_composites_ = false;
};

}  // namespace tpjrt::engine
