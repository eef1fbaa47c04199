// Which values of a program XLA:CPU keeps in memory.
//
// Note [Stored values]: XLA:CPU fuses a value into each of its readers, and computes it again for each. A layer norm's gradient
// reads its incoming gradient three times, which is the next norm's, so that a step's time grows with the square of its depth, and
// the time to compile it as well. So the text of a program says what is stored, by one rule: a value that is computed by arithmetic,
// that more than one kernel reads, and that costs more than a few additions and reads (kLeastCost), is given to a call that XLA
// knows nothing of. The call gives it back in the memory where it lies: a microsecond, and no copy. Whoever reads it begins from there,
// so what is computed from it is cheap again, and a chain is cut where it has become long. A chain that one kernel computes is cut
// where its loop becomes too long for the instruction cache (kLongestChain).
//
// Which kernels read a value is asked of the graph: where all its readers are fused into one, its immediate post-dominator, it is
// on the way there, and stored there if at all. What autograd saves, a softmax's exponentials and the gates of an unrolled cell come
// under the rule without being named. It is for programs that may call kernels (Target::kCpuWithKernels); others have
// Emit::computed_once, by which a rule says itself what is read often.
#pragma once

#include <string>

#include "ops/rule/target.h"

namespace tpjrt::ops {

// The module, in which what is worth it is stored. `images_last`: images lie with the channels last, and are left to XLA.
std::string with_stored_values(std::string module, Target target, bool images_last);

}  // namespace tpjrt::ops
