// Trials: the CPU's kernel is called on small tensors, because it alone knows what it refuses where Meta takes everything.
#pragma once

#include <c10/util/ArrayRef.h>

#include "graph/number.h"
#include "graph/signature.h"

namespace tpjrt::device {

// Both raise what the CPU's kernel raises for the call but not for a harmless variant of it. They give no verdict where no
// tensors of ones suit the kernel.

// The harmless variant writes to tensors of the dtypes `written`, which are the functional op's; one for each mutated argument.
void check_out_dtypes(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers,
                      c10::ArrayRef<c10::ScalarType> written);

// The harmless variant has 1 in the place of these numbers.
void check_scalars(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers,
                   c10::ArrayRef<uint32_t> scalars);

}  // namespace tpjrt::device
