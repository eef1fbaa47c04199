// Counts, and sums up, under a lock.
#include "device/services/counters.h"

#include <mutex>

namespace tpjrt::device {

Counters& counters() {
  static auto* instance = new Counters;
  return *instance;
}

bool Counters::count_fallback(const std::string& op) {
  std::lock_guard guard(lock_);
  fallbacks_[op]++;
  return warned_.insert(op).second;
}

std::map<std::string, uint64_t> Counters::fallbacks() const {
  std::lock_guard guard(lock_);
  return fallbacks_;
}

void Counters::count_exchange(const std::string& op, uint64_t bytes) {
  std::lock_guard lock(lock_);
  Exchange& counted = exchanges_[op];
  ++counted.calls;
  counted.bytes += bytes;
}

std::map<std::string, Counters::Exchange> Counters::exchanges() const {
  std::lock_guard lock(lock_);
  return exchanges_;
}

double Counters::record_seconds() const {
  return (static_cast<double>(plan_ns.load()) +
          static_cast<double>(kTimedEvery) * static_cast<double>(timed_ns.load())) *
         1e-9;
}

void Counters::reset() {
  std::lock_guard guard(lock_);
  fallbacks_.clear();
  exchanges_.clear();
  ops_recorded = 0;
  host_transfer_bytes = 0;
  plan_ns = timed_ns = 0;
}

}  // namespace tpjrt::device
