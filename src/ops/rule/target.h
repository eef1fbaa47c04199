// Whose compiler a program is for.
#pragma once

#include <cstdint>

namespace tpjrt::ops {

enum class Target : uint8_t {
  kAny,  // the plain StableHLO, which every platform takes
  kCpu,  // XLA:CPU; what it is slow at, or wrong, stands in ops/cpu
};

}  // namespace tpjrt::ops
