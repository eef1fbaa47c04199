// Fourier transforms. torch states scale and direction apart; XLA's inverse transforms divide by the length.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/rule/rules.h"

namespace tpjrt::ops {

namespace {

// XLA transforms trailing dimensions. `there` moves the given dimensions to the end, in that order, and `back` moves
// them back.
struct Order {
  Dims there, back;
};

Order trailing(const Dims& dims, int64_t rank) {
  Order order;
  for (int64_t d = 0; d < rank; ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.there.push_back(d);
  }
  order.there.insert(order.there.end(), dims.begin(), dims.end());
  order.back.resize(order.there.size());
  for (size_t i = 0; i < order.there.size(); ++i)
    order.back[static_cast<size_t>(order.there[i])] = static_cast<int64_t>(i);
  return order;
}

// Computes unscaled complex transforms along `dims`, three at a time, the most that XLA takes.
Value transform(Emit& e, Value x, Dims dims, bool forward) {
  while (!dims.empty()) {
    const auto count = std::min<std::ptrdiff_t>(3, static_cast<std::ptrdiff_t>(dims.size()));
    const Dims last(dims.end() - count, dims.end());
    dims.erase(dims.end() - count, dims.end());
    const Order order = trailing(last, x.rank());
    Dims length;
    double elements = 1;
    for (const int64_t d : last) {
      length.push_back(x.dim(d));
      elements *= static_cast<double>(x.dim(d));
    }
    x = e.fft(e.transpose(x, order.there), forward ? "FFT" : "IFFT", length);
    if (!forward) x = e.mul(x, e.constant_complex(elements, 0, x.type));
    x = e.transpose(x, order.back);
  }
  return x;
}

// Returns the scale of a normalization: 0 is none, 1 divides by the root of the number of elements transformed, 2 by
// that number.
double scale_of(const Call& c, double elements) {
  switch (c.integer("normalization")) {
    case 1: return 1 / std::sqrt(elements);
    case 2: return 1 / elements;
    default: return 1;
  }
}

Value scaled(Emit& e, const Value& x, double factor) {
  if (factor == 1) return x;
  return e.mul(x, hlo::is_complex(x.element()) ? e.constant_complex(factor, 0, x.type) : e.splat(factor, x.type));
}

// Returns the dimensions in the order given; the last one is the halved one.
Dims transformed(const Call& c, int64_t rank) {
  Dims dims = c.ints("dim");
  for (int64_t& d : dims) d = d < 0 ? d + rank : d;
  return dims;
}

double elements_along(const Dims& sizes, const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), 1.0,
                         [&](double n, int64_t d) { return n * static_cast<double>(sizes[static_cast<size_t>(d)]); });
}

// aten::_fft_c2c
Values fft_c2c(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  if (x.type.elements() == 0) return {x};
  const Dims dims = transformed(c, x.rank());
  return {scaled(e, transform(e, x, dims, c.boolean("forward")), scale_of(c, elements_along(x.dims(), dims)))};
}

// aten::_fft_r2c: always forward.
Values fft_r2c(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  const Type result = e.type_of(c.result());
  if (result.elements() == 0) return {e.zeros(result)};
  Dims dims = transformed(c, x.rank());
  const double factor = scale_of(c, elements_along(x.dims(), dims));
  if (!c.boolean("onesided")) return {scaled(e, transform(e, e.to(x, result.element), dims, true), factor)};
  const int64_t last = dims.back();
  dims.pop_back();
  const Order order = trailing({last}, x.rank());
  Value half = e.transpose(e.fft(e.transpose(x, order.there), "RFFT", {x.dim(last)}), order.back);
  return {scaled(e, transform(e, half, dims, true), factor)};
}

// aten::_fft_c2r: always inverse; the last dimension is half of a symmetric spectrum.
Values fft_c2r(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  const Type result = e.type_of(c.result());
  if (result.elements() == 0) return {e.zeros(result)};
  Dims dims = transformed(c, x.rank());
  const double factor = scale_of(c, elements_along(result.dims, dims));
  const int64_t last = dims.back(), length = c.integer("last_dim_size");
  dims.pop_back();
  x = transform(e, x, dims, false);
  // Missing frequencies are zero, and those beyond the length are ignored.
  Dims high(x.dims().size(), 0);
  const Dims none = high;
  high[static_cast<size_t>(last)] = length / 2 + 1 - x.dim(last);
  x = e.pad(x, e.zeros({x.element(), {}}), none, high, none);
  const Order order = trailing({last}, x.rank());
  Value real = e.transpose(e.fft(e.transpose(x, order.there), "IRFFT", {length}), order.back);
  return {scaled(e, real, factor * static_cast<double>(length))};
}

}  // namespace

void add_fft_rules(RuleTable& rules) {
  rules.add_composite("aten::_fft_c2c", fft_c2c);
  rules.add_composite("aten::_fft_r2c", fft_r2c);
  rules.add_composite("aten::_fft_c2r", fft_c2r);
}

}  // namespace tpjrt::ops
