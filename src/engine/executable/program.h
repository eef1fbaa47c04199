// A compiled graph, and the cache of them.
//
// Note [Values that vary]: a program is found by its fingerprint, then by its scalars. Each scalar of the graph is
// either a constant of the program or, once it was seen to change, an element of a packed argument (ScalarArguments). A
// graph that differs only in constants is compiled once more with exactly those scalars promoted, and that program
// replaces the narrower one. A scalar of an ATen call is promoted immediately if the same call had another value in the
// last program compiled with it. This matters for optimizers: the first step also makes the state, so its graph differs
// from the second step's, and the third must not compile. A program of one call serves all such calls (Note [Tiers]):
// scalars that differed between such calls of any graph, offsets included, are arguments of the first program. Scalars
// that a rule had to know (`pinned`) are never promoted: another value is another program.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/executable/collectives.h"
#include "engine/lower/module/emit_program.h"
#include "graph/fingerprint/walk.h"
#include "pjrt/client.h"
#include "pjrt/executable.h"

namespace tpjrt::engine {

struct LargestResult;  // engine/session/out_of_memory.h

struct Program {
  // Returns a program without an executable, which stands for an interpreted graph (Note [Tiers]).
  static std::shared_ptr<Program> of_calls(const graph::Walk& walk);

  uint64_t serial = 0;     // numbers the programs of this process, from 1; set by the cache
  uint64_t last_used = 0;  // time stamp of the last use, counted in uses of the cache
  std::vector<uint64_t> fingerprint;
  size_t num_calls = 0;
  std::vector<ScalarSlot> slots;
  std::vector<graph::TypePtr> result_types;  // dense
  std::vector<graph::Walk::Alias> aliases;
  std::shared_ptr<pjrt::Executable> executable;  // null: see of_calls
  std::string interpreted;                       // interpreted graphs: how many such runs there are, for explain()
  AssertionList assertions;                      // null: none
  std::shared_ptr<const Sources> sources;        // of its results; null for interpreted graphs
  std::map<std::pair<std::string, std::string>, uint32_t> composites;  // (name, implementation) -> count
  std::map<std::pair<std::string, std::string>, uint32_t> kernels;  // (op, CPU kernel that the program calls) -> count
  Collectives collectives;                                          // in one run
  size_t memory_size = 0;                                           // pjrt::Executable::memory_size
  std::shared_ptr<const LargestResult> largest;

  bool accepts(const std::vector<graph::ScalarValue>& scalars) const;
};

// The promoted scalars of a graph as its program's last arguments (kScalarsInVector).
class ScalarArguments {
 public:
  void make(pjrt::Client& client, const Program& program, const std::vector<graph::ScalarValue>& scalars);
  void append_to(std::vector<const pjrt::Buffer*>& arguments) const;
  bool made() const { return made_; }
  void clear();

 private:
  bool made_ = false;
  std::vector<double> doubles_;
  std::vector<int64_t> integers_;
  std::vector<std::shared_ptr<pjrt::Buffer>> buffers_;
};

class ProgramCache {
 public:
  // Call it under the engine's lock.
  std::shared_ptr<Program> find(const graph::Walk& walk);
  // Returns which scalars the next program for this fingerprint should take as arguments.
  std::vector<ScalarSlot> slots_for(const graph::Walk& walk) const;
  // Records the scalars of a graph that is being compiled.
  void remember(const graph::Walk& walk);
  void insert(uint64_t hash, std::shared_ptr<Program> program);
  // Among programs that only the cache holds, drops the least recently used half.
  void drop_older_half();
  size_t size() const { return count_; }
  uint64_t new_serial() { return ++inserted_; }
  std::vector<std::shared_ptr<Program>> all() const;
  void clear();

 private:
  std::unordered_map<uint64_t, std::vector<std::shared_ptr<Program>>> programs_;
  // By call, then by the index of its occurrence in the graph.
  std::unordered_map<graph::SignaturePtr, std::vector<std::vector<graph::ScalarValue>>> last_numbers_;
  size_t count_ = 0;
  uint64_t inserted_ = 0, used_ = 0;
};

}  // namespace tpjrt::engine
