// Keys of a group's store: "torch_pjrt/waits/<which collective>/<rank>".
#include "device/host/late_ranks.h"

#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "device/services/python_hooks.h"

namespace tpjrt::device {
namespace {

using Seconds = std::chrono::duration<double>;

thread_local WaitForRanks* innermost = nullptr;

}  // namespace

std::chrono::duration<double> patience() {
  static const Seconds seconds = [] {
    const char* reported = std::getenv("TORCH_PJRT_COLLECTIVE_WARN_SECONDS");
    return Seconds(reported && *reported ? std::atof(reported) : 10);
  }();
  return seconds;
}

void Waiting::go_on(const std::function<std::string()>& line) {
  check_signals();
  if (is_reported_ || patience() <= Seconds(0) || lasts() < patience()) return;
  is_reported_ = true;
  inform("torch_pjrt.distributed", line());
}

WaitForRanks::WaitForRanks(Attendance* attendance, std::string op)
    : attendance_(attendance), outer_(std::exchange(innermost, this)), op_(std::move(op)) {
  if (attendance_) number_ = ++attendance_->begun;
}

WaitForRanks::~WaitForRanks() { innermost = outer_; }

WaitForRanks* WaitForRanks::current() { return innermost; }

std::string WaitForRanks::key(int64_t rank) const {
  return "torch_pjrt/waits/" + std::to_string(number_) + "/" + std::to_string(rank);
}

std::string WaitForRanks::absent() {
  if (!is_noted_) return "";
  std::vector<int64_t> late;
  try {
    for (const int64_t rank : attendance_->ranks) {
      if (rank != attendance_->own && !attendance_->store->check({key(rank)})) late.push_back(rank);
    }
  } catch (const std::exception& error) {
    return std::string("who is late is not known, as the group's store doesn't answer (") + error.what() + ")";
  }
  std::ostringstream out;
  if (late.empty()) {
    out << "all ranks have come";
  } else {
    out << "ranks " << c10::IntArrayRef(late) << " of " << c10::IntArrayRef(attendance_->ranks) << " have not come";
  }
  return out.str();
}

void WaitForRanks::go_on() {
  if (!attendance_) return check_signals();
  const bool is_ever_reported = patience() > Seconds(0);
  if (!is_noted_ && is_ever_reported && waiting_.lasts() >= std::min(Seconds(1), patience() / 2)) {
    is_noted_ = true;
    try {
      attendance_->store->set(key(attendance_->own), std::string("waits"));
    } catch (const std::exception&) {  // absent() then reports that the store doesn't answer
    }
  }
  waiting_.go_on([&] {
    std::ostringstream line;
    const Location where = user_location();
    line.precision(2);
    line << "rank " << attendance_->own << " has waited " << waiting_.lasts().count() << " s for " << op_;
    if (!where.file.empty()) line << " (" << where.file << ":" << where.line << ")";
    line << ": " << absent()
         << ". All ranks of a group have to call its collectives, in one order; see what those do that are late";
    return line.str();
  });
}

}  // namespace tpjrt::device
