// Keys of a group's store: "torch_pjrt/waits/<which collective>/<rank>".
#include "device/process_group/late_ranks.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <utility>

#include "device/services/finished_work.h"
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
    const auto* ours = dynamic_cast<const c10::Error*>(&error);
    return std::string("who is late is not known, as the group's store doesn't answer (") +
           (ours ? ours->what_without_backtrace() : error.what()) + ")";
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

void HostGroup::check(const std::string& op) const {
  TORCH_CHECK(interrupted.empty(), "[", op, "] an earlier collective of this group (", interrupted,
              ") was interrupted while it waited for other ranks, which may be at that one still; end the group on all "
              "ranks (torch.distributed.destroy_process_group) and begin anew");
}

void await(c10d::Work& work, const std::string& op, HostGroup& group) {
  constexpr std::chrono::milliseconds kSlice{50};
  WaitForRanks wait(group.attendance, op);
  const auto is_done = [&] {
    const auto start = std::chrono::steady_clock::now();
    try {
      return work.wait(kSlice);
    } catch (const std::exception&) {
      // An error before the end of the slice is the collective's own. Work that has failed is not always completed.
      return work.isCompleted() || std::chrono::steady_clock::now() - start < kSlice / 2;
    }
  };
  while (!is_done()) {
    try {
      wait.go_on();
    } catch (...) {
      group.interrupted = op;
      throw;
    }
  }
  try {
    work.wait(kNoTimeout);
  } catch (const std::exception& error) {
    if (!group.attendance) throw;
    const std::string absent = wait.absent();
    TORCH_CHECK(!absent.empty(), "[", op, "] ", error.what(), "\nRank ", group.attendance->own,
                " waited for the others of ranks ", c10::IntArrayRef(group.attendance->ranks),
                ": see whether one of them has ended");
    TORCH_CHECK(false, "[", op, "] ", error.what(), "\nAt the end of that wait ", absent,
                ". All ranks of a group have to call its collectives, in one order; where they need longer, "
                "init_process_group(timeout=...) says how long they are waited for");
  }
}

void throw_with_rank(const std::string& op, const HostGroup& group, int peer, const std::exception& error) {
  const auto* ours = dynamic_cast<const c10::Error*>(&error);
  const char* text = ours ? ours->what_without_backtrace() : error.what();
  TORCH_CHECK(group.attendance, "[", op, "] ", text);
  const std::vector<int64_t>& ranks = group.attendance->ranks;
  std::ostringstream other;
  if (peer >= 0 && static_cast<size_t>(peer) < ranks.size()) {
    other << "rank " << ranks[static_cast<size_t>(peer)];
  } else {
    other << "any of ranks " << c10::IntArrayRef(ranks);
  }
  TORCH_CHECK(false, "[", op, "] ", text, "\nRank ", group.attendance->own, " waited for ", other.str(),
              ": see whether it has ended, or calls the other half of this");
}

void check_agreement(c10d::Backend& host, const std::string& op, const std::string& call, HostGroup& group) {
  if (host.getSize() == 1) return;
  const at::DisableRecordFunctionGuard unprofiled;  // a profile has the user's collectives
  // Ranks whose hashes differ would have to draw their mean to miss it. gloo sends one element in fewer messages.
  const auto own = static_cast<int64_t>(std::hash<std::string>()(call) >> 16);
  Tensors sum{at::tensor({own})};
  await(*host.allreduce(sum, {}), op, group);
  if (*sum[0].const_data_ptr<int64_t>() == own * host.getSize()) return;

  constexpr int64_t kLongest = 500;
  Tensors text{at::zeros({kLongest}, at::kByte)}, texts{at::zeros({host.getSize() * kLongest}, at::kByte)};
  std::copy_n(call.begin(), std::min<size_t>(call.size(), kLongest - 1), text[0].mutable_data_ptr<uint8_t>());
  await(*host._allgather_base(texts[0], text[0], {}), op, group);
  std::map<std::string, std::vector<int64_t>> ranks;
  for (int64_t i = 0; i < host.getSize(); ++i) {
    const auto* other = reinterpret_cast<const char*>(texts[0].const_data_ptr<uint8_t>() + i * kLongest);
    ranks[other].push_back(group.attendance ? group.attendance->ranks.at(static_cast<size_t>(i)) : i);
  }
  std::ostringstream out;
  for (const auto& [other, which] : ranks) out << "\n  ranks " << c10::IntArrayRef(which) << ": " << other;
  TORCH_CHECK(false, "[", op, "] the ranks of a group call different collectives:", out.str(),
              "\nAll ranks of a group have to call its collectives in one order, with tensors of the same dtypes and "
              "sizes. Nothing was sent, and the group can go on");
}

}  // namespace tpjrt::device
