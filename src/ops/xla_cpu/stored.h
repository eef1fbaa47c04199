// Decides which values of a program XLA:CPU keeps in memory.
//
// Note [Stored values]: XLA:CPU fuses a value into each of its readers, and computes it again for each. A layer
// norm's gradient reads its incoming gradient three times, which is the next norm's, so the time of a step and of its
// compile grows with the square of the depth. The text of a program therefore says what is stored, by one rule: a
// value goes through a call that is opaque to XLA if it is computed by arithmetic, more than one kernel reads it, and
// it costs more than a few additions and reads (kLeastCost). The call returns it in the same memory: a microsecond,
// and no copy. Readers start from there, so a value computed from it is cheap again, and a chain is cut where it has
// become long. A chain that one kernel computes is cut where its loop becomes too long for the instruction cache
// (kLongestChain).
//
// The graph says which kernels read a value. If all its readers are fused into one statement, its immediate
// post-dominator, the value is stored there if at all. The rule covers what autograd saves, a softmax's exponentials
// and the gates of an unrolled cell without naming them. It applies to programs that may call kernels
// (Target::kCpuWithKernels). Other programs have Emit::computed_once, with which a rule marks a value that is read
// often.
#pragma once

#include <string>

#include "ops/rule/backend_lowerings.h"

namespace tpjrt::ops {

// Returns the module with the stores that are worth it. `is_nhwc`: images are NHWC, and left to XLA.
std::string with_stored_values(std::string module, Target target, bool is_nhwc);

}  // namespace tpjrt::ops
