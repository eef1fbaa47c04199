// Trials: the CPU's kernel is called on small tensors, because it alone knows which calls it refuses where Meta
// accepts everything.
#pragma once

#include <c10/util/ArrayRef.h>

#include "graph/scalar_value.h"
#include "graph/signature.h"

namespace tpjrt::device {

// Both functions throw an error that the CPU's kernel raises for the call but not for a harmless variant of it. They
// return silently if the kernel can't be tried on tensors of ones.

// In the harmless variant, the mutated arguments have the dtypes `written`, which are those of the functional op's
// results.
void check_out_dtypes(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars,
                      c10::ArrayRef<c10::ScalarType> written);

// In the harmless variant, these numbers are 1.
void check_scalars(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars,
                   c10::ArrayRef<uint32_t> fitted);

}  // namespace tpjrt::device
