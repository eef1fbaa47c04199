// Reads TORCH_PJRT_WITHOUT.
#include "device/services/mechanisms.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

namespace tpjrt::device {
namespace {

constexpr std::array<std::string_view, 4> kNames{"loop_iterations", "steps_beside_optimizers", "eager_fast_path",
                                                 "loop_rerolling"};

uint32_t read_off() {
  uint32_t off = 0;
  const char* given = std::getenv("TORCH_PJRT_WITHOUT");
  for (std::string_view left = given ? given : ""; !left.empty();) {
    const std::string_view name = left.substr(0, left.find(','));
    left.remove_prefix(std::min(left.size(), name.size() + 1));
    const auto* at = std::find(kNames.begin(), kNames.end(), name);
    TORCH_CHECK_VALUE(at != kNames.end(), "TORCH_PJRT_WITHOUT: '", name, "' is no mechanism (docs/environment.md)");
    off |= 1U << (at - kNames.begin());
  }
  return off;
}

}  // namespace

bool is_on(Mechanism mechanism) {
  static const uint32_t off = read_off();
  return (off >> static_cast<uint32_t>(mechanism) & 1U) == 0;
}

}  // namespace tpjrt::device
