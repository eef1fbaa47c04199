// Idioms for XLA:CPU: values computed once, products of bfloat16, sums and extremes. A branch that XLA does not turn
// into a select.
#include "ops/xla_cpu/cpu_lowerings.h"

#include <algorithm>
#include <optional>

#include "ops/pointwise/pointwise.h"
#include "ops/rule/by_aten.h"
#include "ops/rule/dims.h"
#include "ops/rule/emit.h"

namespace tpjrt::ops {

const BackendLowerings& cpu_lowerings() {
  static const CpuLowerings lowerings;
  return lowerings;
}

Value CpuLowerings::computed_once(Emit& e, const Value& x) const {
  if (x.rank() == 0 || x.type.elements() == 0) return x;
  // A kernel call states its operands' layouts, and the layout of images is not known here.
  constexpr int64_t kImages = 4;
  if (e.target() == Target::kCpuWithKernels && x.rank() < kImages) {
    return e.call_kernel("torch_pjrt.stored", {x}, {x.type}, {}, {}, 0)[0];
  }
  const Dims zero(x.dims().size(), 0), one(x.dims().size(), 1);
  const Value first = e.reshape(e.slice(x, zero, one, one), {});
  const bool is_bool = x.element() == ElementType::kPred;
  const Value usual = is_bool ? first : e.compare(hlo::Comparison::kNe, first, e.constant(-77, first.type));
  // Both branches return x, which XLA can't see.
  auto otherwise = [&](const Values&) {
    return Values{e.binary(is_bool ? "or" : "subtract", x, e.broadcast_in_dim(e.to(usual, x.element()), x.dims(), {}))};
  };
  return e.if_else(usual, [&](const Values&) { return Values{x}; }, otherwise)[0];
}

Value CpuLowerings::bfloat16_of(Emit& e, const Value& integers) const {
  if (e.number_of(integers)) return BackendLowerings::bfloat16_of(e, integers);
  const Type bits{ElementType::kU32, integers.dims()};
  Value x = e.bitcast_convert(e.convert(integers, ElementType::kF32), bits);
  const Value half = e.constant(16, bits);
  if (hlo::byte_width(integers.element()) > 1) {  // to the nearest, or the even one of two
    const Value odd = e.binary("and", e.binary("shift_right_logical", x, half), e.constant(1, bits));
    x = e.add(x, e.add(odd, e.constant(0x7FFF, bits)));
  }
  x = e.convert(e.binary("shift_right_logical", x, half), ElementType::kU16);
  return e.bitcast_convert(x, {ElementType::kBF16, integers.dims()});
}

Value CpuLowerings::rounded_below(Emit& e, const Value& x, const Value& max) const { return e.minimum(x, max); }

Value CpuLowerings::dot_general(Emit& e, const Value& lhs, const Value& rhs, const hlo::DotDimensions& d,
                                ElementType result, std::string_view precision) const {
  if (lhs.element() != ElementType::kBF16) return BackendLowerings::dot_general(e, lhs, rhs, d, result, precision);
  // Returns x without its batch dimensions of size 1, and renumbers the dimensions in `kept` and `contracting`.
  auto reduced = [&e](const Value& x, Dims batch, Dims& kept, Dims& contracting) {
    std::erase_if(batch, [&](int64_t b) { return x.dim(b) != 1; });
    const auto is_out = [&](int64_t i) { return std::find(batch.begin(), batch.end(), i) != batch.end(); };
    std::erase_if(kept, is_out);
    Dims dims;
    for (int64_t i = 0; i < x.rank(); ++i) {
      if (!is_out(i)) dims.push_back(x.dim(i));
    }
    for (Dims* numbers : {&kept, &contracting}) {
      for (int64_t& i : *numbers) i -= std::count_if(batch.begin(), batch.end(), [i](int64_t b) { return b < i; });
    }
    return e.reshape(x, dims);
  };
  hlo::DotDimensions n = d;
  const Value a = reduced(lhs, d.lhs_batch, n.lhs_batch, n.lhs_contracting);
  const Value b = reduced(rhs, d.rhs_batch, n.rhs_batch, n.rhs_contracting);
  const bool uses_library = a.rank() > 1 && n.lhs_contracting == Dims{a.rank() - 1};
  const Value left = uses_library ? e.optimization_barrier({a})[0] : a;
  const Value product = BackendLowerings::dot_general(e, left, b, n, result, precision);
  Dims dims = product.dims();
  for (size_t i = 0; i < d.lhs_batch.size(); ++i) {
    if (lhs.dim(d.lhs_batch[i]) == 1) dims.insert(dims.begin() + static_cast<int64_t>(i), 1);
  }
  return e.reshape(product, dims);
}

// --- reductions -----------------------------------------------------------------------------------------------------

namespace {

constexpr int kFoldings = 3, kHalvings = 6;
constexpr int64_t kParts = 1 << kFoldings, kLeastFolded = 1024, kLeastRow = 64, kLeastHalved = 9;

// Halves x along `dims`, up to kFoldings times, and combines the halves elementwise.
Value folded(Emit& e, std::string_view op, Value x, const Dims& dims) {
  int foldings = 0;
  for (int64_t d : dims) {
    for (; foldings < kFoldings && x.dim(d) % 2 == 0; ++foldings) {
      const int64_t half = x.dim(d) / 2;
      x = e.binary(op, e.slice_dim(x, d, 0, half), e.slice_dim(x, d, half, 2 * half));
    }
  }
  return x;
}

// Reduces x along one dimension. Its eight parts are combined elementwise first, and the remainder is reduced by
// itself.
Value reduced_by_parts(Emit& e, std::string_view op, const Value& x, const Value& identity, int64_t dim) {
  const int64_t whole = x.dim(dim) / kParts * kParts;
  const Value most = e.reduce(op, folded(e, op, e.slice_dim(x, dim, 0, whole), {dim}), identity, {dim});
  if (whole == x.dim(dim)) return most;
  return e.binary(op, most, e.reduce(op, e.slice_dim(x, dim, whole, x.dim(dim)), identity, {dim}));
}

// Reduces one dimension after the other, because one line of another width would need divisions to compute its
// addresses.
Value reduced_whole(Emit& e, std::string_view op, Value x, const Value& identity) {
  while (x.rank() > 0) {
    x = x.dim(0) < kLeastRow ? e.reduce(op, x, identity, {0}) : reduced_by_parts(e, op, x, identity, 0);
  }
  return x;
}

// Returns the reduction in parts, or nothing where that is not faster.
std::optional<Value> reduced_in_parts(Emit& e, std::string_view op, const Value& x, const Value& identity,
                                      const Dims& dims) {
  int64_t reduced = 1;
  for (int64_t d : dims) reduced *= x.dim(d);
  if (hlo::is_complex(x.element()) || x.element() == ElementType::kPred) return {};
  if (x.type.elements() < kLeastFolded || reduced < kLeastRow) return {};
  // Tensors of more dimensions may have another layout, such as NHWC images.
  const auto all = static_cast<int64_t>(dims.size());
  constexpr int64_t kNarrow = 16;
  const bool wide = x.rank() == 1 || x.dim(x.rank() - 1) >= kNarrow;
  if (wide && all == x.rank() && all <= 2) return reduced_whole(e, op, x, identity);
  if (wide && all == 1 && x.rank() <= 3) return reduced_by_parts(e, op, x, identity, dims[0]);
  if (reduced < kLeastFolded || all < 2 || std::find(dims.begin(), dims.end(), x.rank() - 1) == dims.end()) return {};
  return e.reduce(op, folded(e, op, x, dims), identity, dims);
}

Value halved(Emit& e, std::string_view op, Value x) {
  const int64_t last = x.rank() - 1;
  for (int i = 0; i < kHalvings && x.dim(last) >= kLeastHalved; ++i) {
    const int64_t n = x.dim(last), half = (n + 1) / 2;
    x = e.binary(op, e.slice_dim(x, last, 0, half), e.slice_dim(x, last, n - half, n));
  }
  return x;
}

// Returns the sums of the rows of a table, as a product.
Value product_of_rows(Emit& e, const Value& rows) {
  constexpr int64_t kSplit = 1 << 20;  // elements
  const bool splits = rows.type.elements() >= kSplit;
  const Value vector = e.splat(splits ? -1 : 1, {rows.element(), {rows.dim(1)}});
  return e.dot_general(splits ? e.neg(rows) : rows, vector, {{}, {}, {1}, {0}}, rows.element(), "HIGHEST");
}

// Returns the sums of rows as a product, or nothing where that is not faster.
std::optional<Value> summed_by_product(Emit& e, const Value& x, const Dims& dims) {
  const int64_t axis = axis_of_rows(x, dims).value_or(0);
  if (axis == 0 || !is_summed_by_product(x, axis)) return {};
  const int64_t width = count_of({x.dims().begin() + axis, x.dims().end()});
  const Value rows = e.reshape(x, {x.type.elements() / width, width});
  return e.reshape(product_of_rows(e, rows), {x.dims().begin(), x.dims().begin() + axis});
}

// Returns the largest divisor of n that is a row's length, or 0.
int64_t row_of(int64_t n) {
  constexpr int64_t kLongest = 1024, kShortest = 64;
  for (int64_t width = kLongest; width >= kShortest; --width) {
    if (n % width == 0) return width;
  }
  return 0;
}

// Returns the sum of all elements of floats, or nothing where a product is not faster. Rows of the last dimension, or
// of parts of it, are summed by a product, which XLA:CPU vectorizes with all that computes them: it does not vectorize
// a sum of long formulas. Images may have another layout, and a table of narrow rows would need divisions.
std::optional<Value> whole_by_product(Emit& e, const Value& x) {
  constexpr int64_t kLeastElements = 1 << 13, kNarrow = 16, kRow = 512;
  if (x.element() != ElementType::kF32 && x.element() != ElementType::kF64) return {};
  if (x.rank() == 0 || x.rank() > 3 || x.type.elements() < kLeastElements) return {};
  const int64_t last = x.rank() - 1, n = x.dim(last);
  const int64_t width = x.rank() > 1 && n < kRow ? n : row_of(n);
  if (width >= kNarrow) {
    const Value sums = product_of_rows(e, e.reshape(x, {x.type.elements() / width, width}));
    return e.backend().sum(e, sums, {0});
  }
  if (x.rank() > 1 || n < kRow) return {};
  const int64_t whole = n / kRow * kRow;
  const Value rest = e.reduce("add", e.slice_dim(x, 0, whole, n), e.zeros({x.element(), {}}), {0});
  return e.add(e.backend().sum(e, e.slice_dim(x, 0, 0, whole), {0}), rest);
}

}  // namespace

std::optional<int64_t> axis_of_rows(const Value& x, const Dims& dims) {
  const int64_t axis = x.rank() - static_cast<int64_t>(dims.size());
  const bool are_last = !dims.empty() && std::ranges::all_of(dims, [&](int64_t d) { return d >= axis; });
  return are_last ? std::optional(axis) : std::nullopt;
}

bool is_summed_by_product(const Value& x, int64_t axis) {
  constexpr int64_t kLeastElements = 1 << 15, kNarrowest = 16;
  constexpr int64_t kFused = 16 << 10;  // bytes: XLA:CPU fuses no product of a longer vector
  if (x.element() != ElementType::kF32 && x.element() != ElementType::kF64) return false;
  const int64_t width = count_of({x.dims().begin() + axis, x.dims().end()});
  const int64_t bytes = width * (x.element() == ElementType::kF32 ? 4 : 8);
  return x.type.elements() >= kLeastElements && width >= kNarrowest && bytes < kFused;
}

Value CpuLowerings::sum(Emit& e, const Value& x, const Dims& dims) const {
  if (auto of_rows = summed_by_product(e, x, dims)) return *of_rows;
  if (auto of_rows = library_reduced_rows(e, "add", x, dims)) return *of_rows;
  if (static_cast<int64_t>(dims.size()) == x.rank()) {
    if (auto whole = whole_by_product(e, x)) return *whole;
  }
  const Value zero = e.zeros({x.element(), {}});
  if (auto in_parts = reduced_in_parts(e, "add", x, zero, dims)) return *in_parts;
  return e.reduce("add", x, zero, dims);
}

Value CpuLowerings::product(Emit& e, const Value& x, const Dims& dims) const {
  const Value one = e.ones({x.element(), {}});
  if (auto in_parts = reduced_in_parts(e, "multiply", x, one, dims)) return *in_parts;
  return e.reduce("multiply", x, one, dims);
}

Value CpuLowerings::extreme(Emit& e, std::string_view op, const Value& x, const Value& identity,
                            const Dims& dims) const {
  if (!hlo::is_float(x.element())) {
    if (auto in_parts = reduced_in_parts(e, op, x, identity, dims)) return *in_parts;
    return BackendLowerings::extreme(e, op, x, identity, dims);
  }
  if (auto of_rows = library_reduced_rows(e, op, x, dims)) return *of_rows;
  const std::optional<int64_t> axis = axis_of_rows(x, dims);
  if (!axis) return BackendLowerings::extreme(e, op, x, identity, dims);
  if (axis == 0 && x.rank() == 2) {
    if (auto in_parts = reduced_in_parts(e, op, x, identity, dims)) return *in_parts;
  }
  const auto end_of_kept = x.dims().begin() + *axis;
  Dims rows(x.dims().begin(), end_of_kept);
  rows.push_back(count_of({end_of_kept, x.dims().end()}));
  return e.reduce(op, halved(e, op, e.reshape(x, rows)), identity, {*axis});
}

Expression usually(const Expression& rare, const std::vector<Expression>& operands,
                   const std::function<Expression(const std::vector<Expression>&)>& slow,
                   const std::function<Expression()>& fast) {
  constexpr int64_t kFewest = 4096;
  if (rare.value.type.elements() < kFewest) return slow(operands);
  Emit& e = *rare.e;
  const Dims& dims = rare.value.dims();
  const Dims longest{std::max_element(dims.begin(), dims.end()) - dims.begin()};
  const auto reversed = [&](const Expression& x) { return x.with(e.reverse(x.value, longest)); };
  // XLA turns a branch whose sides are both elementwise into a select, and computes both. The slow side therefore
  // reverses its operands and its result.
  const auto otherwise = [&](const Values&) {
    std::vector<Expression> reversed_operands;
    for (const Expression& x : operands) reversed_operands.push_back(reversed(x));
    return Values{reversed(slow(reversed_operands)).value};
  };
  return rare.with(e.if_else(any(rare), otherwise, [&](const Values&) { return Values{fast().value}; })[0]);
}

}  // namespace tpjrt::ops
