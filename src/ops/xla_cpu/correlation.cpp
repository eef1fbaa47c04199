// Convolutions as sums of shifted copies, matrix products and planes, where XLA:CPU takes a hundred times as long as
// PyTorch's CPU kernels.
#include "ops/contraction/contraction.h"

#include <algorithm>

#include "ops/rule/dims.h"
#include "ops/rule/precision.h"

namespace tpjrt::ops {
namespace {

Value correlate(Emit& e, const Value& x, const Value& w, bool swapped, const Motion& m, const Dims& out);
Value correlate_kernel(Emit& e, const Value& x, const Value& y, const Motion& m, const Dims& kernel);

Dims joined(Dims front, const Dims& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

bool all_are(const Dims& dims, int64_t value) {
  return std::all_of(dims.begin(), dims.end(), [&](int64_t d) { return d == value; });
}

// XLA:CPU runs batch groups as nested loops. Feature groups compute the same: each group has the batch as its
// features.
Value kernel_by_features(Emit& e, const Value& x, const Value& y, const Motion& m, const Dims& kernel) {
  const int64_t batch = x.dim(0), features = x.dim(1) / m.groups;
  const Dims in = spatial_of(x.dims());
  const Value apart = e.reshape(x, joined({batch, m.groups, features}, in));
  const Value transposed = e.transpose(apart, joined({2, 1, 0}, range(3, apart.rank())));
  const Value grouped = e.reshape(transposed, joined({features, m.groups * batch}, in));
  return correlate_kernel_whole(e, grouped, y, m, kernel, Groups::kOfFeatures);
}

// --- sums over the taps of a kernel ---------------------------------------------------------------------------------

// Returns whether a grouped convolution has few enough terms per result to be a sum of shifted copies, which is one
// fused loop. Depthwise convolutions are the common case. `kernel` is [O, C / groups, k...].
bool is_sum(const Motion& m, const Dims& kernel) {
  constexpr int64_t kMostTerms = 72;
  return m.groups > 1 && kernel[1] * count_of(spatial_of(kernel)) <= kMostTerms;
}

// Returns the elements of x [N, C, in...] that each tap of a kernel meets, for each feature of a group: [N, groups,
// out...] each, with the features of one tap together.
Values by_tap(Emit& e, const Value& x, const Motion& m, const Dims& kernel, const Dims& out) {
  const int64_t features = x.dim(1) / m.groups;
  Dims low{0, 0}, high{0, 0}, interior{0, 0};
  for (size_t i = 0; i < kernel.size(); ++i) {
    low.push_back(m.low[i]);
    high.push_back(high_of(m, i, x.dims()[i + 2], kernel[i], out[i + 2]));
    interior.push_back(m.spread[i] - 1);
  }
  const Value wide = e.to(x, Emit::compute_element(x.element()));
  const Value padded = e.computed_once(e.pad(wide, e.zeros({wide.element(), {}}), low, high, interior));
  Values taps;
  for_each_position(kernel, [&](const Dims& tap) {
    for (int64_t feature = 0; feature < features; ++feature) {
      Dims start{0, feature}, limit{x.dim(0), feature + (m.groups - 1) * features + 1}, step{1, features};
      for (size_t i = 0; i < kernel.size(); ++i) {
        start.push_back(tap[i] * m.dilation[i]);
        limit.push_back(start.back() + (out[i + 2] - 1) * m.stride[i] + 1);
        step.push_back(m.stride[i]);
      }
      taps.push_back(e.slice(padded, start, limit, step));
    }
  });
  return taps;
}

// Broadcasts [N, groups, out...] over the output features of each group: [N, groups, O / groups, out...], the shape
// `grouped`.
Value for_each_feature(Emit& e, const Value& tap, const Dims& grouped) {
  Dims kept = range(0, static_cast<int64_t>(grouped.size()));
  kept.erase(kept.begin() + 2);
  return e.broadcast_in_dim(tap, grouped, kept);
}

Value sum_over_taps(Emit& e, const Value& x, const Value& w, bool swapped, const Motion& m, const Dims& out) {
  const Values taps = by_tap(e, x, m, spatial_of(w.dims()), out);
  const int64_t terms = static_cast<int64_t>(taps.size()), each = out[1] / m.groups;
  const Dims grouped = joined({out[0], m.groups, each}, spatial_of(out));
  Dims order = joined({swapped ? 1 : 0}, range(2, w.rank()));  // output features, taps, a group's input features
  order.push_back(swapped ? 0 : 1);
  const Value weights = e.reshape(e.transpose(e.to(w, taps[0].element()), order), {m.groups, each, terms});
  Value sum;
  for (int64_t i = 0; i < terms; ++i) {
    const Value weight = e.reshape(e.slice_dim(weights, 2, i, i + 1), {m.groups, each});
    const Value tap = for_each_feature(e, taps[static_cast<size_t>(i)], grouped);
    const Value term = e.mul(tap, e.broadcast_in_dim(weight, grouped, {1, 2}));
    sum = i == 0 ? term : e.add(sum, term);
  }
  return e.computed_once(e.to(e.reshape(sum, out), x.element()));
}

// One reduction of many operands is one kernel. XLA would take 50 ms to compile each of 49 separate ones.
Value kernel_of_taps(Emit& e, const Value& x, const Value& y, const Motion& m, const Dims& kernel) {
  const Values taps = by_tap(e, x, m, spatial_of(kernel), y.dims());
  const Dims grouped = joined({y.dim(0), m.groups, kernel[0] / m.groups}, spatial_of(y.dims()));
  const Value gradient = e.computed_once(e.reshape(e.to(y, taps[0].element()), grouped));
  Values products;
  for (const Value& tap : taps) products.push_back(e.mul(for_each_feature(e, tap, grouped), gradient));
  const Values zeros(taps.size(), e.zeros({gradient.element(), {}}));
  Values sums = e.reduce(products, zeros, joined({0}, range(3, y.rank() + 1)), [&](const Values& sides) {
    Values totals;
    for (size_t i = 0; i < taps.size(); ++i) totals.push_back(e.add(sides[i], sides[taps.size() + i]));
    return totals;
  });
  for (Value& sum : sums) sum = e.reshape(sum, {kernel[0], 1});
  const int64_t positions = static_cast<int64_t>(taps.size()) / kernel[1];
  const Value all = e.reshape(e.concatenate(sums, 1), {kernel[0], positions, kernel[1]});
  return e.to(e.reshape(e.transpose(all, {0, 2, 1}), kernel), x.element());
}

// --- matrix products ------------------------------------------------------------------------------------------------

// Returns whether a kernel meets each element once along a dimension, or has one element there.
bool tiles(int64_t kernel, int64_t step, int64_t dilation) { return kernel == 1 || (kernel == step && dilation == 1); }

bool is_of_tiles(const Motion& m, const Dims& kernel) {
  if (m.groups != 1 || !all_are(m.low, 0) || !all_are(m.spread, 1)) return false;
  for (size_t i = 0; i < kernel.size(); ++i) {
    if (!tiles(kernel[i], m.stride[i], m.dilation[i])) return false;
  }
  return true;
}

// Returns whether this is the input's gradient of a convolution of tiles.
bool is_to_tiles(const Motion& m, const Dims& kernel) {
  if (m.groups != 1 || !all_are(m.stride, 1)) return false;
  for (size_t i = 0; i < kernel.size(); ++i) {
    if (m.low[i] != m.dilation[i] * (kernel[i] - 1) || !tiles(kernel[i], m.spread[i], m.dilation[i])) return false;
  }
  return true;
}

// Returns whether one product over all examples is cheaper than a batch of products, each with its own copy of the
// kernel's matrix. XLA writes these copies to memory, so they may be at most a fourth of the activations.
bool is_one_product(const Dims& kernel, const Dims& out) {
  const int64_t rows = kernel[0], columns = count_of(kernel) / rows;
  return 4 * rows * columns > count_of(spatial_of(out)) * (rows + columns);
}

// Returns the tiles of x [N, C, in...] that a kernel meets: [N, C · taps, positions].
Value tiles_of(Emit& e, const Value& x, const Motion& m, const Dims& kernel, const Dims& out) {
  Dims limit{x.dim(0), x.dim(1)}, step{1, 1}, split = limit, order{0, 1};
  for (size_t i = 0; i < kernel.size(); ++i) {
    limit.push_back((out[i] - 1) * m.stride[i] + kernel[i]);
    step.push_back(kernel[i] == 1 ? m.stride[i] : 1);
    split.insert(split.end(), {out[i], kernel[i]});
    order.push_back(static_cast<int64_t>(2 * i) + 3);
  }
  for (size_t i = 0; i < kernel.size(); ++i) order.push_back(static_cast<int64_t>(2 * i) + 2);
  const Value met = e.reshape(e.slice(x, Dims(limit.size(), 0), limit, step), split);
  return e.reshape(e.transpose(met, order), {x.dim(0), x.dim(1) * count_of(kernel), count_of(out)});
}

Value multiply(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims) {
  return e.dot_general(a, b, dims, Emit::compute_element(a.element()), convolution_precision(e, a.element()));
}

// The weight is an operand of a batch of products, one for each example, so the features stay where they are.
Value product_of_tiles(Emit& e, const Value& x, const Value& w, const Motion& m, const Dims& out) {
  const Value tiles = tiles_of(e, x, m, spatial_of(w.dims()), spatial_of(out));
  const Value matrix = e.reshape(w, {out[1], tiles.dim(1)});
  const Value matrices = e.broadcast_in_dim(matrix, {out[0], out[1], tiles.dim(1)}, {1, 2});
  return e.reshape(multiply(e, matrices, tiles, {{0}, {0}, {2}, {1}}), out);
}

Value kernel_of_tiles(Emit& e, const Value& x, const Value& y, const Motion& m, const Dims& kernel) {
  const Dims out = spatial_of(y.dims());
  const Value tiles = tiles_of(e, x, m, spatial_of(kernel), out);
  const Value gradient = e.reshape(y, {y.dim(0), y.dim(1), count_of(out)});
  return e.to(e.reshape(e.sum(multiply(e, gradient, tiles, {{0}, {0}, {2}, {2}}), {0}), kernel), x.element());
}

// w is [C, O, k...].
Value product_to_tiles(Emit& e, const Value& x, const Value& w, const Motion& m, const Dims& out) {
  const Dims kernel = spatial_of(w.dims()), in = spatial_of(x.dims());
  const size_t spatial = kernel.size();
  const int64_t batch = x.dim(0), features = x.dim(1), positions = count_of(in), results = out[1] * count_of(kernel);
  // a kernel that moves back over tiles has its taps in reverse order
  const Value matrix = e.reshape(e.reverse(w, range(2, x.rank())), {features, results});
  const Value columns = e.reshape(x, {batch, features, positions});
  Value product;  // [N, O · taps, positions]
  if (is_one_product(w.dims(), x.dims())) {
    const Value rows = e.reshape(e.transpose(columns, {0, 2, 1}), {batch * positions, features});
    const Value y = e.reshape(multiply(e, rows, matrix, {{}, {}, {1}, {0}}), {batch, positions, results});
    product = e.transpose(y, {0, 2, 1});
  } else {
    const Value transposed = e.computed_once(e.transpose(matrix, {1, 0}));
    product =
        multiply(e, e.broadcast_in_dim(transposed, {batch, results, features}, {1, 2}), columns, {{0}, {0}, {2}, {1}});
  }
  Dims order{0, 1}, met{batch, out[1]};
  Dims low(out.size(), 0), high = low, interior = low;
  for (size_t i = 0; i < spatial; ++i) {
    order.push_back(static_cast<int64_t>(2 + spatial + i));
    order.push_back(static_cast<int64_t>(2 + i));
    met.push_back(in[i] * kernel[i]);
    interior[i + 2] = kernel[i] == 1 ? m.spread[i] - 1 : 0;
    high[i + 2] = out[i + 2] - (met.back() + (in[i] - 1) * interior[i + 2]);
  }
  const Value apart = e.reshape(product, joined(joined({batch, out[1]}, kernel), in));
  const Value tiles = e.reshape(e.transpose(apart, order), met);
  return e.pad(tiles, e.zeros({tiles.element(), {}}), low, high, interior);
}

// Large kernels over few positions, as in a network's last layers: the elements that meet the taps are copied and
// multiplied in one product.
bool has_few_positions(const Motion& m, const Dims& kernel, const Dims& out) {
  constexpr int64_t kFew = 256, kLarge = 1 << 18, kMostTaps = 64;
  if (m.groups != 1 || count_of(spatial_of(kernel)) > kMostTaps) return false;
  return out[0] * count_of(spatial_of(out)) <= kFew && count_of(kernel) >= kLarge;
}

// Returns the elements that meet the taps of a kernel at all positions: [C · taps, N · positions].
Value columns_of(Emit& e, const Value& x, Motion m, const Dims& kernel, const Dims& out) {
  const int64_t positions = out[0] * count_of(spatial_of(out));
  if (is_of_tiles(m, kernel)) {
    const Value tiles = tiles_of(e, x, m, kernel, spatial_of(out));
    return e.reshape(e.transpose(tiles, {1, 0, 2}), {tiles.dim(1), positions});
  }
  m.groups = x.dim(1);
  Values columns = by_tap(e, x, m, kernel, out);
  for (Value& tap : columns) {
    tap = e.reshape(e.transpose(tap, joined({1, 0}, range(2, x.rank()))), {x.dim(1), 1, positions});
  }
  return e.reshape(e.concatenate(columns, 1), {x.dim(1) * count_of(kernel), positions});
}

Value product_of_columns(Emit& e, const Value& x, const Value& w, bool swapped, const Motion& m, const Dims& out) {
  const Dims kernel = spatial_of(w.dims());
  const Value columns = columns_of(e, x, m, kernel, out);
  const Value matrix = swapped ? e.transpose(w, joined({1, 0}, range(2, w.rank()))) : w;
  const Value y =
      multiply(e, e.to(e.reshape(matrix, {out[1], columns.dim(0)}), columns.element()), columns, {{}, {}, {1}, {0}});
  const Value apart = e.reshape(y, joined({out[1], out[0]}, spatial_of(out)));
  return e.transpose(apart, joined({1, 0}, range(2, x.rank())));
}

Value kernel_of_columns(Emit& e, const Value& x, const Value& y, const Motion& m, const Dims& kernel) {
  const Value columns = columns_of(e, x, m, spatial_of(kernel), y.dims());
  const Value gradient = e.reshape(e.transpose(y, joined({1, 0}, range(2, y.rank()))), {y.dim(1), columns.dim(1)});
  return e.to(e.reshape(multiply(e, e.to(gradient, columns.element()), columns, {{}, {}, {1}, {1}}), kernel),
              x.element());
}

// --- the first of three dimensions ----------------------------------------------------------------------------------

// XLA:CPU is slow at convolutions of three dimensions. The elements that meet the taps of the first one become
// features of an input of two dimensions, whose batch includes the results' positions in the first one: x [N, C,
// in...] becomes [N · out, C · taps, in...].
Value without_depth(Emit& e, const Value& x, const Motion& m, int64_t taps, int64_t out) {
  const int64_t batch = x.dim(0), features = x.dim(1) / m.groups, rows = x.dim(3), columns = x.dim(4);
  const Value padded =
      e.transpose(e.pad_dim(x, 2, m.low[0], high_of(m, 0, x.dim(2), taps, out), m.spread[0] - 1), {0, 2, 1, 3, 4});
  Values met;
  for (int64_t tap = 0; tap < taps; ++tap) {
    const int64_t start = tap * m.dilation[0], end = start + (out - 1) * m.stride[0] + 1;
    const Value part =
        e.slice(padded, {0, start, 0, 0, 0}, {batch, end, x.dim(1), rows, columns}, {1, m.stride[0], 1, 1, 1});
    met.push_back(e.reshape(part, {batch * out, m.groups, 1, features, rows, columns}));
  }
  return e.reshape(e.concatenate(met, 2), {batch * out, x.dim(1) * taps, rows, columns});
}

Motion without_depth(Motion m) {
  for (Dims* dims : {&m.stride, &m.dilation, &m.spread, &m.low}) dims->erase(dims->begin());
  return m;
}

Value in_planes(Emit& e, const Value& x, const Value& w, bool swapped, const Motion& m, const Dims& out) {
  const int64_t taps = w.dim(2), rows = w.dim(3), columns = w.dim(4);
  const Value planes = without_depth(e, x, m, taps, out[2]);
  // the taps come before the features of a group
  const Value kernel = swapped ? e.reshape(e.transpose(w, {2, 0, 1, 3, 4}), {taps * w.dim(0), w.dim(1), rows, columns})
                               : e.reshape(e.transpose(w, {0, 2, 1, 3, 4}), {w.dim(0), taps * w.dim(1), rows, columns});
  const Value y = correlate(e, planes, kernel, swapped, without_depth(m), {out[0] * out[2], out[1], out[3], out[4]});
  return e.transpose(e.reshape(y, {out[0], out[2], out[1], out[3], out[4]}), {0, 2, 1, 3, 4});
}

Value kernel_in_planes(Emit& e, const Value& x, const Value& y, const Motion& m, const Dims& kernel) {
  const int64_t taps = kernel[2], out = y.dim(2);
  const Value planes = without_depth(e, x, m, taps, out);
  const Value gradient = e.reshape(e.transpose(y, {0, 2, 1, 3, 4}), {y.dim(0) * out, y.dim(1), y.dim(3), y.dim(4)});
  const Value flat =
      correlate_kernel(e, planes, gradient, without_depth(m), {kernel[0], taps * kernel[1], kernel[3], kernel[4]});
  return e.transpose(e.reshape(flat, {kernel[0], taps, kernel[1], kernel[3], kernel[4]}), {0, 2, 1, 3, 4});
}

Value correlate(Emit& e, const Value& x, const Value& w, bool swapped, const Motion& m, const Dims& out) {
  Dims kernel = w.dims();
  if (swapped) std::swap(kernel[0], kernel[1]);
  const Dims taps = spatial_of(kernel);
  if (is_sum(m, kernel)) return sum_over_taps(e, x, w, swapped, m, out);
  if (swapped && is_to_tiles(m, taps)) return product_to_tiles(e, x, w, m, out);
  if (!swapped && is_of_tiles(m, taps)) {
    return is_one_product(kernel, out) ? product_of_columns(e, x, w, false, m, out) : product_of_tiles(e, x, w, m, out);
  }
  if (has_few_positions(m, kernel, out)) return product_of_columns(e, x, w, swapped, m, out);
  if (taps.size() == 3) return in_planes(e, x, w, swapped, m, out);
  return correlate_whole(e, x, w, swapped, m, out);
}

Value correlate_kernel(Emit& e, const Value& x, const Value& y, const Motion& m, const Dims& kernel) {
  if (is_sum(m, kernel)) return kernel_of_taps(e, x, y, m, kernel);
  if (is_of_tiles(m, spatial_of(kernel))) {
    return is_one_product(kernel, y.dims()) ? kernel_of_columns(e, x, y, m, kernel)
                                            : kernel_of_tiles(e, x, y, m, kernel);
  }
  if (has_few_positions(m, kernel, y.dims())) return kernel_of_columns(e, x, y, m, kernel);
  if (kernel.size() == 5) return kernel_in_planes(e, x, y, m, kernel);
  return m.groups > 1 ? kernel_by_features(e, x, y, m, kernel)
                      : correlate_kernel_whole(e, x, y, m, kernel, Groups::kOfBatch);
}

}  // namespace

const Correlation kCorrelationOnCpu{correlate, correlate_kernel};
const Correlation kCorrelationWithKernels{
    correlate, correlate_kernel, {library_convolution, library_gradient_of_input, library_gradients_of_weight}};

}  // namespace tpjrt::ops
