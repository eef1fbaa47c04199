// Reports which ranks of a group have not come to a collective yet, from the ranks that wait for them, and which call
// another one.
//
// A message to the store in each collective would be too expensive. Only a rank that has waited for long writes to
// the store through which the group was formed, and sees there which ranks wait as well: the others are late.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace tpjrt::device {

// Returns how long a rank waits before it reports others as late: TORCH_PJRT_COLLECTIVE_WARN_SECONDS, in seconds. 0 means never.
std::chrono::duration<double> patience();

// A wait for other ranks, which is reported once.
class Waiting {
 public:
  std::chrono::duration<double> lasts() const { return std::chrono::steady_clock::now() - start_; }
  // To be called while waiting, about every 50 ms: throws exceptions of signal handlers, and logs `line` when
  // patience() is over.
  void go_on(const std::function<std::string()>& line);

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool is_reported_ = false;
};

// How many collectives of one group this rank has begun. May be used from any thread.
struct Attendance {
  c10::intrusive_ptr<c10d::Store> store;  // the group's own keys
  std::vector<int64_t> ranks;
  int64_t own = 0;  // this rank's index among them
  std::atomic<uint64_t> begun{0};
};

// One collective that this thread waits for while it lives.
class WaitForRanks {
 public:
  // `attendance` outlives this; null for a group of unknown ranks.
  WaitForRanks(Attendance* attendance, std::string op);
  ~WaitForRanks();
  WaitForRanks(const WaitForRanks&) = delete;
  WaitForRanks& operator=(const WaitForRanks&) = delete;
  // Returns this thread's innermost wait; null if there is none.
  static WaitForRanks* current();

  // Waiting::go_on, with a line about the absent ranks.
  void go_on();
  // Returns "ranks [1, 2] of [0, 1, 2, 3] have not come"; empty if the wait was short, or the ranks are unknown.
  std::string absent();

 private:
  std::string key(int64_t rank) const;

  Attendance* attendance_;
  WaitForRanks* outer_;
  std::string op_;
  uint64_t number_ = 0;
  Waiting waiting_;
  bool is_noted_ = false;
};

// A group's state, shared by its calls.
struct HostGroup {
  Attendance* attendance = nullptr;  // null: its ranks are unknown
  std::string interrupted;           // the call that Ctrl-C ended during a wait for other ranks

  // Raises if the group is out of step.
  void check(const std::string& op) const;
};

// Waits for other ranks in slices, to notice Ctrl-C and to report ranks that are late.
void await(c10d::Work& work, const std::string& op, HostGroup& group);
// Throws `error` of a call with one rank of the group, `peer` (negative: any), with the names of both.
[[noreturn]] void throw_with_rank(const std::string& op, const HostGroup& group, int peer, const std::exception& error);

// Raises on all ranks if their `call`s differ: gloo itself would wait, or write to some of the results. Costs an
// all_reduce of an integer.
void check_agreement(c10d::Backend& host, const std::string& op, const std::string& call, HostGroup& group);

}  // namespace tpjrt::device
