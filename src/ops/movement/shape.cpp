// Ops that move elements: cat, flip, roll, repeat, triangles, unfolding. Padding is in padding.cpp.
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

}  // namespace tpjrt::ops
