// Type promotion over a Call, in the three classes of at::native::ResultTypeState.
#include "ops/rule/promotion.h"

#include <c10/core/DefaultDtype.h>

namespace tpjrt::ops {

namespace {

using c10::ScalarType;

ScalarType promote(ScalarType a, ScalarType b) {
  if (a == ScalarType::Undefined) return b;
  if (b == ScalarType::Undefined) return a;
  return c10::promoteTypes(a, b);
}

ScalarType combine_categories(ScalarType higher, ScalarType lower) {
  if (c10::isComplexType(higher)) return higher;
  if (c10::isFloatingType(higher)) return c10::isComplexType(lower) ? c10::toComplexType(higher) : higher;
  if (higher == ScalarType::Bool || c10::isFloatingType(lower) || c10::isComplexType(lower)) {
    return promote(higher, lower);
  }
  return higher == ScalarType::Undefined ? lower : higher;
}

// Returns the dtype of a scalar: floats and complex numbers have the default dtype.
ScalarType of_number(ScalarType dtype) {
  const ScalarType floating = c10::get_default_dtype_as_scalartype();
  if (c10::isComplexType(dtype)) return c10::toComplexType(floating);
  if (c10::isFloatingType(dtype)) return floating;
  return dtype;
}

}  // namespace

ScalarType result_type(const Call& c, std::initializer_list<std::string_view> arguments) {
  ScalarType with_dims = ScalarType::Undefined, zero_dim = ScalarType::Undefined, number = ScalarType::Undefined;
  for (std::string_view name : arguments) {
    if (!c.has(name)) continue;
    const Argument& argument = c.argument(name);
    if (argument.kind == Argument::Kind::kScalar) {
      number = promote(number, of_number(argument.scalars.at(0).type()));
      continue;
    }
    const graph::TensorType& type = c.type(name);
    if (type.rank() > 0) {
      with_dims = promote(with_dims, type.dtype);
    } else if (c.is_wrapped_number(name)) {
      number = promote(number, of_number(type.dtype));
    } else {
      zero_dim = promote(zero_dim, type.dtype);
    }
  }
  return combine_categories(with_dims, combine_categories(zero_dim, number));
}

}  // namespace tpjrt::ops
