// The user's assertions (_assert_async) that no read has checked yet.
//
// An assertion is recorded as an op whose result nobody needs, and what nobody needs is not computed. So results are kept here, and the
// next read computes them with what it reads: an assertion cuts no graph, and raises at that read if it does not hold.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace tpjrt::device {

// `asserted`: the result of _functional_assert_async.
void add_assertion(at::Tensor asserted);
// Returns the assertions that are not computed, and forgets the others.
std::vector<at::Tensor> pending_assertions();

}  // namespace tpjrt::device
