// The exponential of a matrix: a Taylor polynomial of the matrix divided by a power of two, squared as often.
#include <array>
#include <cmath>

#include "ops/factorization/matrices.h"
#include "ops/rule/expression.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {
namespace {

using hlo::Comparison;

// The polynomial of degree 19 is right to the last bit for norms up to this (Bader, Blanes and Casas, 2019, have it of degree 18).
double largest_norm(const Value& x) { return hlo::real_element(x.element()) == ElementType::kF64 ? 1.09 : 3.01; }

Value times_number(Emit& e, const Value& x, double number) {
  const Value real = e.splat(number, {hlo::real_element(x.element()), x.dims()});
  return e.mul(x, matrices::widened(e, real, x.element()));
}

// Returns 1 + x + x^2 / 2 + … + x^19 / 19!, by seven products.
Value polynomial(Emit& e, const Value& x) {
  const Value two = matrices::product(e, x, x), three = matrices::product(e, two, x);
  const Value four = matrices::product(e, two, two);
  const std::array<Value, 4> powers{matrices::identity(e, x.type), x, two, three};
  std::array<double, 20> over{1};
  for (size_t k = 1; k < over.size(); ++k) over[k] = over[k - 1] / static_cast<double>(k);
  Value total;
  for (size_t block = 5; block-- > 0;) {
    Value part = times_number(e, powers[0], over[4 * block]);
    for (size_t k = 1; k < 4; ++k) part = e.add(part, times_number(e, powers[k], over[4 * block + k]));
    total = total ? e.add(matrices::product(e, total, four), part) : part;
  }
  return total;
}

// aten::linalg_matrix_exp
Values linalg_matrix_exp(Emit& e, const Call& c) {
  const Value x = c.tensor("self");
  matrices::check_numbers(x);
  if (x.type.elements() == 0) return {x};
  const Value a = matrices::stacked(e, x);
  const Value norm = e.max(e.sum(e.unary("abs", a), {1}), {1});
  const Expression size{&e, norm};
  const Expression turns =
      size.with(e.unary("ceil", e.div(e.log((size / largest_norm(a)).value), e.splat(std::log(2.0), norm.type))));
  const Expression is_number = size.with(e.unary("is_finite", norm));
  const Expression times = where(is_number, minimum(maximum(turns, 0), 126), 0);
  const Type counts{ElementType::kS32, norm.dims()}, counter{ElementType::kS32, {}};
  const Value count = e.convert(times.value, ElementType::kS32);
  // 2^count is made of its bits.
  const bool is_double = norm.element() == ElementType::kF64;
  const Type bits{is_double ? ElementType::kS64 : ElementType::kS32, norm.dims()};
  const Value exponent = e.add(e.convert(count, bits.element), e.constant(is_double ? 1023 : 127, bits));
  const Value power =
      e.bitcast_convert(e.binary("shift_left", exponent, e.constant(is_double ? 52 : 23, bits)), norm.type);
  const Value scale = matrices::widened(e, e.broadcast_in_dim(power, a.dims(), {0}), a.element());
  const Value most = e.reduce("maximum", count, e.zeros(counter), {0});
  const auto go_on = [&](const Values& state) { return Values{e.compare(Comparison::kLt, state[0], most)}; };
  const auto square = [&](const Values& state) {
    const Value open = e.compare(Comparison::kLt, e.broadcast_in_dim(state[0], counts.dims, {}), count);
    const Value squared = matrices::product(e, state[1], state[1]);
    return Values{e.add(state[0], e.ones(counter)),
                  e.select(e.broadcast_in_dim(open, a.dims(), {0}), squared, state[1])};
  };
  const Value result = e.while_loop({e.zeros(counter), polynomial(e, e.div(a, scale))}, go_on, square)[1];
  return {e.reshape(result, x.dims())};
}

}  // namespace

void add_exponential_rules(RuleTable& rules) {
  rules.add("aten::linalg_matrix_exp", linalg_matrix_exp, kAlwaysByAten, kInexact);
}

}  // namespace tpjrt::ops
