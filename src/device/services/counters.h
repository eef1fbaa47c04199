// What is counted while recording, for torch_pjrt.metrics(). The engine has counters of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace tpjrt::device {

struct Counters {
  std::atomic<uint64_t> ops_recorded{0};
  std::atomic<uint64_t> host_transfer_bytes{0};
  // Spent in recording: first calls of a kind are timed, of the others one in kTimedEvery.
  std::atomic<int64_t> plan_ns{0}, timed_ns{0};
  static constexpr uint64_t kTimedEvery = 61;  // a prime: a loop of many equal steps is met everywhere
  double record_seconds() const;

  bool count_fallback(const std::string& op);  // true the first time this process sees the op
  std::map<std::string, uint64_t> fallbacks() const;
  // What this process took part in with others, by way of the host: calls of an op, and the bytes that it gave.
  struct Exchange {
    uint64_t calls = 0, bytes = 0;
  };
  void count_exchange(const std::string& op, uint64_t bytes);
  std::map<std::string, Exchange> exchanges() const;
  void reset();

 private:
  mutable std::mutex lock_;
  std::map<std::string, uint64_t> fallbacks_;
  std::map<std::string, Exchange> exchanges_;
  std::set<std::string> warned_;  // survives reset(): a warning is given once
};

Counters& counters();

}  // namespace tpjrt::device
