// Spellings and sizes of StableHLO element types.
#include "hlo/type.h"

namespace tpjrt::hlo {

namespace {

struct Facts {
  std::string_view spelling;
  int64_t bytes;
};

// In the order of ElementType.
constexpr Facts kFacts[] = {
    {"i1", 1},         {"i8", 1},     {"i16", 2},        {"i32", 4},          {"i64", 8},
    {"ui8", 1},        {"ui16", 2},   {"ui32", 4},       {"ui64", 8},         {"f8E4M3FN", 1},
    {"f8E4M3FNUZ", 1}, {"f8E5M2", 1}, {"f8E5M2FNUZ", 1}, {"f8E8M0FNU", 1},    {"f16", 2},
    {"bf16", 2},       {"f32", 4},    {"f64", 8},        {"complex<f32>", 8}, {"complex<f64>", 16},
};

const Facts& facts(ElementType element) { return kFacts[static_cast<size_t>(element)]; }

bool between(ElementType element, ElementType first, ElementType last) { return element >= first && element <= last; }

}  // namespace

std::string_view spelling(ElementType element) { return facts(element).spelling; }

int64_t byte_width(ElementType element) { return facts(element).bytes; }

bool is_float(ElementType element) { return between(element, ElementType::kF8E4M3FN, ElementType::kF64); }

bool is_complex(ElementType element) { return between(element, ElementType::kC64, ElementType::kC128); }

bool is_signed_integer(ElementType element) { return between(element, ElementType::kS8, ElementType::kS64); }

bool is_unsigned_integer(ElementType element) { return between(element, ElementType::kU8, ElementType::kU64); }

bool is_integer(ElementType element) { return between(element, ElementType::kS8, ElementType::kU64); }

ElementType real_element(ElementType element) {
  if (element == ElementType::kC64) return ElementType::kF32;
  if (element == ElementType::kC128) return ElementType::kF64;
  return element;
}

int64_t Type::elements() const {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

std::string to_string(const Type& type) {
  std::string text = "tensor<";
  for (int64_t d : type.dims) text += std::to_string(d) + "x";
  text += spelling(type.element);
  return text + ">";
}

}  // namespace tpjrt::hlo
