// What products of matrices and vectors are emitted as, by platform.
#pragma once

#include "ops/rule/emit.h"

namespace tpjrt::ops {

// a and b, of one dtype, contracted as `dims` say, accumulated in `out`.
using Product = Value (*)(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims, ElementType out);

Value product_on_cpu(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims,
                     ElementType out);  // ops/cpu/product.cpp

}  // namespace tpjrt::ops
