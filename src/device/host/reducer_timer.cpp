// DDP's timings of a step, for the logger of devices that register a timer. They are the times of the calls on the
// host, because a tensor of the device is computed when its collective reads it.
#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <memory>
#include <optional>

namespace c10d {
namespace {

class PjrtTimer final : public Timer {
 public:
  explicit PjrtTimer(c10::Device) {}

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const auto from = getTimestamp(start), to = getTimestamp(end);
    if (!from || !to || *to < *from) return std::nullopt;  // not recorded in this step, as in no_sync()
    return *to - *from;
  }
};

C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kPrivateUse1, PjrtTimer)

}  // namespace
}  // namespace c10d
