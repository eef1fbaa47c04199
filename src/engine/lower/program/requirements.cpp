// Looking at what programs found out.
#include "engine/lower/program/requirements.h"

#include <c10/util/Exception.h>

#include "kernels/cpu/aten_call.h"

namespace tpjrt::engine {
namespace {

// A loop without a read keeps no more than this; the oldest are done long since.
constexpr size_t kMostPending = 1024;

[[noreturn]] void raise_unmet(const ProgramRequirement& unmet, int64_t value) {
  if (unmet.thrown) std::rethrow_exception(kernels::thrown(value));
  std::string text = unmet.message;
  if (const size_t at = text.find("{}"); at != text.npos) text.replace(at, 2, std::to_string(value));
  text += " ([" + unmet.op + "]";
  if (!unmet.file.empty()) text += ", first recorded at " + unmet.file + ":" + std::to_string(unmet.line);
  text += "; found when the program ran)";
  if (unmet.index_error) TORCH_CHECK_INDEX(false, text);
  TORCH_CHECK_LINALG(!unmet.linalg_error, text);
  TORCH_CHECK(false, text);
}

}  // namespace

ProgramRequirement program_requirement(const ops::Requirement& requirement, const graph::Signature& signature) {
  return {requirement.low,    requirement.high, requirement.message, requirement.index_error, requirement.linalg_error,
          requirement.thrown, signature.name,   signature.file,      signature.line};
}

void Requirements::started(List list, std::shared_ptr<pjrt::Buffer> extremes, uint64_t run) {
  std::lock_guard guard(lock_);
  pending_.push_back({std::move(list), std::move(extremes), run});
  if (pending_.size() > kMostPending) {
    try {
      pending_.front().extremes->await();
    } catch (const pjrt::Error&) {  // see raise()
      pending_.pop_front();
    }
  }
  any_ = true;
}

void Requirements::raise() {
  if (!any_) return;
  for (;;) {
    Pending done;
    {
      std::lock_guard guard(lock_);
      if (pending_.empty()) {
        any_ = false;
        return;
      }
      if (!pending_.front().extremes->is_ready()) return;  // programs end in the order of their start
      done = std::move(pending_.front());
      pending_.pop_front();
    }
    std::vector<int64_t> extremes(2 * done.list->size());
    try {
      done.extremes->copy_to_host(extremes.data(), extremes.size() * sizeof(int64_t));
      std::vector<int64_t> others(extremes.size());
      for (size_t rank = 1; rank < done.extremes->replicas(); ++rank) {  // of a world
        done.extremes->replica(rank).copy_to_host(others.data(), others.size() * sizeof(int64_t));
        for (size_t i = 0; i < extremes.size(); ++i) {
          extremes[i] = i % 2 == 0 ? std::min(extremes[i], others[i]) : std::max(extremes[i], others[i]);
        }
      }
    } catch (const pjrt::Error&) {
      continue;  // the program failed, which is told to whoever reads its results or waits for the device
    }
    for (size_t i = 0; i < done.list->size(); ++i) {
      const ProgramRequirement& requirement = (*done.list)[i];
      const int64_t least = extremes[2 * i], greatest = extremes[2 * i + 1];
      if (greatest < requirement.high && least >= requirement.low) continue;
      if (done.run) {
        std::lock_guard guard(lock_);
        std::erase_if(pending_, [&](const Pending& other) { return other.run == done.run; });
      }
      raise_unmet(requirement, greatest >= requirement.high ? greatest : least);
    }
  }
}

}  // namespace tpjrt::engine
