// DDP's times of a step, which its logger has for devices that are registered with one: those of the calls on the host, as a
// tensor of the device is computed where its collective reads it.
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
    if (!from || !to || *to < *from) return std::nullopt;  // not in this step, as in no_sync()
    return *to - *from;
  }
};

C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kPrivateUse1, PjrtTimer)

}  // namespace
}  // namespace c10d
