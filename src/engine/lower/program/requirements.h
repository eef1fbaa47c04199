// What programs found out about their data that the user has to know: an index out of range.
//
// Note [Requirements]: eager CPU looks at an index before it uses it. A program can't stop, and to look first would be a sync
// for every index. So a rule states what it requires (ops::Requirement), and the program gives the least and the greatest of
// the integers in question as one more result. An error belongs to the values that were computed from the call: every read
// of one raises it, with the op and the user's line, and so does every read of what is computed from them later, until a
// value is written anew in full. Nothing else is affected. An error that no value has any more, because its tensors are gone or
// were written over, is raised once by the next read of anything; torch.pjrt.synchronize() raises what nobody was told
// of, and the end of the process warns of it. Until then reads out of range were clamped into it, and writes dropped.
// Which results rest on which calls is worked out once a program (lower/program/sources.h). A launch whose leaves are sound and
// whose program requires nothing pays a comparison a leaf for this.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "graph/node.h"
#include "ops/rule/emit.h"
#include "pjrt/buffer.h"

namespace tpjrt::engine {

// One requirement of a program. Its two integers are at the same place in the program's last result.
struct ProgramRequirement {
  int64_t low = 0, high = 0;
  std::string message;
  ops::Raises raises = ops::Raises::kRuntimeError;
  std::string op, file;
  int line = 0;
  uint32_t call = 0;  // whose it is: its place in the walk that the program was made of
};
using RequirementList = std::shared_ptr<const std::vector<ProgramRequirement>>;

ProgramRequirement program_requirement(const ops::Requirement& requirement, const graph::Node& call);

class Check;
class Checks;
using ChecksPtr = std::shared_ptr<const Checks>;  // what a value rests on; null: nothing

// Which requirements of one graph others rest on.
struct RequirementOrder {
  std::vector<uint32_t> calls;              // of each, the call whose it is
  std::vector<std::vector<uint64_t>> bits;  // of each, its call's leaves and then requirements, a bit for each
  size_t first = 0;                         // the bit of the first requirement
  // If both are not met, whether the second comes of the first. A call has one mistake.
  bool comes_of(uint32_t second, uint32_t one) const;
};

// Which mistakes of a run come of others.
struct Follows {
  std::shared_ptr<const RequirementOrder> within;
  std::vector<std::vector<ChecksPtr>>
      earlier;  // of each requirement, what its call rests on of earlier runs; empty: none
};

// What one run requires of its data: one program, or the calls of a graph that are run one by one. Thread-safe.
class RunChecks {
 public:
  RunChecks();
  // Counts the runs of this process.
  uint64_t number() const { return number_; }
  // `extremes`: the least and the greatest integer of each of them, s64. They are numbered on from those added before.
  void add(RequirementList list, std::shared_ptr<pjrt::Buffer> extremes);
  size_t size() const;
  // Whether all programs have ended. Never waits.
  bool is_done();
  // Whether one of all is not met; of those that are known.
  bool any_failed();
  static constexpr uint32_t kNone = ~uint32_t{0};
  // Waits. The first that is not met, of all or of `which`; kNone where all are.
  uint32_t first_failed();
  uint32_t first_failed(const std::vector<uint32_t>& which);
  // Raises the error of one that is not met: nobody else has to be told of it.
  [[noreturn]] void raise(uint32_t requirement);
  // The first that is not met, comes of no other mistake, and that nobody was told of. With `only_lost`, those of values are left
  // to these.
  uint32_t first_untold(bool only_lost);
  void set_all_told();
  // Values have what they rest on: from now on what none has is lost.
  void set_settled(Follows follows);
  std::string text(uint32_t requirement);

 private:
  friend class Check;
  struct Part {
    RequirementList list;
    std::shared_ptr<pjrt::Buffer> extremes;  // null once they were looked at
    size_t first;                            // the number of the list's first
  };
  struct Failure {
    uint32_t requirement;
    std::exception_ptr error;
    bool told = false;
  };
  void look(bool waits);                     // under lock_
  bool is_of_another(uint32_t requirement);  // likewise
  const uint64_t number_;
  mutable std::mutex lock_;
  std::vector<Part> parts_;
  size_t size_ = 0, looked_at_ = 0;
  bool settled_ = false;
  Follows follows_;
  std::vector<Failure> failures_;
  std::vector<std::weak_ptr<const Check>> held_;
};

// The requirements of one run that some values rest on.
class Check {
 public:
  static std::shared_ptr<const Check> make(std::shared_ptr<RunChecks> run,
                                           std::shared_ptr<const std::vector<uint32_t>> which);
  RunChecks& run() const { return *run_; }
  const std::vector<uint32_t>& which() const { return *which_; }
  // Whether all are known to be met. Never waits.
  bool is_met() const;

 private:
  Check(std::shared_ptr<RunChecks> run, std::shared_ptr<const std::vector<uint32_t>> which)
      : run_(std::move(run)), which_(std::move(which)) {}
  std::shared_ptr<RunChecks> run_;
  std::shared_ptr<const std::vector<uint32_t>> which_;
};

// All that a value rests on, of this and earlier runs; of the same for several values, one. Thread-safe.
class Checks {
 public:
  explicit Checks(std::vector<std::shared_ptr<const Check>> all) : all_(std::move(all)) {}
  // Whether all are known to be met. Never waits.
  bool are_met() const;
  // Whether one is known not to be met. Never waits.
  bool have_failed() const;
  // Waits, and raises the first that is not met, in the order of runs.
  void raise() const;
  const std::vector<std::shared_ptr<const Check>>& all() const { return all_; }

 private:
  std::vector<std::shared_ptr<const Check>> all_;
  mutable std::atomic<bool> met_{false};
};

// The runs of which somebody may still have to be told. Thread-safe.
class Requirements {
 public:
  // Of a program that was started. `run`: what it is part of; null: a run by itself.
  std::shared_ptr<RunChecks> started(RequirementList list, std::shared_ptr<pjrt::Buffer> extremes,
                                     std::shared_ptr<RunChecks> run);
  // Is there anything to be looked at?
  bool any() const { return any_; }
  // Raises the first error of a program that is done which no value has any more, if nobody was told of it. Never waits.
  void raise_lost() { raise(/*only_lost=*/true); }
  // The first that nobody was told of, whoever has it.
  void raise_untold() { raise(/*only_lost=*/false); }
  // Their texts, one a run. For the end of the process.
  std::vector<std::string> untold();

 private:
  void raise(bool only_lost);
  void sort_out();  // under lock_

  std::mutex lock_;
  std::atomic<bool> any_{false};
  std::deque<std::shared_ptr<RunChecks>> pending_, failed_;
};

}  // namespace tpjrt::engine
