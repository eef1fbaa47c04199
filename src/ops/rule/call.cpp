// Access to a call's arguments, and conversion between dtypes and StableHLO's element types. Type promotion over a
// Call, in the three classes of at::native::ResultTypeState.
#include "ops/rule/call.h"

#include <c10/core/DefaultDtype.h>

#include <algorithm>

#include "ops/rule/dims.h"
#include "ops/rule/emit.h"

namespace tpjrt::ops {

ElementType element_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Bool: return ElementType::kPred;
    case c10::ScalarType::Char: return ElementType::kS8;
    case c10::ScalarType::Short: return ElementType::kS16;
    case c10::ScalarType::Int: return ElementType::kS32;
    case c10::ScalarType::Long: return ElementType::kS64;
    case c10::ScalarType::Byte: return ElementType::kU8;
    case c10::ScalarType::UInt16: return ElementType::kU16;
    case c10::ScalarType::UInt32: return ElementType::kU32;
    case c10::ScalarType::UInt64: return ElementType::kU64;
    case c10::ScalarType::Float8_e4m3fn: return ElementType::kF8E4M3FN;
    case c10::ScalarType::Float8_e4m3fnuz: return ElementType::kF8E4M3FNUZ;
    case c10::ScalarType::Float8_e5m2: return ElementType::kF8E5M2;
    case c10::ScalarType::Float8_e5m2fnuz: return ElementType::kF8E5M2FNUZ;
    case c10::ScalarType::Float8_e8m0fnu: return ElementType::kF8E8M0FNU;
    case c10::ScalarType::Half: return ElementType::kF16;
    case c10::ScalarType::BFloat16: return ElementType::kBF16;
    case c10::ScalarType::Float: return ElementType::kF32;
    case c10::ScalarType::Double: return ElementType::kF64;
    case c10::ScalarType::ComplexFloat: return ElementType::kC64;
    case c10::ScalarType::ComplexDouble: return ElementType::kC128;
    default: throw Unsupported(std::string("dtype ") + c10::toString(dtype) + " has no counterpart in StableHLO");
  }
}

c10::ScalarType dtype_of(ElementType element) {
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    auto dtype = static_cast<c10::ScalarType>(i);
    try {
      if (element_of(dtype) == element) return dtype;
    } catch (const Unsupported&) {
    }
  }
  throw std::logic_error("an element type without a torch dtype");
}

namespace {

[[noreturn]] void wrong(const Call& call, std::string_view argument, std::string_view what) {
  throw std::logic_error("[" + call.name + "] argument '" + std::string(argument) + "' " + std::string(what));
}

int64_t wrap(std::string_view argument, int64_t dim, int64_t rank) {
  const int64_t n = std::max<int64_t>(rank, 1);
  if (dim < -n || dim >= n) throw Mistake(std::string(argument) + " is out of range: " + std::to_string(dim));
  return dim < 0 ? dim + n : dim;
}

}  // namespace

const Argument& Call::argument(std::string_view wanted) const {
  for (const Argument& argument : arguments) {
    if (argument.name == wanted) return argument;
  }
  wrong(*this, wanted, "is not in the schema");
}

bool Call::has(std::string_view wanted) const {
  for (const Argument& argument : arguments) {
    if (argument.name != wanted) continue;
    if (argument.kind == Argument::Kind::kTensor) return !argument.tensors.empty() && argument.tensors[0].id >= 0;
    return argument.kind != Argument::Kind::kNone;
  }
  return false;
}

Value Call::tensor(std::string_view name) const {
  const Argument& a = argument(name);
  if (a.kind != Argument::Kind::kTensor || a.tensors.empty() || !a.tensors[0]) wrong(*this, name, "is not a tensor");
  return a.tensors[0];
}

std::optional<Value> Call::optional_tensor(std::string_view name) const {
  if (!has(name)) return std::nullopt;
  return tensor(name);
}

Values Call::tensors(std::string_view name) const {
  const Argument& a = argument(name);
  if (a.kind == Argument::Kind::kNone) return {};
  if (a.kind != Argument::Kind::kTensorList && a.kind != Argument::Kind::kTensor)
    wrong(*this, name, "is not a list of tensors");
  return a.tensors;
}

const graph::TensorType& Call::type(std::string_view name) const {
  const Argument& a = argument(name);
  if (a.types.empty() || !a.types[0]) wrong(*this, name, "is not a tensor");
  return *a.types[0];
}

bool Call::is_wrapped_number(std::string_view name) const {
  const Argument& a = argument(name);
  return !a.wrapped_number.empty() && a.wrapped_number[0];
}

Value Call::scalar(Emit& e, std::string_view name, ElementType element) const {
  const Argument& a = argument(name);
  switch (a.kind) {
    case Argument::Kind::kTensor: return e.to(tensor(name), element);
    case Argument::Kind::kInt:
    case Argument::Kind::kBool: return e.constant(a.ints.at(0), {element, {}});
    case Argument::Kind::kDouble: return e.constant(a.doubles.at(0), {element, {}});
    case Argument::Kind::kScalar: break;
    default: wrong(*this, name, "is not a Scalar");
  }
  const bool is_pinned = a.pinned && !a.pinned->empty() && (*a.pinned)[0];
  if (!is_pinned && !a.scalar_values.empty() && a.scalar_values[0]) return e.to(a.scalar_values[0], element);
  const c10::Scalar& value = a.scalars.at(0);
  if (value.isComplex()) {
    auto z = value.toComplexDouble();
    if (hlo::is_complex(element)) return e.constant_complex(z.real(), z.imag(), {element, {}});
    return e.constant(z.real(), {element, {}});
  }
  if (value.isFloatingPoint()) return e.constant(value.toDouble(), {element, {}});
  if (value.type() == c10::ScalarType::UInt64) return e.constant_u64(value.toUInt64(), {element, {}});
  return e.constant(value.toLong(), {element, {}});
}

c10::Scalar Call::constant_scalar(std::string_view name) const {
  const Argument& a = argument(name);
  switch (a.kind) {
    case Argument::Kind::kInt: return a.ints.at(0);
    case Argument::Kind::kBool: return a.ints.at(0) != 0;
    case Argument::Kind::kDouble: return a.doubles.at(0);
    case Argument::Kind::kScalar: break;
    default: wrong(*this, name, "is not a Scalar");
  }
  if (a.pinned) {
    if (a.pinned->empty()) a.pinned->resize(1);
    (*a.pinned)[0] = true;
  }
  return a.scalars.at(0);
}

double Call::seen(std::string_view name) const {
  const Argument& a = argument(name);
  if (a.kind != Argument::Kind::kScalar) return real(name);
  if (a.varies) wrong(*this, name, "varies");
  return a.scalars.at(0).toDouble();
}

int64_t Call::integer(std::string_view name) const {
  const Argument& a = argument(name);
  if (a.kind == Argument::Kind::kScalar) return constant_scalar(name).toLong();
  if (a.kind != Argument::Kind::kInt && a.kind != Argument::Kind::kBool) wrong(*this, name, "is not an int");
  return a.ints.at(0);
}

double Call::real(std::string_view name) const {
  const Argument& a = argument(name);
  if (a.kind == Argument::Kind::kInt) return static_cast<double>(a.ints.at(0));
  if (a.kind == Argument::Kind::kScalar) return constant_scalar(name).toDouble();
  if (a.kind != Argument::Kind::kDouble) wrong(*this, name, "is not a float");
  return a.doubles.at(0);
}

bool Call::boolean(std::string_view name) const {
  const Argument& a = argument(name);
  if (a.kind != Argument::Kind::kBool && a.kind != Argument::Kind::kInt) wrong(*this, name, "is not a bool");
  return a.ints.at(0) != 0;
}

std::string Call::string(std::string_view name) const {
  const Argument& a = argument(name);
  if (a.kind == Argument::Kind::kNone) return "";
  if (a.kind != Argument::Kind::kString) wrong(*this, name, "is not a string");
  return a.text;
}

Dims Call::ints(std::string_view name) const {
  const Argument& a = argument(name);
  if (a.kind == Argument::Kind::kNone) return {};
  if (a.kind != Argument::Kind::kIntList && a.kind != Argument::Kind::kInt) wrong(*this, name, "is not a list of ints");
  return a.ints;
}

std::vector<bool> Call::booleans(std::string_view name) const {
  const Argument& a = argument(name);
  if (a.kind == Argument::Kind::kNone) return {};
  if (a.kind != Argument::Kind::kBoolList && a.kind != Argument::Kind::kIntList)
    wrong(*this, name, "is not a list of bools");
  return {a.ints.begin(), a.ints.end()};
}

std::optional<int64_t> Call::optional_integer(std::string_view name) const {
  if (!has(name)) return std::nullopt;
  return integer(name);
}

std::optional<double> Call::optional_real(std::string_view name) const {
  if (!has(name)) return std::nullopt;
  return real(name);
}

int64_t Call::dim(std::string_view name, int64_t rank) const { return wrap(name, integer(name), rank); }

Dims Call::dims(std::string_view name, int64_t rank) const {
  Dims dims = ints(name);
  if (dims.empty()) return range(0, rank);
  if (rank == 0) return {};  // dim 0 or -1 of a 0-d tensor names no dimension of it
  for (int64_t& d : dims) d = wrap(name, d, rank);
  std::sort(dims.begin(), dims.end());
  return dims;
}

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
