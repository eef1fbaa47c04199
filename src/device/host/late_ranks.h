// Who of a group has not come to a collective yet, told by those who wait for them.
//
// That ranks say where they are would cost each collective a message. Only who has waited for long says so, in the store in
// which the group met, and sees there who waits as well: the others are late.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tpjrt::device {

// How long others are waited for before it is told: TORCH_PJRT_LATE, in seconds. None: it is never told.
std::chrono::duration<double> patience();

// A wait for other ranks, which is told once.
class Waiting {
 public:
  std::chrono::duration<double> lasts() const { return std::chrono::steady_clock::now() - start_; }
  // For whoever waits, each 50 ms or so: throws what a signal's handler raises, and tells `line` when patience() is over.
  void go_on(const std::function<std::string()>& line);

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool is_told_ = false;
};

// Of one group: how many collectives this rank has begun. On any thread.
struct Attendance {
  c10::intrusive_ptr<c10d::Store> store;  // the group's own keys
  std::vector<int64_t> ranks;
  int64_t own = 0;  // this one, of them
  std::atomic<uint64_t> begun{0};
};

// One collective that this thread waits for, while it lives.
class WaitForRanks {
 public:
  // `attendance` outlives it; null: of a group of which nothing is known.
  WaitForRanks(Attendance* attendance, std::string op);
  ~WaitForRanks();
  WaitForRanks(const WaitForRanks&) = delete;
  WaitForRanks& operator=(const WaitForRanks&) = delete;
  // This thread's innermost; null: none.
  static WaitForRanks* current();

  // As Waiting's, of those that have not come.
  void go_on();
  // "ranks [1, 2] of [0, 1, 2, 3] have not come"; empty where it was not long enough, or is not known.
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

}  // namespace tpjrt::device
