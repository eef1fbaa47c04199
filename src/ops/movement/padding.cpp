// Padding: constant, reflection and replication, and backwards.
#include <algorithm>

#include "ops/rule/dims.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {

namespace {

// aten::constant_pad_nd: pads from the last dimension on; negative pads crop.
Values constant_pad_nd(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  const Dims pad = c.ints("pad");
  Dims low(x.dims().size(), 0), high = low, interior = low;
  for (size_t i = 0; 2 * i + 1 < pad.size(); ++i) {
    low[low.size() - 1 - i] = pad[2 * i];
    high[low.size() - 1 - i] = pad[2 * i + 1];
  }
  return {e.pad(x, c.scalar(e, "value", x.element()), low, high, interior)};
}

// Pads one dimension by reflection or replication, with the pads that remain after negative ones have cropped x.
using Side = Value (*)(Emit& e, const Value& x, int64_t dim, int64_t low, int64_t high);

// Returns x between its mirror images, without the edge itself.
Value reflect(Emit& e, const Value& x, int64_t dim, int64_t low, int64_t high) {
  const int64_t n = x.dim(dim);
  Values parts;
  if (low > 0) parts.push_back(e.reverse(e.slice_dim(x, dim, 1, 1 + low), {dim}));
  parts.push_back(x);
  if (high > 0) parts.push_back(e.reverse(e.slice_dim(x, dim, n - 1 - high, n - 1), {dim}));
  return parts.size() == 1 ? x : e.concatenate(parts, dim);
}

Value reflect_backward(Emit& e, const Value& grad, int64_t dim, int64_t low, int64_t high) {
  const int64_t n = grad.dim(dim) - low - high;
  Value sum = e.slice_dim(grad, dim, low, low + n);
  if (low > 0) {
    Value image = e.reverse(e.slice_dim(grad, dim, 0, low), {dim});
    sum = e.add(sum, e.pad_dim(image, dim, 1, n - 1 - low));
  }
  if (high > 0) {
    Value image = e.reverse(e.slice_dim(grad, dim, low + n, low + n + high), {dim});
    sum = e.add(sum, e.pad_dim(image, dim, n - 1 - high, 1));
  }
  return sum;
}

Value replicate(Emit& e, const Value& x, int64_t dim, int64_t low, int64_t high) {
  const int64_t n = x.dim(dim);
  auto edge = [&](int64_t position, int64_t count) {
    Dims dims = x.dims(), positions;
    dims[at(dim)] = count;
    for (int64_t d = 0; d < x.rank(); ++d) positions.push_back(d);
    return e.broadcast_in_dim(e.slice_dim(x, dim, position, position + 1), dims, positions);
  };
  Values parts;
  if (low > 0) parts.push_back(edge(0, low));
  parts.push_back(x);
  if (high > 0) parts.push_back(edge(n - 1, high));
  return parts.size() == 1 ? x : e.concatenate(parts, dim);
}

Value replicate_backward(Emit& e, const Value& grad, int64_t dim, int64_t low, int64_t high) {
  const int64_t n = grad.dim(dim) - low - high;
  Value sum = e.slice_dim(grad, dim, low, low + n);
  Dims edge = sum.dims();
  edge[at(dim)] = 1;
  auto total = [&](int64_t begin, int64_t end) {
    return e.reshape(e.sum(e.slice_dim(grad, dim, begin, end), {dim}), edge);
  };
  if (low > 0) sum = e.add(sum, e.pad_dim(total(0, low), dim, 0, n - 1));
  if (high > 0) sum = e.add(sum, e.pad_dim(total(low + n, low + n + high), dim, n - 1, 0));
  return sum;
}

Values padded(Emit& e, const Call& c, Side side) {
  Value x = c.tensor("self");
  const Dims pad = c.ints("padding");
  if (c.result().numel() == 0) return {e.zeros(e.type_of(c.result()))};
  for (size_t i = 0; 2 * i < pad.size(); ++i) {
    const int64_t dim = x.rank() - 1 - static_cast<int64_t>(i), low = pad[2 * i], high = pad[2 * i + 1];
    // Pads first and crops after: a mirror image may show what a negative pad on the other side crops.
    x = side(e, x, dim, std::max<int64_t>(low, 0), std::max<int64_t>(high, 0));
    x = e.slice_dim(x, dim, std::max<int64_t>(-low, 0), x.dim(dim) - std::max<int64_t>(-high, 0));
  }
  return {x};
}

Values padded_backward(Emit& e, const Call& c, Side side) {
  Value grad = c.tensor("grad_output");
  const Dims pad = c.ints("padding");
  if (grad.type.elements() == 0 || c.result().numel() == 0) return {e.zeros(e.type_of(c.result()))};
  return {e.upcast(grad, [&](Value g) {
    for (size_t i = 0; 2 * i < pad.size(); ++i) {
      const int64_t dim = g.rank() - 1 - static_cast<int64_t>(i), low = pad[2 * i], high = pad[2 * i + 1];
      g = e.pad_dim(g, dim, std::max<int64_t>(-low, 0), std::max<int64_t>(-high, 0));
      g = side(e, g, dim, std::max<int64_t>(low, 0), std::max<int64_t>(high, 0));
    }
    return g;
  })};
}

// aten::reflection_pad{1,2,3}d, aten::replication_pad{1,2,3}d, and backwards
Values reflection_pad(Emit& e, const Call& c) { return padded(e, c, reflect); }
Values replication_pad(Emit& e, const Call& c) { return padded(e, c, replicate); }
Values reflection_pad_backward(Emit& e, const Call& c) { return padded_backward(e, c, reflect_backward); }
Values replication_pad_backward(Emit& e, const Call& c) { return padded_backward(e, c, replicate_backward); }

}  // namespace

void add_padding_rules(RuleTable& rules) {
  rules.add("aten::constant_pad_nd", constant_pad_nd);
  for (const char* n : {"1d", "2d", "3d"}) {
    const std::string rank = n;
    rules.add_composite("aten::reflection_pad" + rank, reflection_pad, kNotBools);
    rules.add_composite("aten::reflection_pad" + rank + "_backward", reflection_pad_backward);
    rules.add_composite("aten::replication_pad" + rank, replication_pad, kNotBools);
    rules.add_composite("aten::replication_pad" + rank + "_backward", replication_pad_backward);
  }
}

}  // namespace tpjrt::ops
