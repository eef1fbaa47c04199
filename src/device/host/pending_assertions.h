// The user's assertions (_assert_async) that no read has checked yet.
//
// An assertion is recorded as an op whose result no other op needs, so it would never be computed. The results are
// therefore kept here, and the next read computes them along with its own value: an assertion cuts no graph, and
// raises at that read if it does not hold.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace tpjrt::device {

// Adds `asserted`, the result of _functional_assert_async.
void add_assertion(at::Tensor asserted);
// Returns the assertions that are not computed yet, and forgets the others.
std::vector<at::Tensor> pending_assertions();

}  // namespace tpjrt::device
