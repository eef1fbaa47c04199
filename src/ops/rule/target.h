// The compiler that a program is for.
#pragma once

#include <cstdint>

namespace tpjrt::ops {

enum class Target : uint8_t {
  kAny,             // plain StableHLO, which every platform takes
  kCpu,             // XLA:CPU; ops/xla_cpu replaces its slow or wrong lowerings
  kCuda,            // XLA:GPU on NVIDIA's GPUs
  kCpuWithKernels,  // XLA:CPU, in programs that may call the handlers of src/kernels/cpu (Emit::call_kernel)
};

inline bool is_cpu(Target target) { return target == Target::kCpu || target == Target::kCpuWithKernels; }

}  // namespace tpjrt::ops
