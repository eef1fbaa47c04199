// Runtime assertions of programs about their data, such as an index in range.
//
// Note [Runtime assertions]: eager CPU checks an index before it uses it. A program can't stop, and a check before its
// start would be a sync for every index. So a rule states an assertion (ops::Assertion), and the program returns the
// least and the greatest of the integers in question as one more result. An error belongs to the values that were
// computed from the call. Every read of such a value raises it, with the op and the user's line, and so does every read
// of a value computed from it later, until the value is overwritten completely. Other values are unaffected. If no
// value carries an error any more, because its tensors were freed or overwritten, the next read of any tensor raises it
// once; torch.pjrt.synchronize() raises errors that nobody has seen, and the end of the process warns of them.
// Meanwhile reads out of range are clamped, and writes dropped. Which results depend on which calls is computed once
// for each program (emit_program.h). A launch whose leaves carry no assertions and whose program has none pays
// one comparison for each leaf.
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

// One assertion of a program. Its two integers have its index in the program's last result.
struct ProgramAssertion {
  int64_t low = 0, high = 0;
  std::string message;
  ops::Raises raises = ops::Raises::kRuntimeError;
  std::string op, file;
  int line = 0;
  uint32_t call = 0;  // the call that asserts: its index in the walk that the program was made from
};
using AssertionList = std::shared_ptr<const std::vector<ProgramAssertion>>;

ProgramAssertion program_assertion(const ops::Assertion& assertion, const graph::Node& call);

class Check;
class Checks;
using ChecksPtr = std::shared_ptr<const Checks>;  // assertions that a value depends on; null: none

// The dependencies between the assertions of one graph.
struct AssertionOrder {
  std::vector<uint32_t> calls;              // for each assertion its call
  std::vector<std::vector<uint64_t>> bits;  // for each, bits of its call's leaves and assertions
  size_t first = 0;                         // the bit of the first assertion
  // Returns true if a failure of `second` may follow from a failure of `one`. A call reports one mistake.
  bool comes_of(uint32_t second, uint32_t one) const;
};

// Dependencies between the mistakes of a run.
struct Follows {
  std::shared_ptr<const AssertionOrder> within;
  std::vector<std::vector<ChecksPtr>>
      earlier;  // for each assertion, the checks of earlier runs that its call depends on; empty: none
};

// The assertions of one run: one program, or the interpreted calls of a graph. Thread-safe.
class RunChecks {
 public:
  RunChecks();
  // The run's number in this process.
  uint64_t number() const { return number_; }
  // Appends assertions. `extremes`: the least and the greatest integer of each, s64. Their numbers follow those added
  // before.
  void add(AssertionList list, std::shared_ptr<pjrt::Buffer> extremes);
  size_t size() const;
  // Returns true if all programs have ended. Never waits.
  bool is_done();
  // Returns true if an assertion is known to have failed. Never waits.
  bool any_failed();
  static constexpr uint32_t kNone = ~uint32_t{0};
  // Waits. Returns the first failed assertion, of all or of `which`; kNone if all hold.
  uint32_t first_failed();
  uint32_t first_failed(const std::vector<uint32_t>& which);
  // Raises the error of a failed assertion, which then counts as reported.
  [[noreturn]] void raise(uint32_t assertion);
  // Returns the first failed and unreported assertion that follows from no other mistake. With `only_lost`, it skips
  // assertions that some value still carries.
  uint32_t first_untold(bool only_lost);
  void set_all_reported();
  // Records that the values have their checks: from now on an assertion that no value carries is lost.
  void set_settled(Follows follows);
  std::string text(uint32_t assertion);

 private:
  friend class Check;
  struct Part {
    AssertionList list;
    std::shared_ptr<pjrt::Buffer> extremes;  // null once evaluated
    size_t first;                            // the number of the list's first
  };
  struct Failure {
    uint32_t assertion;
    std::exception_ptr error;
    bool reported = false;
  };
  void look(bool waits);                   // call under lock_
  bool is_of_another(uint32_t assertion);  // likewise
  const uint64_t number_;
  mutable std::mutex lock_;
  std::vector<Part> parts_;
  size_t size_ = 0, looked_at_ = 0;
  bool settled_ = false;
  Follows follows_;
  std::vector<Failure> failures_;
  std::vector<std::weak_ptr<const Check>> held_;
};

// The assertions of one run that some values depend on.
class Check {
 public:
  static std::shared_ptr<const Check> make(std::shared_ptr<RunChecks> run,
                                           std::shared_ptr<const std::vector<uint32_t>> which);
  RunChecks& run() const { return *run_; }
  const std::vector<uint32_t>& which() const { return *which_; }
  // Returns true if all are known to hold. Never waits.
  bool has_passed() const;

 private:
  Check(std::shared_ptr<RunChecks> run, std::shared_ptr<const std::vector<uint32_t>> which)
      : run_(std::move(run)), which_(std::move(which)) {}
  std::shared_ptr<RunChecks> run_;
  std::shared_ptr<const std::vector<uint32_t>> which_;
};

// All assertions that a value depends on, of this and earlier runs. Values with equal dependencies share one.
// Thread-safe.
class Checks {
 public:
  explicit Checks(std::vector<std::shared_ptr<const Check>> all) : all_(std::move(all)) {}
  // Returns true if all are known to hold. Never waits.
  bool have_passed() const;
  // Returns true if one is known to have failed. Never waits.
  bool have_failed() const;
  // Waits, and raises the first failure in the order of runs.
  void raise() const;
  const std::vector<std::shared_ptr<const Check>>& all() const { return all_; }

 private:
  std::vector<std::shared_ptr<const Check>> all_;
  mutable std::atomic<bool> passed_{false};
};

// The runs whose failures may be unreported. Thread-safe.
class Assertions {
 public:
  // Registers a program that was started. `run`: the run that it is part of; null: a new one.
  std::shared_ptr<RunChecks> started(AssertionList list, std::shared_ptr<pjrt::Buffer> extremes,
                                     std::shared_ptr<RunChecks> run);
  // Returns true if some run may have unreported failures.
  bool any() const { return any_; }
  // Raises the first unreported error of a finished program that no value carries any more. Never waits.
  void raise_lost() { raise(/*only_lost=*/true); }
  // Raises the first unreported error, whether or not a value carries it.
  void raise_unreported() { raise(/*only_lost=*/false); }
  // Returns the errors' texts, one a run, for the end of the process.
  std::vector<std::string> unreported();

 private:
  void raise(bool only_lost);
  void sort_out();  // call under lock_

  std::mutex lock_;
  std::atomic<bool> any_{false};
  std::deque<std::shared_ptr<RunChecks>> pending_, failed_;
};

}  // namespace tpjrt::engine
