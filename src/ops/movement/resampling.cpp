// Resampling of images: upsample_nearest, linear, bicubic and their antialiased forms, forward and backward.
//
// All are separable: along each dimension every output is a weighted sum of a few inputs, its taps. Their positions
// and weights are computed here, in torch's arithmetic, and are constants of the program.
#include <algorithm>
#include <bit>
#include <cmath>

#include "ops/rule/by_aten.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {

namespace {

struct Tap {
  int64_t index;
  double weight;
};
// One row for each output.
using Taps = std::vector<std::vector<Tap>>;

// How one dimension is resampled.
struct Axis {
  int64_t input, output;
  std::optional<double> scale;  // as the user gave it
  bool align_corners = false;
};

enum class Method : uint8_t { kNearest, kNearestExact, kLinear, kCubic, kLinearAntialias, kCubicAntialias };

// Returns how many input positions an output position advances; F is the arithmetic of the tensor's dtype.
template <class F>
F step_of(const Axis& a) {
  if (a.align_corners) return a.output > 1 ? static_cast<F>(a.input - 1) / static_cast<F>(a.output - 1) : F{0};
  if (a.scale && *a.scale > 0) return static_cast<F>(1.0 / *a.scale);
  return static_cast<F>(a.input) / static_cast<F>(a.output);
}

// torch computes nearest positions in float for all dtypes.
Taps nearest_taps(const Axis& a, bool exact) {
  Taps taps;
  const float step = step_of<float>(a);
  for (int64_t o = 0; o < a.output; ++o) {
    int64_t i = 0;
    if (!exact && a.output == a.input) {
      i = o;
    } else if (!exact && a.output == 2 * a.input) {
      i = o / 2;
    } else {
      i = static_cast<int64_t>(std::floor((static_cast<float>(o) + (exact ? 0.5F : 0.0F)) * step));
    }
    taps.push_back({{std::min(i, a.input - 1), 1}});
  }
  return taps;
}

template <class F>
F cubic_weight(F distance, F a) {
  const F x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

template <class F>
Taps interpolating_taps(const Axis& a, bool cubic) {
  Taps taps;
  const F step = step_of<F>(a);
  for (int64_t o = 0; o < a.output; ++o) {
    F source = a.align_corners ? step * static_cast<F>(o) : step * (static_cast<F>(o) + F(0.5)) - F(0.5);
    if (!cubic) source = a.input == a.output ? static_cast<F>(o) : std::max(source, F{0});
    const int64_t i = std::min(static_cast<int64_t>(std::floor(source)), a.input - 1);
    const F t = std::clamp(source - static_cast<F>(i), F{0}, F{1});
    std::vector<Tap> row;
    if (cubic) {
      for (int64_t k = -1; k <= 2; ++k) {
        row.push_back({std::clamp<int64_t>(i + k, 0, a.input - 1), cubic_weight(t - static_cast<F>(k), F(-0.75))});
      }
    } else {
      row = {{i, F{1} - t}, {std::min(i + 1, a.input - 1), t}};
    }
    taps.push_back(row);
  }
  return taps;
}

// A filter that shrinks the image is stretched over all inputs that fall into an output.
template <class F>
Taps antialiasing_taps(const Axis& a, bool cubic) {
  Taps taps;
  const F step = step_of<F>(a), half = cubic ? 2 : 1;
  const F support = step >= 1 ? half * step : half, shrink = step >= 1 ? 1 / step : F{1};
  for (int64_t o = 0; o < a.output; ++o) {
    const F center = step * (static_cast<F>(o) + F(0.5));
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + F(0.5)), 0);
    const int64_t end = std::min(static_cast<int64_t>(center + support + F(0.5)), a.input);
    std::vector<Tap> row;
    double total = 0;
    for (int64_t i = first; i < end; ++i) {
      const F distance = (static_cast<F>(i) - center + F(0.5)) * shrink;
      const double weight = cubic ? cubic_weight(distance, F(-0.5)) : std::max(F{0}, 1 - std::abs(distance));
      total += weight;
      row.push_back({i, weight});
    }
    if (total != 0) {
      for (Tap& tap : row) tap.weight /= total;
    }
    taps.push_back(row);
  }
  return taps;
}

Taps taps_of(const Axis& a, Method method, bool wide) {
  switch (method) {
    case Method::kNearest: return nearest_taps(a, false);
    case Method::kNearestExact: return nearest_taps(a, true);
    case Method::kLinear: return wide ? interpolating_taps<double>(a, false) : interpolating_taps<float>(a, false);
    case Method::kCubic: return wide ? interpolating_taps<double>(a, true) : interpolating_taps<float>(a, true);
    case Method::kLinearAntialias:
      return wide ? antialiasing_taps<double>(a, false) : antialiasing_taps<float>(a, false);
    case Method::kCubicAntialias: return wide ? antialiasing_taps<double>(a, true) : antialiasing_taps<float>(a, true);
  }
  return {};
}

// The k-th tap of every output, as constants; its weight is 0 for rows with fewer taps.
struct Column {
  Value index, weight;  // [output], kS32 and the requested element type
};

Column column(Emit& e, const Taps& taps, size_t k, ElementType element) {
  const auto n = static_cast<int64_t>(taps.size());
  std::vector<int64_t> indices;
  std::vector<double> weights;
  for (const auto& row : taps) {
    indices.push_back(k < row.size() ? row[k].index : 0);
    weights.push_back(k < row.size() ? row[k].weight : 0.0);
  }
  return {e.constant_dense(indices, Type{ElementType::kS32, {n}}), e.constant_dense(weights, Type{element, {n}})};
}

size_t most_taps(const Taps& taps) {
  size_t most = 0;
  for (const auto& row : taps) most = std::max(most, row.size());
  return most;
}

// Returns the factor by which every input is simply repeated, or 0.
int64_t repetition(const Taps& taps, int64_t input) {
  const auto output = static_cast<int64_t>(taps.size());
  if (input == 0 || output % input != 0) return 0;
  for (int64_t o = 0; o < output; ++o) {
    const auto& row = taps[static_cast<size_t>(o)];
    if (row.size() != 1 || row[0].index != o / (output / input)) return 0;
  }
  return output / input;
}

// Returns the [output, input] matrix of the weights.
Value matrix(Emit& e, const Taps& taps, int64_t input, ElementType element) {
  const Type type{element, {static_cast<int64_t>(taps.size()), input}};
  Value place = e.iota({ElementType::kS32, type.dims}, 1), sum;
  for (size_t k = 0; k < most_taps(taps); ++k) {
    const Column c = column(e, taps, k, element);
    Value hit = e.compare(hlo::Comparison::kEq, e.broadcast_in_dim(c.index, type.dims, {0}), place);
    Value term = e.select(hit, e.broadcast_in_dim(c.weight, type.dims, {0}), e.zeros(type));
    sum = sum ? e.add(sum, term) : term;
  }
  return sum;
}

// Contracts dim of x with the first (or second) dimension of m; m's other dimension takes its place.
Value contract(Emit& e, const Value& x, int64_t dim, const Value& m, int64_t m_dim) {
  hlo::DotDimensions dot;
  dot.lhs_contracting = {dim};
  dot.rhs_contracting = {m_dim};
  Value y = e.dot_general(x, m, dot, x.element(), "HIGHEST");
  Dims permutation;
  for (int64_t d = 0; d < x.rank(); ++d) permutation.push_back(d < dim ? d : d == dim ? x.rank() - 1 : d - 1);
  return e.transpose(y, permutation);
}

// Rows of floats with more taps than this use a product with the matrix of weights. XLA:CPU gathers elements fast: an
// image of 1920 x 1080 shrinks to 256 x 256 in 8 ms by its 15 taps, and in 79 ms by products.
constexpr size_t kMostGathered = 4, kMostGatheredOnCpu = 32;

Value resample(Emit& e, const Value& x, int64_t dim, const Taps& taps, size_t most_gathered) {
  if (int64_t factor = repetition(taps, x.dim(dim))) {
    if (factor == 1) return x;
    Dims wide = x.dims(), positions, dims = x.dims();
    wide.insert(wide.begin() + dim + 1, factor);
    dims[static_cast<size_t>(dim)] *= factor;
    for (int64_t d = 0; d < x.rank(); ++d) positions.push_back(d <= dim ? d : d + 1);
    return e.reshape(e.broadcast_in_dim(x, wide, positions), dims);
  }
  if (hlo::is_float(x.element()) && most_taps(taps) > most_gathered)
    return contract(e, x, dim, matrix(e, taps, x.dim(dim), x.element()), 1);
  const bool nearest = most_taps(taps) == 1;
  Value sum;
  for (size_t k = 0; k < most_taps(taps); ++k) {
    const Column c = column(e, taps, k, hlo::is_float(x.element()) ? x.element() : ElementType::kF32);
    Value term = e.take(x, c.index, dim);
    if (!nearest) term = e.mul(term, e.broadcast_in_dim(e.convert(c.weight, term.element()), term.dims(), {dim}));
    sum = sum ? e.add(sum, term) : term;
  }
  return sum;
}

// Computes the transpose of resample.
Value gather_back(Emit& e, const Value& grad, int64_t dim, const Taps& taps, int64_t input) {
  if (int64_t factor = repetition(taps, input)) {
    if (factor == 1) return grad;
    Dims apart = grad.dims();
    apart[static_cast<size_t>(dim)] = input;
    apart.insert(apart.begin() + dim + 1, factor);
    return e.sum(e.reshape(grad, apart), {dim + 1});
  }
  return contract(e, grad, dim, matrix(e, taps, input, grad.element()), 0);
}

// Returns the scale arguments, in order of dimension: "scales", or those of "scales_d", "scales_h", "scales_w" that
// exist.
std::vector<std::optional<double>> scales_of(const Call& c) {
  std::vector<std::optional<double>> scales;
  for (const Argument& argument : c.arguments) {
    if (argument.name.starts_with("scales")) scales.push_back(c.optional_real(argument.name));
  }
  return scales;
}

// Returns the spatial dimensions; images are [N, C, spatial...].
std::vector<Axis> axes_of(const Call& c, const Dims& input, const Dims& output) {
  bool align_corners = false;
  for (const Argument& argument : c.arguments) {
    if (argument.name == "align_corners") align_corners = c.boolean("align_corners");
  }
  std::vector<Axis> axes;
  for (const auto& scale : scales_of(c)) {
    const size_t dim = axes.size() + 2;
    axes.push_back({input[dim], output[dim], scale, align_corners});
  }
  return axes;
}

// Resamples bytes as the CPU does: the weights are integers of 16 bits, and each axis, the last one first, is rounded
// to bytes.
Value resample_bytes(Emit& e, Value x, const std::vector<Axis>& axes, Method method, size_t most_gathered) {
  for (size_t i = axes.size(); i-- > 0;) {
    Taps taps;
    double largest = 0;
    for (const auto& row : taps_of(axes[i], method, true)) {
      std::vector<Tap> merged;  // at the edges several taps read the same element
      for (const Tap& tap : row) {
        if (merged.empty() || merged.back().index != tap.index) merged.push_back({tap.index, 0});
        merged.back().weight += tap.weight;
        largest = std::max(largest, merged.back().weight);
      }
      taps.push_back(merged);
    }
    int64_t one = 1;
    while (one < (1 << 22) && std::round(largest * static_cast<double>(one * 2)) < (1 << 15)) one *= 2;
    for (auto& row : taps) {
      for (Tap& tap : row) tap.weight = std::round(tap.weight * static_cast<double>(one));
    }
    const Value sum = resample(e, e.convert(x, ElementType::kS32), static_cast<int64_t>(i) + 2, taps, most_gathered);
    const Type type = sum.type;
    const Value shift = e.constant(static_cast<int64_t>(std::countr_zero(static_cast<uint64_t>(one))), type);
    const Value y = e.binary("shift_right_arithmetic", e.add(sum, e.constant(one / 2, type)), shift);
    x = e.convert(e.clamp(e.constant(0, type), y, e.constant(255, type)), ElementType::kU8);
  }
  return x;
}

template <Method method, size_t most_gathered>
Values upsample(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  Value x = c.tensor("self");
  const bool nearest = method == Method::kNearest || method == Method::kNearestExact;
  const bool bytes = x.element() == ElementType::kU8 && (nearest || x.rank() == 4);
  if (!hlo::is_float(x.element()) && !bytes) throw Mistake("interpolation of integers");
  if (result.elements() == 0) return {e.zeros(result)};
  const auto axes = axes_of(c, x.dims(), result.dims);
  if (bytes && !nearest) return {resample_bytes(e, x, axes, method, most_gathered)};
  const bool wide = x.element() == ElementType::kF64;
  auto along = [&](Value y) {
    for (size_t i = 0; i < axes.size(); ++i) {
      y = resample(e, y, static_cast<int64_t>(i) + 2, taps_of(axes[i], method, wide), most_gathered);
    }
    return y;
  };
  return {nearest ? along(x) : e.upcast(x, along)};
}

template <Method method>
Values upsample_backward(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  Value grad = c.tensor("grad_output");
  if (result.elements() == 0 || grad.type.elements() == 0) return {e.zeros(result)};
  const auto axes = axes_of(c, result.dims, grad.dims());
  return {e.upcast(grad, [&](Value y) {
    const bool wide = y.element() == ElementType::kF64;
    for (size_t i = 0; i < axes.size(); ++i) {
      y = gather_back(e, y, static_cast<int64_t>(i) + 2, taps_of(axes[i], method, wide), axes[i].input);
    }
    return y;
  })};
}

// Returns the elements of gradients of long lines, whose products with the matrix of weights take time with the square
// of the length; 0 for shorter ones of other dtypes than bfloat16.
int64_t elements_of_long_lines(const std::vector<graph::TypePtr>& operands) {
  constexpr int64_t kLong = 1024;
  const graph::TypePtr grad = operands[0];
  const bool is_long = c10::isFloatingType(grad->dtype) && std::ranges::any_of(c10::IntArrayRef(grad->sizes).slice(2),
                                                                               [](int64_t n) { return n >= kLong; });
  return is_long ? grad->numel() : elements_of_bfloat16(operands);
}

// A gradient's result may have far more elements than its operands.
constexpr Platforms kBackwardByAten{.aten_from = 1024, .aten_work = elements_of_long_lines};

template <Method method>
void add_method(RuleTable& rules, const std::string& name, Platforms backward = {}, Platforms forward = {}) {
  forward.cpu = upsample<method, kMostGatheredOnCpu>;
  rules.add_composite("aten::" + name, upsample<method, kMostGathered>, forward);
  rules.add_composite("aten::" + name + "_backward", upsample_backward<method>, backward);
}

}  // namespace

void add_resampling_rules(RuleTable& rules) {
  for (const char* rank : {"1d", "2d", "3d"}) {
    add_method<Method::kNearest>(rules, std::string("upsample_nearest") + rank);
    add_method<Method::kNearestExact>(rules, std::string("_upsample_nearest_exact") + rank);
  }
  add_method<Method::kLinear>(rules, "upsample_linear1d", kBackwardByAten,
                              {.aten_from = kAtenFrom, .aten_kinds = kFloats});
  add_method<Method::kLinear>(rules, "upsample_bilinear2d", kBackwardByAten);
  add_method<Method::kLinear>(rules, "upsample_trilinear3d", kBackwardByAten);
  add_method<Method::kCubic>(rules, "upsample_bicubic2d");
  add_method<Method::kLinearAntialias>(rules, "_upsample_bilinear2d_aa");
  add_method<Method::kCubicAntialias>(rules, "_upsample_bicubic2d_aa");
}

}  // namespace tpjrt::ops
