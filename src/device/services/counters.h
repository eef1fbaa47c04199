// Counters of recording, for torch_pjrt.metrics(). The engine has counters of its own.
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
  // Nanoseconds spent in recording: first calls of a kind are all timed, of the others one in kTimedEvery.
  std::atomic<int64_t> plan_ns{0}, timed_ns{0};
  static constexpr uint64_t kTimedEvery = 61;  // a prime, so that a loop of equal steps is sampled everywhere
  double record_seconds() const;

  bool count_fallback(const std::string& op);  // true the first time this process sees the op
  std::map<std::string, uint64_t> fallbacks() const;
  // Collectives of this process that went through the host: the number of calls of an op, and the bytes that it sent.
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
