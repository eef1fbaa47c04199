// Operations on batches of matrices.
#include "ops/factorization/matrices.h"

#include "ops/rule/dims.h"
#include "ops/rule/expression.h"

namespace tpjrt::ops::matrices {

using hlo::Comparison;

Value real_part(Emit& e, const Value& x) { return hlo::is_complex(x.element()) ? e.unary("real", x) : x; }

Value imaginary_part(Emit& e, const Value& x) {
  return hlo::is_complex(x.element()) ? e.unary("imag", x) : e.zeros(x.type);
}

Value conjugate(Emit& e, const Value& x) {
  return hlo::is_complex(x.element()) ? e.complex(e.unary("real", x), e.neg(e.unary("imag", x))) : x;
}

Value widened(Emit& e, const Value& x, ElementType element) {
  return hlo::is_complex(element) && !hlo::is_complex(x.element()) ? e.complex(x, e.zeros(x.type)) : x;
}

Value transposed(Emit& e, const Value& x) {
  Dims permutation = range(0, x.rank());
  std::swap(permutation[at(x.rank() - 1)], permutation[at(x.rank() - 2)]);
  return e.transpose(x, permutation);
}

Value adjoint(Emit& e, const Value& x) { return conjugate(e, transposed(e, x)); }

namespace {

// Compares row numbers with column numbers.
Value compared(Emit& e, const Dims& dims, Comparison how) {
  const Type plane{ElementType::kS32, {dims[dims.size() - 2], dims.back()}};
  return e.broadcast_to(e.compare(how, e.iota(plane, 0), e.iota(plane, 1)), dims);
}

Value minus_zero(Emit& e, const Type& type) {
  if (hlo::is_complex(type.element)) return e.constant_complex(-0.0, -0.0, type);
  return hlo::is_float(type.element) ? e.constant(-0.0, type) : e.zeros(type);
}

}  // namespace

Value half_of(Emit& e, const Value& x, bool lower) {
  return e.select(compared(e, x.dims(), lower ? Comparison::kGe : Comparison::kLe), x, e.zeros(x.type));
}

Value on_diagonal(Emit& e, const Dims& dims) { return compared(e, dims, Comparison::kEq); }

Value identity(Emit& e, const Type& type) { return e.select(on_diagonal(e, type.dims), e.ones(type), e.zeros(type)); }

Value stacked(Emit& e, const Value& x) {
  const Dims& dims = x.dims();
  const int64_t batch = count_of(Dims(dims.begin(), dims.end() - 2));
  return e.reshape(x, {batch, dims[dims.size() - 2], dims.back()});
}

Value with_batch_of(Emit& e, const Value& x, const Dims& like) {
  Dims dims(like.begin(), like.end() - 2);
  dims.insert(dims.end(), x.dims().end() - 2, x.dims().end());
  return e.broadcast_to(x, dims);
}

Value shaped_as(Emit& e, const Value& x, const Call& c, size_t result) {
  return e.reshape(x, e.type_of(c.result(result)).dims);
}

Value places(Emit& e, const Dims& dims, int64_t dim, Comparison how, const Value& j) {
  return e.compare(how, e.iota({ElementType::kS32, dims}, dim), e.broadcast_in_dim(j, dims, {}));
}

Value column_of(Emit& e, const Value& x, const Value& j) {
  const Value zero = e.zeros(j.type);
  return e.reshape(e.dynamic_slice(x, {zero, zero, j}, {x.dim(0), x.dim(1), 1}), {x.dim(0), x.dim(1)});
}

Value product(Emit& e, const Value& a, const Value& b) {
  return e.dot_general(a, b, {{0}, {0}, {2}, {1}}, a.element(), "HIGHEST");
}

Value one_of(Emit& e, const Value& keep, const Value& x, int64_t dim) {
  const Value none = minus_zero(e, x.type);
  return e.reduce("add", e.select(keep, x, none), minus_zero(e, {x.element(), {}}), {dim});
}

Value diagonal(Emit& e, const Value& x) {
  const int64_t count = std::min(x.dim(1), x.dim(2));
  const Value top = rows_of(e, x, 0, count);
  return one_of(e, on_diagonal(e, top.dims()), top, 2);
}

Value rows_taken(Emit& e, const Value& x, const Value& order) {
  if (x.type.elements() == 0 || order.type.elements() == 0) return x;
  hlo::GatherDimensions d;
  d.offset_dims = {2};
  d.collapsed_slice_dims = {1};
  d.operand_batching_dims = d.start_indices_batching_dims = {0};
  d.start_index_map = {1};
  d.index_vector_dim = 2;
  return e.gather(x, order, d, {1, 1, x.dim(2)});
}

Value rows_of(Emit& e, const Value& x, int64_t begin, int64_t end) { return e.slice_dim(x, 1, begin, end); }

Value columns_of(Emit& e, const Value& x, int64_t begin, int64_t end) { return e.slice_dim(x, 2, begin, end); }

Value lengths(Emit& e, const Value& x) {
  const Expression re{&e, real_part(e, x)}, im{&e, imaginary_part(e, x)};
  const int64_t last = x.rank() - 1;
  const Expression largest = re.with(e.max(maximum(abs(re), abs(im)).value, {last}));
  const Expression scale = where(largest == 0, 1, largest);
  const Expression by = re.with(e.broadcast_in_dim(scale.value, x.dims(), range(0, last)));
  const Expression a = re / by, b = im / by;
  const Value squares = hlo::is_complex(x.element()) ? (a * a + b * b).value : (a * a).value;
  return (largest * re.with(e.sqrt(e.sum(squares, {last})))).value;
}

Value scale_of(Emit& e, const Value& x) {
  const Expression re{&e, real_part(e, x)}, im{&e, imaginary_part(e, x)};
  const Expression largest = re.with(e.max(maximum(abs(re), abs(im)).value, {1, 2}));
  const bool is_double = re.value.element() == ElementType::kF64;
  const Type bits{is_double ? ElementType::kS64 : ElementType::kS32, largest.value.dims()};
  const Value exponent = e.constant(is_double ? int64_t{0x7FF0000000000000} : int64_t{0x7F800000}, bits);
  const Expression power = largest.with(
      e.bitcast_convert(e.binary("and", e.bitcast_convert(largest.value, bits), exponent), largest.value.type));
  const Expression is_number = largest.with(e.unary("is_finite", largest.value));
  return where(is_number & (power > 0), power, 1).value;
}

Values for_each(Emit& e, int64_t count, const Values& state,
                const std::function<Values(const Value& number, const Values& state)>& f) {
  if (count == 0) return state;
  const Type counter{ElementType::kS32, {}};
  Values all{e.zeros(counter)};
  all.insert(all.end(), state.begin(), state.end());
  const auto go_on = [&](const Values& now) {
    return Values{e.compare(Comparison::kLt, now[0], e.constant(count, counter))};
  };
  const auto once = [&](const Values& now) {
    Values next = f(now[0], Values(now.begin() + 1, now.end()));
    next.insert(next.begin(), e.add(now[0], e.ones(counter)));
    return next;
  };
  Values last = e.while_loop(all, go_on, once);
  last.erase(last.begin());
  return last;
}

void check_numbers(const Value& x) {
  switch (x.element()) {
    case ElementType::kF32:
    case ElementType::kF64:
    case ElementType::kC64:
    case ElementType::kC128: return;
    default: throw Mistake("LAPACK has float32, float64 and their complex numbers");
  }
}

}  // namespace tpjrt::ops::matrices
