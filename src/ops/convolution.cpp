// Convolutions of 1, 2 and 3 spatial dimensions, transposed ones, and their backward.
//
// All results come from three contractions: of input and weight (forward), of gradient and weight (the input's
// gradient), and of input and gradient (the weight's). A transposed convolution is the second one, so its backward is
// the first and the third. Everything is logically NCHW: batch 0, feature 1. `convolve` alone decides what executes it.
#include <functional>
#include <numeric>

#include "ops/precision.h"
#include "ops/rules.h"

namespace tpjrt::ops {
namespace {

struct Geometry {
  size_t spatial;  // how many spatial dimensions
  Dims stride, padding, dilation;
  int64_t groups;
  bool transposed;
};

Geometry geometry_of(const Call& c) {
  Geometry g;
  g.spatial = c.type("input").sizes.size() - 2;
  auto list = [&](std::string_view name) {
    Dims values = c.ints(name);
    return values.size() == 1 ? Dims(g.spatial, values[0]) : values;
  };
  g.stride = list("stride");
  g.padding = list("padding");
  g.dilation = list("dilation");
  g.groups = c.integer("groups");
  if (g.groups <= 0) throw Mistake("groups are counted from 1");
  g.transposed = c.boolean("transposed");
  for (const int64_t padding : g.padding) {
    if (padding < 0) throw Mistake("negative padding");
  }
  return g;
}

// XLA:CPU takes fifty times as long as the CPU's own kernels for depthwise convolutions; of few taps, they are sums of
// shifted copies. `kernel` is [O, I / groups, k...].
bool is_depthwise(const Emit& e, int64_t groups, const Dims& kernel) {
  constexpr int64_t kMostTaps = 64;
  const int64_t taps = std::accumulate(kernel.begin() + 2, kernel.end(), int64_t{1}, std::multiplies<>());
  return e.is_for_cpu() && groups > 1 && kernel[0] == groups && kernel[1] == 1 && taps <= kMostTaps;
}

// x [N, C, in...], dilated and padded as the window says, and what of it meets each tap of a weight of these sizes (the
// first two are features): [N, C, out...].
Values by_tap(Emit& e, const Value& x, const hlo::ConvolutionWindow& window, const Dims& weight, const Dims& out) {
  const Dims kernel(weight.begin() + 2, weight.end());
  Dims low{0, 0}, high{0, 0}, interior{0, 0};
  for (size_t i = 0; i < kernel.size(); ++i) {
    low.push_back(window.padding[i].first);
    high.push_back(window.padding[i].second);
    interior.push_back(window.lhs_dilation[i] - 1);
  }
  Value padded = e.pad(e.to(x, Emit::compute_element(x.element())), e.zeros({Emit::compute_element(x.element()), {}}),
                       low, high, interior);
  padded = e.optimization_barrier({padded})[0];  // made once, not in each tap
  Values taps;
  for (Dims tap(kernel.size(), 0);;) {
    Dims start{0, 0}, limit{x.dim(0), x.dim(1)}, step{1, 1};
    for (size_t i = 0; i < kernel.size(); ++i) {
      start.push_back(tap[i] * window.rhs_dilation[i]);
      limit.push_back(start.back() + (out[i + 2] - 1) * window.strides[i] + 1);
      step.push_back(window.strides[i]);
    }
    taps.push_back(e.slice(padded, start, limit, step));
    size_t i = kernel.size();
    while (i > 0 && ++tap[i - 1] == kernel[i - 1]) tap[--i] = 0;
    if (i == 0) return taps;
  }
}

// x with weight [C, 1, k...] (or [1, C, k...]), a kernel a feature.
Value depthwise(Emit& e, const Value& x, const Value& w, const hlo::ConvolutionWindow& window, const Dims& out) {
  const Values taps = by_tap(e, x, window, w.dims(), out);
  const int64_t features = x.dim(1), count = static_cast<int64_t>(taps.size());
  Value weights = e.reshape(e.to(w, taps[0].element()), {features, count}), sum;
  for (int64_t i = 0; i < count; ++i) {
    Value weight = e.reshape(e.cut(weights, 1, i, i + 1), {features});
    Value term = e.mul(taps[static_cast<size_t>(i)], e.broadcast_in_dim(weight, out, {1}));
    sum = i == 0 ? term : e.add(sum, term);
  }
  return e.to(sum, x.element());
}

// The weight's gradient [C, 1, k...] of that, for y [N, C, out...].
Value depthwise_weight_gradient(Emit& e, const Value& x, const Value& y, const hlo::ConvolutionWindow& window,
                                const Dims& kernel) {
  const Values taps = by_tap(e, x, window, kernel, y.dims());
  Dims all_but_features(y.dims().size() - 1, 0);
  std::iota(all_but_features.begin() + 1, all_but_features.end(), 2);
  Value gradient = e.to(y, taps[0].element());
  // One reduction of many operands: one kernel, where each of 49 would take XLA 50 ms to compile.
  Values products;
  for (const Value& tap : taps) products.push_back(e.mul(tap, gradient));
  const Values zeros(taps.size(), e.zeros({gradient.element(), {}}));
  Values sums = e.reduce(products, zeros, all_but_features, [&](const Values& sides) {
    Values totals;
    for (size_t i = 0; i < taps.size(); ++i) totals.push_back(e.add(sides[i], sides[taps.size() + i]));
    return totals;
  });
  for (Value& sum : sums) sum = e.reshape(sum, {x.dim(1), 1});
  return e.to(e.reshape(e.concatenate(sums, 1), kernel), x.element());
}

// One convolution as StableHLO states it.
Value convolve(Emit& e, const Value& lhs, const Value& rhs, const hlo::ConvolutionDimensions& dims,
               const hlo::ConvolutionWindow& window) {
  return e.convolution(lhs, rhs, dims, window, lhs.element(), precision_of(lhs.element()));
}

hlo::ConvolutionDimensions plain_dimensions(size_t spatial) {
  hlo::ConvolutionDimensions d;
  d.input_spatial.resize(spatial);
  std::iota(d.input_spatial.begin(), d.input_spatial.end(), 2);
  d.kernel_spatial = d.output_spatial = d.input_spatial;
  return d;
}

// What is padded above so that a window of `taps` moved in steps over `size` elements with `low` below gives `out`.
int64_t high_padding(int64_t size, int64_t low, int64_t taps, int64_t step, int64_t out) {
  return (out - 1) * step + taps - size - low;
}

// Result [N, O, out...] of input x [N, I, ...] and weight w [O, I / groups, k...].
Value forward(Emit& e, const Value& x, const Value& w, const Geometry& g, const Dims& out) {
  hlo::ConvolutionWindow window;
  window.strides = g.stride;
  window.rhs_dilation = g.dilation;
  window.lhs_dilation = Dims(g.spatial, 1);
  window.feature_groups = g.groups;
  for (size_t i = 0; i < g.spatial; ++i) {
    int64_t taps = g.dilation[i] * (w.dims()[i + 2] - 1) + 1, low = g.padding[i];
    int64_t high = high_padding(x.dims()[i + 2], low, taps, g.stride[i], out[i + 2]);
    // Symmetric where the window allows, since that is what libraries expect.
    if (high <= low && low - high < g.stride[i]) high = low;
    window.padding.emplace_back(low, high);
  }
  if (is_depthwise(e, g.groups, w.dims())) return depthwise(e, x, w, window, out);
  return convolve(e, x, w, plain_dimensions(g.spatial), window);
}

// The weight with inputs and outputs swapped within each group: [O, I / groups, k...] to [O / groups, I, k...].
Value swap_features(Emit& e, const Value& w, int64_t groups) {
  if (groups == 1) return w;
  const int64_t per_group = w.dim(0) / groups, inputs = w.dim(1);
  Dims split = w.dims(), joined = w.dims();
  split[0] = per_group;
  split.insert(split.begin(), groups);
  Dims order(split.size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[0], order[1]);
  joined[0] = per_group;
  joined[1] = groups * inputs;
  return e.reshape(e.transpose(e.reshape(w, split), order), joined);
}

// Gradient [N, I, in...] of the input, from y [N, O, ...] and w [O, I / groups, k...]: y is spread by the stride and
// convolved with the reversed kernel.
Value input_gradient(Emit& e, const Value& y, const Value& w, const Geometry& g, const Dims& in) {
  hlo::ConvolutionWindow window;
  window.strides = Dims(g.spatial, 1);
  window.lhs_dilation = g.stride;
  window.rhs_dilation = g.dilation;
  window.feature_groups = g.groups;
  for (size_t i = 0; i < g.spatial; ++i) {
    int64_t taps = g.dilation[i] * (w.dims()[i + 2] - 1) + 1, low = taps - 1 - g.padding[i];
    int64_t spread = (y.dims()[i + 2] - 1) * g.stride[i] + 1;
    window.padding.emplace_back(low, high_padding(spread, low, taps, 1, in[i + 2]));
  }
  hlo::ConvolutionDimensions dims = plain_dimensions(g.spatial);
  dims.kernel_input_feature = 0;
  dims.kernel_output_feature = 1;
  const Value swapped = e.reverse(swap_features(e, w, g.groups), dims.kernel_spatial);
  if (is_depthwise(e, g.groups, w.dims())) return depthwise(e, y, swapped, window, in);
  return convolve(e, y, swapped, dims, window);
}

// Gradient [O, I / groups, k...] of the weight, from x [N, I, ...] and y [N, O, ...]: the batch is what is contracted,
// and stride and dilation change places.
Value weight_gradient(Emit& e, const Value& x, const Value& y, const Geometry& g, const Dims& kernel) {
  hlo::ConvolutionWindow window;
  window.strides = g.dilation;
  window.lhs_dilation = Dims(g.spatial, 1);
  window.rhs_dilation = g.stride;
  window.batch_groups = g.groups;
  for (size_t i = 0; i < g.spatial; ++i) {
    int64_t taps = g.stride[i] * (y.dims()[i + 2] - 1) + 1, low = g.padding[i];
    window.padding.emplace_back(low, high_padding(x.dims()[i + 2], low, taps, g.dilation[i], kernel[i + 2]));
  }
  if (is_depthwise(e, g.groups, kernel)) {
    hlo::ConvolutionWindow forward = window;  // whose steps these are
    forward.strides = g.stride;
    forward.rhs_dilation = g.dilation;
    return depthwise_weight_gradient(e, x, y, forward, kernel);
  }
  hlo::ConvolutionDimensions dims = plain_dimensions(g.spatial);
  dims.input_batch = 1;
  dims.input_feature = 0;
  dims.kernel_input_feature = 0;
  dims.kernel_output_feature = 1;
  dims.output_batch = 1;
  dims.output_feature = 0;
  return convolve(e, x, y, dims, window);
}

bool empty(const Value& a, const Value& b) { return a.type.elements() == 0 || b.type.elements() == 0; }

// aten::convolution: the weight of a transposed one is [I, O / groups, k...], that of the convolution it reverses.
Values convolution(Emit& e, const Call& c) {
  Value x = c.tensor("input"), w = c.tensor("weight");
  const Geometry g = geometry_of(c);
  const Type out = e.type_of(c.result());
  Value y;
  if (empty(x, w)) {
    y = e.zeros(out);
  } else {
    y = g.transposed ? input_gradient(e, x, w, g, out.dims) : forward(e, x, w, g, out.dims);
  }
  if (auto bias = c.optional_tensor("bias")) {
    ElementType wide = Emit::compute_element(out.element);
    y = e.add(e.to(y, wide), e.broadcast_in_dim(e.to(*bias, wide), out.dims, {1}));
  }
  return {e.as(y, c.result())};
}

// aten::convolution_backward: gradients of input, weight and bias, those that output_mask asks for.
Values convolution_backward(Emit& e, const Call& c) {
  Value dy = c.tensor("grad_output"), x = c.tensor("input"), w = c.tensor("weight");
  const Geometry g = geometry_of(c);
  auto wanted = [&](size_t i) { return c.results.at(i) != nullptr; };
  Values grads(3);
  if (wanted(0)) {
    if (empty(dy, w))
      grads[0] = e.zeros(x.type);
    else if (g.transposed)
      grads[0] = forward(e, dy, w, g, x.dims());
    else
      grads[0] = input_gradient(e, dy, w, g, x.dims());
  }
  if (wanted(1)) {
    if (empty(dy, x))
      grads[1] = e.zeros(w.type);
    else if (g.transposed)
      grads[1] = weight_gradient(e, dy, x, g, w.dims());
    else
      grads[1] = weight_gradient(e, x, dy, g, w.dims());
  }
  if (wanted(2)) {
    Dims all_but_features = plain_dimensions(g.spatial).input_spatial;
    all_but_features.insert(all_but_features.begin(), 0);
    grads[2] = e.sum(dy, all_but_features);
  }
  for (size_t i = 0; i < 3; ++i) {
    if (wanted(i)) grads[i] = e.as(grads[i], c.result(i));
  }
  return grads;
}

}  // namespace

void add_convolution_rules(RuleTable& rules) {
  rules.add("aten::convolution", convolution);
  rules.add("aten::convolution_backward", convolution_backward);
}

}  // namespace tpjrt::ops
