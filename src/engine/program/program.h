// A compiled graph, and the cache of them.
//
// Note [Values that vary]: a program is found by its tape, then by its numbers. Each number of the graph is either a
// constant of the program or, once it was seen to change, an element of a packed argument (NumberArguments). A graph
// that differs in constants only is compiled once more with exactly those numbers promoted, and that program replaces
// the narrower one. A number of an ATen call that differs from what the same call held in the last program compiled with
// it is promoted at once: an optimizer's first step, which also makes its state, is another graph than its second, and the
// third must not compile. A program of one call serves all such calls (Note [Tiers]): in what those of any graph so far differ,
// an offset too, is an argument of the first one. Numbers a rule had to know (`pinned`) are never promoted: another value is
// another program.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/lower/program/number_slot.h"
#include "engine/lower/program/sources.h"
#include "engine/program/collectives.h"
#include "graph/tape/walk.h"
#include "pjrt/client.h"
#include "pjrt/executable.h"

namespace tpjrt::engine {

struct LargestResult;  // engine/session/out_of_memory.h

struct Program {
  // What stands for a graph that is run by calls (Note [Tiers]).
  static std::shared_ptr<Program> of_calls(const graph::Walk& walk);

  uint64_t serial = 0;     // counts the programs of this process, from 1; given by the cache
  uint64_t last_used = 0;  // grows with each use of any program of the cache
  std::vector<uint64_t> tape;
  size_t num_calls = 0;
  std::vector<NumberSlot> slots;
  std::vector<graph::TypePtr> result_types;  // dense
  std::vector<graph::Walk::Alias> aliases;
  std::shared_ptr<pjrt::Executable> executable;  // null: see of_calls
  std::string by_calls;                          // where it is run so: how many such runs there are, as explain() tells
  int64_t predicted_ns = 0;                      // of a run, its recording included (Note [Tiers]); 0: not asked
  RequirementList requirements;                  // null: none
  std::shared_ptr<const Sources> sources;        // of its results; null where it stands for calls
  std::map<std::pair<std::string, std::string>, uint32_t> composites;  // (name, who does it) -> how many
  std::map<std::pair<std::string, std::string>, uint32_t> kernels;  // (op, the CPU's kernel that it calls) -> how many
  Collectives collectives;                                          // of one run
  size_t memory_size = 0;                                           // pjrt::Executable::memory_size
  std::shared_ptr<const LargestResult> largest;

  bool accepts(const std::vector<graph::Number>& numbers) const;
};

// The promoted numbers of a graph as its program's last arguments (kNumbersInPack).
class NumberArguments {
 public:
  void make(pjrt::Client& client, const Program& program, const std::vector<graph::Number>& numbers);
  void append_to(std::vector<PJRT_Buffer*>& arguments) const;
  void append_to(std::vector<const pjrt::Buffer*>& arguments) const;  // of a world
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
  // Under the engine's lock.
  std::shared_ptr<Program> find(const graph::Walk& walk);
  // Which numbers the next program for this tape should take as arguments. `is_one_call`: it stands for one call of graphs.
  std::vector<NumberSlot> slots_for(const graph::Walk& walk, bool is_one_call = false) const;
  // Takes down the numbers of a graph that is being compiled.
  void remember(const graph::Walk& walk);
  void insert(uint64_t hash, std::shared_ptr<Program> program);
  // Of the programs that nobody else holds, lets go of the half that was not used for longest.
  void drop_older_half();
  size_t size() const { return count_; }
  uint64_t new_serial() { return ++inserted_; }
  std::vector<std::shared_ptr<Program>> all() const;
  void clear();

 private:
  std::unordered_map<uint64_t, std::vector<std::shared_ptr<Program>>> programs_;
  // By call and by its how-manieth occurrence in the graph.
  std::unordered_map<graph::SignaturePtr, std::vector<std::vector<graph::Number>>> last_numbers_;
  size_t count_ = 0;
  uint64_t inserted_ = 0, used_ = 0;
};

}  // namespace tpjrt::engine
