// Evaluates runtime assertions after programs have run.
#include "engine/lower/module/assertions.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "kernels/cpu/kept_call.h"

namespace tpjrt::engine {
namespace {

using ops::Raises;

// A loop without a read keeps at most this many runs. The oldest have long finished.
constexpr size_t kMostPending = 256;

std::exception_ptr error_of(const ProgramAssertion& failed, int64_t value) {
  if (failed.raises == Raises::kThrown) return kernels::thrown(value);
  std::string text = failed.message;
  if (const size_t at = text.find(ops::kIndexOfViolation); at != text.npos) {
    text.replace(at, ops::kIndexOfViolation.size(), std::to_string(value / ops::kViolations));
    value %= ops::kViolations;
  }
  const std::string number = std::to_string(value);
  for (size_t at = text.find("{}"); at != text.npos; at = text.find("{}", at + number.size()))
    text.replace(at, 2, number);
  text += " ([" + failed.op + "]";
  if (!failed.file.empty()) text += ", first recorded at " + failed.file + ":" + std::to_string(failed.line);
  text += "; found when the program ran)";
  try {
    switch (failed.raises) {
      case Raises::kIndexError: TORCH_CHECK_INDEX(false, text);
      case Raises::kValueError: TORCH_CHECK_VALUE(false, text);
      case Raises::kTypeError: TORCH_CHECK_TYPE(false, text);
      case Raises::kNotImplementedError: TORCH_CHECK_NOT_IMPLEMENTED(false, text);
      case Raises::kLinAlgError: TORCH_CHECK_LINALG(false, text);
      default: TORCH_CHECK(false, text);
    }
  } catch (const c10::Error&) {
    return std::current_exception();
  }
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& thrown) {
    return thrown.what_without_backtrace();
  } catch (const std::exception& thrown) {
    return thrown.what();
  }
}

// Returns the least and the greatest integer of each, or nothing if the program failed: reading its results raises.
std::vector<int64_t> extremes_in(const pjrt::Buffer& buffer, size_t count) {
  std::vector<int64_t> extremes(2 * count);
  try {
    buffer.copy_to_host(extremes.data(), extremes.size() * sizeof(int64_t));
    std::vector<int64_t> others(extremes.size());
    for (size_t rank = 1; rank < buffer.replicas(); ++rank) {  // in a world
      buffer.replica(rank).copy_to_host(others.data(), others.size() * sizeof(int64_t));
      for (size_t i = 0; i < extremes.size(); ++i) {
        extremes[i] = i % 2 == 0 ? std::min(extremes[i], others[i]) : std::max(extremes[i], others[i]);
      }
    }
  } catch (const pjrt::Error&) {
    return {};
  }
  return extremes;
}

}  // namespace

ProgramAssertion program_assertion(const ops::Assertion& assertion, const graph::Node& call) {
  const graph::Signature& signature = *call.signature;
  const bool is_assertion = signature.name == "torch_pjrt::require_zero";
  return {
      assertion.low,  assertion.high, assertion.message, assertion.raises, is_assertion ? "assertion" : signature.name,
      signature.file, signature.line, call.local};
}

bool AssertionOrder::comes_of(uint32_t second, uint32_t one) const {
  if (calls[one] == calls[second]) return one < second;
  const size_t bit = first + one;
  return (bits[second][bit / 64] >> bit % 64 & 1) != 0;
}

RunChecks::RunChecks()
    : number_([] {
        static std::atomic<uint64_t> last = 0;
        return ++last;
      }()) {}

void RunChecks::add(AssertionList list, std::shared_ptr<pjrt::Buffer> extremes) {
  const std::lock_guard guard(lock_);
  const size_t count = list->size();
  parts_.push_back({std::move(list), std::move(extremes), size_});
  size_ += count;
}

size_t RunChecks::size() const {
  const std::lock_guard guard(lock_);
  return size_;
}

void RunChecks::look(bool waits) {
  if (settled_ && looked_at_ == parts_.size() && failures_.empty()) follows_ = {};  // nothing failed that others follow
  for (; looked_at_ < parts_.size(); ++looked_at_) {
    Part& part = parts_[looked_at_];
    if (!waits && !part.extremes->is_ready()) return;
    const std::vector<int64_t> extremes = extremes_in(*part.extremes, part.list->size());
    part.extremes.reset();
    for (size_t i = 0; 2 * i < extremes.size(); ++i) {
      const ProgramAssertion& assertion = (*part.list)[i];
      const int64_t least = extremes[2 * i], greatest = extremes[2 * i + 1];
      if (greatest < assertion.high && least >= assertion.low) continue;
      failures_.push_back(
          {static_cast<uint32_t>(part.first + i), error_of(assertion, greatest >= assertion.high ? greatest : least)});
    }
  }
}

bool RunChecks::is_done() {
  const std::lock_guard guard(lock_);
  look(/*waits=*/false);
  return looked_at_ == parts_.size();
}

bool RunChecks::any_failed() {
  const std::lock_guard guard(lock_);
  look(/*waits=*/false);
  return !failures_.empty();
}

uint32_t RunChecks::first_failed() {
  const std::lock_guard guard(lock_);
  look(/*waits=*/true);
  return failures_.empty() ? kNone : failures_.front().assertion;
}

uint32_t RunChecks::first_failed(const std::vector<uint32_t>& which) {
  const std::lock_guard guard(lock_);
  look(/*waits=*/true);
  for (const Failure& failure : failures_) {
    if (std::ranges::binary_search(which, failure.assertion)) return failure.assertion;
  }
  return kNone;
}

void RunChecks::raise(uint32_t assertion) {
  std::exception_ptr error;
  {
    const std::lock_guard guard(lock_);
    for (Failure& failure : failures_) {
      if (failure.assertion != assertion) continue;
      failure.reported = true;
      error = failure.error;
    }
  }
  std::rethrow_exception(error);
}

void RunChecks::set_settled(Follows follows) {
  const std::lock_guard guard(lock_);
  settled_ = true;
  follows_ = std::move(follows);
}

bool RunChecks::is_of_another(uint32_t assertion) {
  if (!follows_.within) return false;
  const auto causes_it = [&](const Failure& failure) {
    return follows_.within->comes_of(assertion, failure.assertion);
  };
  if (std::ranges::any_of(failures_, causes_it)) return true;
  return !follows_.earlier.empty() &&
         std::ranges::any_of(follows_.earlier.at(assertion), [](const ChecksPtr& rest) { return rest->have_failed(); });
}

uint32_t RunChecks::first_untold(bool only_lost) {
  const std::lock_guard guard(lock_);
  if (only_lost && !settled_) return kNone;
  const auto is_held = [&](uint32_t assertion) {
    return std::ranges::any_of(held_, [&](const std::weak_ptr<const Check>& held) {
      const std::shared_ptr<const Check> check = held.lock();
      return check && std::ranges::binary_search(check->which(), assertion);
    });
  };
  for (const Failure& failure : failures_) {
    if (failure.reported || (only_lost && is_held(failure.assertion))) continue;
    if (!is_of_another(failure.assertion)) return failure.assertion;
  }
  return kNone;
}

void RunChecks::set_all_reported() {
  const std::lock_guard guard(lock_);
  for (Failure& failure : failures_) failure.reported = true;
}

std::string RunChecks::text(uint32_t assertion) {
  const std::lock_guard guard(lock_);
  for (const Failure& failure : failures_) {
    if (failure.assertion == assertion) return text_of(failure.error);
  }
  return {};
}

std::shared_ptr<const Check> Check::make(std::shared_ptr<RunChecks> run,
                                         std::shared_ptr<const std::vector<uint32_t>> which) {
  std::shared_ptr<const Check> check(new Check(run, std::move(which)));
  const std::lock_guard guard(run->lock_);
  std::erase_if(run->held_, [](const std::weak_ptr<const Check>& held) { return held.expired(); });
  run->held_.emplace_back(check);
  return check;
}

bool Check::has_passed() const { return run_->is_done() && run_->first_failed(*which_) == RunChecks::kNone; }

bool Checks::have_passed() const {
  if (passed_.load(std::memory_order_acquire)) return true;
  if (!std::ranges::all_of(all_, [](const auto& check) { return check->has_passed(); })) return false;
  passed_.store(true, std::memory_order_release);
  return true;
}

bool Checks::have_failed() const {
  return std::ranges::any_of(all_, [](const auto& check) { return check->run().is_done() && !check->has_passed(); });
}

void Checks::raise() const {
  if (passed_.load(std::memory_order_acquire)) return;
  for (const auto& check : all_) {
    const uint32_t failed = check->run().first_failed(check->which());
    if (failed != RunChecks::kNone) check->run().raise(failed);
  }
  passed_.store(true, std::memory_order_release);
}

std::shared_ptr<RunChecks> Assertions::started(AssertionList list, std::shared_ptr<pjrt::Buffer> extremes,
                                               std::shared_ptr<RunChecks> run) {
  const std::lock_guard guard(lock_);
  if (!run) run = std::make_shared<RunChecks>();
  const std::shared_ptr<pjrt::Buffer> last = extremes;
  run->add(std::move(list), std::move(extremes));
  if (pending_.empty() || pending_.back() != run) pending_.push_back(run);
  any_ = true;
  if (pending_.size() > kMostPending) {
    (void)pending_.front()->first_failed();  // waits
    sort_out();
  }
  return run;
}

void Assertions::sort_out() {
  while (!pending_.empty() && pending_.front()->is_done()) {  // programs end in the order of their start
    if (pending_.front()->any_failed()) failed_.push_back(pending_.front());
    pending_.pop_front();
  }
  std::erase_if(failed_, [](const auto& run) { return run->first_untold(/*only_lost=*/false) == RunChecks::kNone; });
  any_ = !pending_.empty() || !failed_.empty();
}

void Assertions::raise(bool only_lost) {
  if (!any_) return;
  std::shared_ptr<RunChecks> run;
  uint32_t lost = RunChecks::kNone;
  {
    const std::lock_guard guard(lock_);
    sort_out();
    for (const auto& failed : failed_) {
      lost = failed->first_untold(only_lost);
      if (lost == RunChecks::kNone) continue;
      run = failed;
      break;
    }
  }
  if (!run) return;
  run->raise(lost);
}

std::vector<std::string> Assertions::unreported() {
  const std::lock_guard guard(lock_);
  sort_out();
  std::vector<std::string> texts;
  for (const auto& run : failed_) texts.push_back(run->text(run->first_untold(/*only_lost=*/false)));
  return texts;
}

}  // namespace tpjrt::engine
