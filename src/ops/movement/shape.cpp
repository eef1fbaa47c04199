// Ops that move elements: cat, flip, roll, repeat, triangles, unfolding. Padding is in shape.cpp. Padding: constant,
// reflection and replication, and backwards.
#include <algorithm>

#include "ops/rule/by_aten.h"
#include "ops/rule/dims.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {

namespace {

Value joined(Emit& e, const Values& parts, int64_t dim) {
  return parts.size() == 1 ? parts[0] : e.concatenate(parts, dim);
}

// aten::cat: empty 1-d tensors are left out, whatever the rank of the others.
Values cat(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  Values parts;
  for (const Value& x : c.tensors("tensors")) {
    if (x.rank() == 1 && x.dim(0) == 0 && result.dims != Dims{0}) continue;
    parts.push_back(e.to(x, result.element));
  }
  if (result.elements() == 0 || parts.empty()) return {e.zeros(result)};
  return {joined(e, parts, c.dim("dim", result.rank()))};
}

// aten::stack
Values stack(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  const int64_t dim = c.dim("dim", result.rank());
  Values parts;
  for (const Value& x : c.tensors("tensors")) parts.push_back(e.unsqueeze(e.to(x, result.element), dim));
  return {joined(e, parts, dim)};
}

// aten::flip: here an empty list of dims means none.
Values flip(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  Dims dims = c.ints("dims");
  if (dims.empty() || x.rank() == 0) return {x};
  for (int64_t& d : dims) d += d < 0 ? x.rank() : 0;
  return {e.reverse(x, dims)};
}

Value rolled(Emit& e, const Value& x, int64_t shift, int64_t dim) {
  const int64_t n = x.dim(dim);
  if (n == 0 || shift % n == 0) return x;
  const int64_t split = n - ((shift % n) + n) % n;
  return e.concatenate({e.slice_dim(x, dim, split, n), e.slice_dim(x, dim, 0, split)}, dim);
}

// aten::roll: without dims it rolls the flattened tensor.
Values roll(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  const Dims shifts = c.ints("shifts"), dims = c.ints("dims");
  if (x.type.elements() == 0 || x.rank() == 0) return {x};
  if (dims.empty()) return {e.reshape(rolled(e, e.reshape(x, {x.type.elements()}), shifts[0], 0), x.dims())};
  for (size_t i = 0; i < dims.size(); ++i) x = rolled(e, x, shifts[i], dims[i] < 0 ? dims[i] + x.rank() : dims[i]);
  return {x};
}

// aten::repeat: each dimension is preceded by one that counts the copies.
Values repeat(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  const Dims repeats = c.ints("repeats");
  Dims wide, positions;
  const int64_t extra = static_cast<int64_t>(repeats.size()) - x.rank();
  for (int64_t i = 0; i < static_cast<int64_t>(repeats.size()); ++i) {
    wide.push_back(repeats[at(i)]);
    if (i < extra) continue;
    positions.push_back(static_cast<int64_t>(wide.size()));
    wide.push_back(x.dim(i - extra));
  }
  return {e.reshape(e.broadcast_in_dim(x, wide, positions), e.type_of(c.result()).dims)};
}

// Returns column minus row of each element of the last two dimensions.
Value offsets(Emit& e, const Dims& dims) {
  const Type type{ElementType::kS32, dims};
  const int64_t rank = type.rank();
  return e.sub(e.iota(type, rank - 1), e.iota(type, rank - 2));
}

Values triangle(Emit& e, const Call& c, hlo::Comparison kept) {
  Value x = c.tensor("self");
  Dims plane(x.dims().end() - 2, x.dims().end());
  Value offset = offsets(e, plane);
  const Type wide{ElementType::kS64, {}};
  const Value most = e.constant(int64_t{INT32_MAX}, wide), least = e.constant(int64_t{-INT32_MAX}, wide);
  const Value diagonal = e.minimum(e.maximum(c.scalar(e, "diagonal", ElementType::kS64), least), most);
  Value keep = e.compare(kept, offset, e.broadcast_to(e.convert(diagonal, ElementType::kS32), plane));
  return {e.select(e.broadcast_to(keep, x.dims()), x, e.zeros(x.type))};
}

// aten::tril, aten::triu
Values tril(Emit& e, const Call& c) { return triangle(e, c, hlo::Comparison::kLe); }
Values triu(Emit& e, const Call& c) { return triangle(e, c, hlo::Comparison::kGe); }

// Returns zeros of `dims`, with x at start, start + step, … along dim.
Value placed(Emit& e, const Value& x, const Dims& dims, int64_t dim, int64_t start, int64_t step) {
  if (x.type.elements() == 0) return e.zeros({x.element(), dims});
  const int64_t span = (x.dim(dim) - 1) * step + 1;
  return e.pad_dim(x, dim, start, dims[at(dim)] - start - span, step - 1);
}

// aten::unfold_backward: adds the windows' gradients where the windows were read. Windows that don't overlap are one
// reshape; otherwise there is a term for each position in a window, or for each window if those are fewer.
Values unfold_backward(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  Value grad = c.tensor("grad_in");  // the last dimension has the window's elements
  if (result.dims.empty()) return {e.reshape(grad, {})};
  const int64_t dim = c.dim("dim", result.rank()), size = c.integer("size"), step = c.integer("step");
  const int64_t windows = grad.dim(dim), last = grad.rank() - 1;
  if (grad.type.elements() == 0) return {e.zeros(result)};
  Dims all = grad.dims();  // the gradient is broadcast, as on the CPU: istft's decomposition relies on it
  for (int64_t d = 0; d < last; ++d) {
    if (d != dim) all[at(d)] = result.dims[at(d)];
  }
  grad = e.broadcast_to(grad, all);
  // [..., windows, size, ...]
  Dims permutation;
  for (int64_t d = 0; d < last; ++d) {
    permutation.push_back(d);
    if (d == dim) permutation.push_back(last);
  }
  Value apart = e.transpose(grad, permutation);
  if (size <= step) {
    Dims together = result.dims;
    together[at(dim)] = windows * step;
    Value whole = e.reshape(e.pad_dim(apart, dim + 1, 0, step - size), together);
    return {e.pad_dim(whole, dim, 0, result.dims[at(dim)] - windows * step)};
  }
  Value sum;
  for (int64_t i = 0; i < std::min(size, windows); ++i) {
    const bool by_place = size <= windows;
    const int64_t split = by_place ? dim + 1 : dim;
    Dims dims = result.dims;
    dims[at(dim)] = by_place ? windows : size;
    Value part = e.reshape(e.slice_dim(apart, split, i, i + 1), dims);
    Value term = placed(e, part, result.dims, dim, by_place ? i : i * step, by_place ? step : 1);
    sum = sum ? e.add(sum, term) : term;
  }
  return {sum};
}

// aten::_reshape_copy
Values reshape_copy(Emit& e, const Call& c) { return {e.reshape(c.tensor("self"), e.type_of(c.result()).dims)}; }

// torch_pjrt::computed_once, with which decompositions mark values that they read often.
Values computed_once(Emit& e, const Call& c) { return {e.computed_once(c.tensor("self"))}; }

}  // namespace

void add_shape_rules(RuleTable& rules) {
  rules.add("aten::cat", cat, kBFloat16ByAten);
  rules.add("aten::stack", stack, kBFloat16ByAten);
  rules.add("aten::flip", flip);
  rules.add("aten::roll", roll);
  rules.add("aten::repeat", repeat);
  rules.add("aten::tril", tril);
  rules.add("aten::triu", triu);
  rules.add("aten::unfold_backward", unfold_backward);
  rules.add("aten::_reshape_copy", reshape_copy);
  rules.add("torch_pjrt::computed_once", computed_once);
}

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
