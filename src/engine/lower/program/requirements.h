// What programs found out about their data that the user has to know: an index out of range.
//
// Note [Requirements]: eager CPU looks at an index before it uses it. A program can't stop, and to look first would be a sync
// for every index. So a rule states what it requires (ops::Requirement), the program gives the least and the greatest of
// the integers in question as one more result, and the error is raised as soon as somebody waits for results: at the
// read, with the op and the user's line, as CUDA's device asserts do, but the device works on. Until then reads out of
// range were clamped into it, and writes dropped. A run tells of one mistake, by calls too: the others may follow from it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "graph/signature.h"
#include "ops/rule/emit.h"
#include "pjrt/buffer.h"

namespace tpjrt::engine {

// One requirement of a program. Its two integers are at the same place in the program's last result.
struct ProgramRequirement {
  int64_t low = 0, high = 0;
  std::string message;
  bool index_error = false, linalg_error = false, thrown = false;
  std::string op, file;
  int line = 0;
};

ProgramRequirement program_requirement(const ops::Requirement& requirement, const graph::Signature& signature);

// The programs under way whose requirements nobody has looked at. Thread-safe.
class Requirements {
 public:
  using List = std::shared_ptr<const std::vector<ProgramRequirement>>;
  // A number for programs that are one run together, as the calls of a graph that are run one by one.
  uint64_t new_run() { return ++runs_; }
  // `extremes`: least and greatest of each, s64. `run`: 0 of a program that is one by itself.
  void started(List list, std::shared_ptr<pjrt::Buffer> extremes, uint64_t run);
  // Is there anything to be looked at?
  bool any() const { return any_; }
  // Raises the first that is not met by a program that is done, and forgets those that are met, and what of the same run comes
  // behind it: that computes with numbers that are none. Never waits for a program.
  void raise();

 private:
  std::mutex lock_;
  std::atomic<bool> any_{false};
  struct Pending {
    List list;
    std::shared_ptr<pjrt::Buffer> extremes;
    uint64_t run;
  };
  std::deque<Pending> pending_;
  std::atomic<uint64_t> runs_{0};
};

}  // namespace tpjrt::engine
