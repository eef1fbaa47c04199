// Whose compiler a program is for.
#pragma once

#include <cstdint>

namespace tpjrt::ops {

enum class Target : uint8_t {
  kAny,             // the plain StableHLO, which every platform takes
  kCpu,             // XLA:CPU; what it is slow at, or wrong, stands in ops/cpu
  kCuda,            // XLA:GPU on NVIDIA's
  kCpuWithKernels,  // the same, whose programs may call the handlers of src/kernels/cpu (Emit::call_kernel)
};

inline bool is_cpu(Target target) { return target == Target::kCpu || target == Target::kCpuWithKernels; }

}  // namespace tpjrt::ops
