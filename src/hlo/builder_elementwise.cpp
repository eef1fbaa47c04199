// Elementwise ops. A table states the element types that each op takes.
#include <algorithm>
#include <cmath>

#include "hlo/builder_text.h"

namespace tpjrt::hlo {

namespace {

// Sets of element types.
enum : unsigned { kBool = 1, kSigned = 2, kUnsigned = 4, kFloat = 8, kComplex = 16 };
constexpr unsigned kInteger = kSigned | kUnsigned;
constexpr unsigned kNumber = kInteger | kFloat | kComplex;
constexpr unsigned kAll = kNumber | kBool;

unsigned set_of(ElementType element) {
  if (element == ElementType::kPred) return kBool;
  if (is_signed_integer(element)) return kSigned;
  if (is_unsigned_integer(element)) return kUnsigned;
  return is_complex(element) ? kComplex : kFloat;
}

struct Elementwise {
  std::string_view name;
  unsigned operands;  // supported element types
};

constexpr Elementwise kUnary[] = {
    {"abs", kSigned | kFloat | kComplex},
    {"cbrt", kFloat | kComplex},
    {"ceil", kFloat},
    {"cosine", kFloat | kComplex},
    {"count_leading_zeros", kInteger},
    {"exponential", kFloat | kComplex},
    {"exponential_minus_one", kFloat | kComplex},
    {"floor", kFloat},
    {"imag", kFloat | kComplex},
    {"is_finite", kFloat},
    {"log", kFloat | kComplex},
    {"log_plus_one", kFloat | kComplex},
    {"logistic", kFloat | kComplex},
    {"negate", kNumber},
    {"not", kBool | kInteger},
    {"popcnt", kInteger},
    {"real", kFloat | kComplex},
    {"round_nearest_afz", kFloat},
    {"round_nearest_even", kFloat},
    {"rsqrt", kFloat | kComplex},
    {"sign", kSigned | kFloat | kComplex},
    {"sine", kFloat | kComplex},
    {"sqrt", kFloat | kComplex},
    {"tan", kFloat | kComplex},
    {"tanh", kFloat | kComplex},
};

constexpr Elementwise kBinary[] = {
    {"add", kAll},
    {"and", kBool | kInteger},
    {"atan2", kFloat},
    {"divide", kNumber},
    {"maximum", kAll & ~kComplex},  // complex numbers have no order: XLA:CPU aborts
    {"minimum", kAll & ~kComplex},
    {"multiply", kAll},
    {"or", kBool | kInteger},
    {"power", kNumber},
    {"remainder", kNumber & ~kComplex},
    {"shift_left", kInteger},
    {"shift_right_arithmetic", kInteger},
    {"shift_right_logical", kInteger},
    {"subtract", kNumber},
    {"xor", kBool | kInteger},
};

template <size_t N>
void check_operand(const Elementwise (&table)[N], std::string_view op, const Value& x) {
  const auto* entry = std::find_if(table, table + N, [&](const Elementwise& e) { return e.name == op; });
  check(entry != table + N, op, "is no elementwise op of this arity");
  check(entry->operands & set_of(x.element()), op, "does not take ", x.type);
}

}  // namespace

Value Builder::unary(std::string_view op, const Value& x) {
  if (op.starts_with("chlo.")) {
    check(set_of(x.element()) & (kFloat | kComplex), op, "does not take ", x.type);
    const bool test = op == "chlo.is_inf" || op == "chlo.is_neg_inf" || op == "chlo.is_pos_inf";
    Type result{test ? ElementType::kPred : x.element(), x.dims()};
    return impl_->emit(result, op, " ", impl_->use(op, x), " : ", x.type, " -> ", result);
  }
  check_operand(kUnary, op, x);
  Type result = x.type;
  if (op == "is_finite") result.element = ElementType::kPred;
  if (op == "abs" || op == "real" || op == "imag") result.element = real_element(x.element());
  const std::string& used = impl_->use(op, x);
  if (result == x.type) return impl_->emit(result, "stablehlo.", op, " ", used, " : ", result);
  return impl_->emit(result, "stablehlo.", op, " ", used, " : ", arrow({&x.type}, result));
}

Value Builder::Impl::opaque_zero(const Value& x, bool only_negative) {
  const auto found = numbers.find(x.id);
  if (found == numbers.end()) return x;
  const double number = found->second;
  if (!std::isnan(number) && (number != 0 || (only_negative && !std::signbit(number)))) return x;
  return emit(x.type, "stablehlo.optimization_barrier ", use("add", x), " : ", x.type);
}

Value Builder::binary(std::string_view op, const Value& a, const Value& b) {
  check_same_type(op, a, b);
  if (op.starts_with("chlo.")) {
    return impl_->emit(a.type, op, " ", impl_->uses(op, a, b), " : ", a.type, ", ", b.type, " -> ", a.type);
  }
  check_operand(kBinary, op, a);
  // StableHLO defines the sum of bools as or, but XLA's constant folding computes exclusive or.
  if (op == "add" && a.element() == ElementType::kPred) op = "or";
  // XLA's import of StableHLO replaces x + 0.0 and x - (-0.0) by x, which keeps the sign of -0.0, and folds constants
  // before that. Behind a barrier it sees no constants.
  if ((op == "add" || op == "subtract") && set_of(a.element()) & (kFloat | kComplex)) {
    const bool negative = op == "subtract";
    const Value left = negative ? a : impl_->opaque_zero(a, false), right = impl_->opaque_zero(b, negative);
    return impl_->emit(a.type, "stablehlo.", op, " ", impl_->uses(op, left, right), " : ", a.type);
  }
  return impl_->emit(a.type, "stablehlo.", op, " ", impl_->uses(op, a, b), " : ", a.type);
}

Value Builder::compare(Comparison direction, const Value& a, const Value& b) {
  static constexpr std::string_view kDirections[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
  check_same_type("compare", a, b);
  check(!is_complex(a.element()) || direction <= Comparison::kNe, "compare", "complex numbers have no order");
  const unsigned set = set_of(a.element());
  std::string_view kind = set & (kFloat | kComplex) ? "FLOAT" : set & kSigned ? "SIGNED" : "UNSIGNED";
  Type result{ElementType::kPred, a.dims()};
  return impl_->emit(result, "stablehlo.compare ", kDirections[static_cast<size_t>(direction)], ", ",
                     impl_->uses("compare", a, b), ", ", kind, " : ", arrow({&a.type, &b.type}, result));
}

Value Builder::select(const Value& predicate, const Value& on_true, const Value& on_false) {
  check_same_type("select", on_true, on_false);
  check(predicate.element() == ElementType::kPred && (predicate.rank() == 0 || predicate.dims() == on_true.dims()),
        "select", "predicate of type ", predicate.type, " for ", on_true.type);
  return impl_->emit(on_true.type, "stablehlo.select ", impl_->uses("select", predicate, on_true, on_false), " : ",
                     predicate.type, ", ", on_true.type);
}

Value Builder::clamp(const Value& low, const Value& x, const Value& high) {
  for (const Value& bound : {low, high}) {
    check(bound.element() == x.element() && (bound.rank() == 0 || bound.dims() == x.dims()), "clamp", "bound of type ",
          bound.type, " for ", x.type);
  }
  check(!is_complex(x.element()), "clamp", "complex numbers have no order");
  return impl_->emit(x.type, "stablehlo.clamp ", impl_->uses("clamp", low, x, high), " : ",
                     arrow({&low.type, &x.type, &high.type}, x.type));
}

Value Builder::complex(const Value& real, const Value& imag) {
  check_same_type("complex", real, imag);
  check(real.element() == ElementType::kF32 || real.element() == ElementType::kF64, "complex", "does not take ",
        real.type);
  Type result{real.element() == ElementType::kF32 ? ElementType::kC64 : ElementType::kC128, real.dims()};
  return impl_->emit(result, "stablehlo.complex ", impl_->uses("complex", real, imag), " : ",
                     arrow({&real.type, &imag.type}, result));
}

Value Builder::convert(const Value& x, ElementType element) {
  if (x.element() == element) return x;
  // Keeps the transpose visible to products of the converted value (moved_from).
  if (const Moved* moved = moved_from(x)) return transpose(convert(moved->from, element), moved->permutation);
  Type result{element, x.dims()};
  Value converted =
      impl_->emit(result, "stablehlo.convert ", impl_->use("convert", x), " : ", arrow({&x.type}, result));
  // A small constant may become 0 in a narrower type.
  const auto number = impl_->numbers.find(x.id);
  if (number != impl_->numbers.end() && (number->second == 0 || std::abs(number->second) > 0x1p-7)) {
    impl_->numbers[converted.id] = number->second;
  }
  return converted;
}

Value Builder::reduce_precision(const Value& x, ElementType element) {
  check(is_float(x.element()), "reduce_precision", x.type);
  check(element == ElementType::kF16 || element == ElementType::kBF16, "reduce_precision", "neither kF16 nor kBF16");
  return impl_->emit(x.type, "stablehlo.reduce_precision ", impl_->use("reduce_precision", x),
                     ", format = ", element == ElementType::kF16 ? "e5m10" : "e8m7", " : ", x.type);
}

Value Builder::bitcast_convert(const Value& x, const Type& type) {
  // A narrower result gains a last dimension, a wider one loses it.
  const int64_t from = byte_width(x.element()), to = byte_width(type.element);
  Dims expected = x.dims();
  if (from > to) expected.push_back(from / to);
  if (from < to && !expected.empty() && expected.back() == to / from) expected.pop_back();
  check(is_complex(x.element()) == is_complex(type.element), "bitcast_convert", "between complex and real: ", x.type,
        " to ", type);
  check(type.dims == expected && (from >= to || x.rank() > type.rank()), "bitcast_convert", x.type, " to ", type);
  if (x.type == type) return x;
  return impl_->emit(type, "stablehlo.bitcast_convert ", impl_->use("bitcast_convert", x), " : ",
                     arrow({&x.type}, type));
}

}  // namespace tpjrt::hlo
