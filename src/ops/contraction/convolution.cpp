// Convolutions of 1, 2 and 3 spatial dimensions, transposed ones, and their backward.
//
// All results come from three contractions: of input and weight (forward), of gradient and weight (the input's
// gradient), and of input and gradient (the weight's). A transposed convolution is the second one, so its backward is
// the first and the third. The platform chooses what executes them: ops/contraction/contraction.h.
#include <algorithm>

#include "graph/errors.h"
#include "ops/contraction/contraction.h"
#include "ops/rule/dims.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {
namespace {

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
  g.output_padding = list("output_padding");
  g.groups = c.integer("groups");
  if (g.groups <= 0) throw Mistake("groups are counted from 1");
  g.transposed = c.boolean("transposed");
  if (std::ranges::any_of(g.padding, [](int64_t n) { return n < 0; })) throw Mistake("negative padding");
  if (std::ranges::any_of(g.dilation, [](int64_t n) { return n <= 0; }))
    throw Mistake("dilation should be greater than zero");
  return g;
}

// Returns the result [N, O, out...] of input x [N, I, ...] and weight w [O, I / groups, k...].
Value forward(Emit& e, const Correlation& by, const Value& x, const Value& w, const Geometry& g, const Dims& out) {
  return by.result(e, x, w, false, {g.stride, g.dilation, Dims(g.spatial, 1), g.padding, g.groups}, out);
}

// Returns the weight with inputs and outputs swapped within each group: [O, I / groups, k...] to [O / groups, I,
// k...].
Value swap_features(Emit& e, const Value& w, int64_t groups) {
  if (groups == 1) return w;
  const int64_t per_group = w.dim(0) / groups, inputs = w.dim(1);
  Dims split = w.dims(), joined = w.dims();
  split[0] = per_group;
  split.insert(split.begin(), groups);
  Dims order = range(0, w.rank() + 1);
  std::swap(order[0], order[1]);
  joined[0] = per_group;
  joined[1] = groups * inputs;
  return e.reshape(e.transpose(e.reshape(w, split), order), joined);
}

// Returns the input's gradient [N, I, in...] from y [N, O, ...] and w [O, I / groups, k...]: y is dilated by the
// stride and convolved with the reversed kernel.
Value input_gradient(Emit& e, const Correlation& by, const Value& y, const Value& w, const Geometry& g,
                     const Dims& in) {
  Motion m{Dims(g.spatial, 1), g.dilation, g.stride, {}, g.groups};
  for (size_t i = 0; i < g.spatial; ++i) m.low.push_back(g.dilation[i] * (w.dims()[i + 2] - 1) - g.padding[i]);
  return by.result(e, y, e.reverse(swap_features(e, w, g.groups), range(2, w.rank())), true, m, in);
}

// Returns the weight's gradient [O, I / groups, k...] from x [N, I, ...] and y [N, O, ...].
Value weight_gradient(Emit& e, const Correlation& by, const Value& x, const Value& y, const Geometry& g,
                      const Dims& kernel) {
  return by.kernel(e, x, y, {g.stride, g.dilation, Dims(g.spatial, 1), g.padding, g.groups}, kernel);
}

// Throws Mistake for calls that the CPU's kernels refuse and the Meta kernel accepts.
void check(const Call& c, const Value& x, const Value& w, const Geometry& g, const Type& out) {
  const auto of_another_dtype = [&](std::string_view name) { return c.type(name).dtype != c.type("input").dtype; };
  if (of_another_dtype("weight")) throw Mistake("a weight of another dtype");
  if (c.has("bias")) {
    if (of_another_dtype("bias")) throw Mistake("a bias of another dtype");
    if (c.tensor("bias").dims() != Dims{out.dims[1]}) throw Mistake("a bias of another size");
  }
  if (x.dim(1) != (g.transposed ? w.dim(0) : w.dim(1) * g.groups)) throw Mistake("other channels than the weight's");
  if (x.type.elements() == 0 && x.dim(0) != 0 && x.dim(1) != 0) throw Mistake("there is nothing to convolve");
  for (size_t i = 0; i < g.spatial && g.transposed; ++i) {
    const int64_t more = g.output_padding[i];
    if (more < 0 || (more >= g.stride[i] && more >= g.dilation[i])) throw Mistake("the output's padding is too large");
  }
  if (w.dim(0) < g.groups || std::ranges::count(range(2, w.rank()), 0, [&](int64_t i) { return w.dim(i); }) > 0 ||
      (g.transposed && w.dim(1) == 0))
    throw Mistake("there is no kernel");
  if (g.transposed && x.dim(0) != 0 && out.elements() == 0) throw Mistake("there is no output");
}

bool empty(const Value& a, const Value& b) { return a.type.elements() == 0 || b.type.elements() == 0; }

// aten::convolution: the weight of a transposed convolution is [I, O / groups, k...], the weight of the convolution
// that it reverses.
template <const Correlation& by>
Values convolution(Emit& e, const Call& c) {
  Value x = c.tensor("input"), w = c.tensor("weight");
  const Geometry g = geometry_of(c);
  const Type out = e.type_of(c.result());
  check(c, x, w, g, out);
  const auto bias = c.optional_tensor("bias");
  Value y;
  if (empty(x, w)) {
    y = e.zeros(out);
  } else {
    if (by.library.convolution != nullptr) {
      if (auto done = by.library.convolution(e, x, w, bias, g, out)) return {e.as(*done, c.result())};
    }
    y = g.transposed ? input_gradient(e, by, x, w, g, out.dims) : forward(e, by, x, w, g, out.dims);
  }
  if (bias) {
    ElementType wide = Emit::compute_element(out.element);
    y = e.add(e.to(y, wide), e.broadcast_in_dim(e.to(*bias, wide), out.dims, {1}));
  }
  return {e.as(y, c.result())};
}

// aten::convolution_backward: the gradients of input, weight and bias that output_mask asks for.
template <const Correlation& by>
Values convolution_backward(Emit& e, const Call& c) {
  Value dy = c.tensor("grad_output"), x = c.tensor("input"), w = c.tensor("weight");
  const Geometry g = geometry_of(c);
  auto wanted = [&](size_t i) { return c.results.at(i) != nullptr; };
  Values grads(3);
  if (wanted(0)) {
    if (empty(dy, w))
      grads[0] = e.zeros(x.type);
    else if (auto done = by.library.of_input ? by.library.of_input(e, dy, x, w, g) : std::nullopt)
      grads[0] = *done;
    else if (g.transposed)
      grads[0] = forward(e, by, dy, w, g, x.dims());
    else
      grads[0] = input_gradient(e, by, dy, w, g, x.dims());
  }
  if (wanted(1)) {
    if (empty(dy, x))
      grads[1] = e.zeros(w.type);
    else if (auto done = by.library.of_weight ? by.library.of_weight(e, dy, x, w, g, wanted(2)) : std::nullopt)
      std::copy(done->begin(), done->end(), grads.begin() + 1);
    else if (g.transposed)
      grads[1] = weight_gradient(e, by, dy, x, g, w.dims());
    else
      grads[1] = weight_gradient(e, by, x, dy, g, w.dims());
  }
  if (wanted(2) && grads[2].id < 0) {
    Dims all_but_features = range(1, dy.rank());
    all_but_features[0] = 0;
    grads[2] = e.sum(dy, all_but_features);
  }
  for (size_t i = 0; i < 3; ++i) {
    if (wanted(i)) grads[i] = e.as(grads[i], c.result(i));
  }
  return grads;
}

// cuDNN has no convolutions of integers, so PyTorch's CUDA has none either.
Values convolution_on_cuda(Emit& e, const Call& c) {
  const auto dtype = c.result().dtype;
  if (c10::isIntegralType(dtype, /*includeBool=*/true)) {
    throw graph::NotOnDevice(c10::str("[", c.name, "] \"cudnn_convolution\" not implemented for '", dtype,
                                      "': NVIDIA's GPUs convolve floats. Convert input and weight, as by .float()"));
  }
  return convolution<kWhole>(e, c);
}

// torch_pjrt::frozen_convolution: the weight belongs to this process, so only programs with the CPU's kernels can
// have it.
Values frozen_convolution(Emit& /*e*/, const Call& /*c*/) {
  throw Unsupported("its weight is frozen as the CPU's kernels have it");
}

}  // namespace

void add_convolution_rules(RuleTable& rules) {
  rules.add("torch_pjrt::frozen_convolution", frozen_convolution,
            Platforms{.with_kernels = library_frozen_convolution});
  rules.add_composite("aten::convolution", convolution<kWhole>,
                      {.cpu = convolution<kCorrelationOnCpu>,
                       .cuda = convolution_on_cuda,
                       .with_kernels = convolution<kCorrelationWithKernels>,
                       .aten_from = kAtenFrom,
                       .aten_kinds = kIntegers},
                      kNotBools);
  rules.add_composite(
      "aten::convolution_backward", convolution_backward<kWhole>,
      {.cpu = convolution_backward<kCorrelationOnCpu>, .with_kernels = convolution_backward<kCorrelationWithKernels>},
      kNotBools);
}

}  // namespace tpjrt::ops
