// The draws that ops/creation/random.cpp makes in a program, on the host. Draws by PyTorch's kernels, with corrections
// where these are wrong or never return.
#include "kernels/host/host_kernel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_sample_dirichlet.h>
#include <ATen/ops/_standard_gamma.h>
#include <ATen/ops/binomial.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/poisson.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <string>
#include <vector>

namespace tpjrt::kernels {

namespace {

const graph::TensorType& result_of(const HostArguments& call) { return *call.signature.results[0]; }

c10::ScalarType wide_enough(c10::ScalarType dtype) {
  return dtype == c10::kHalf || dtype == c10::kBFloat16 ? c10::kFloat : dtype;
}

// Returns the dtype of a draw in [0, 1) for results of this dtype.
c10::ScalarType unit_of(c10::ScalarType dtype) {
  return dtype == c10::kDouble || dtype == c10::kLong ? c10::kDouble : c10::kFloat;
}

// Computes x * factor + shift in place.
at::Tensor scaled(at::Tensor x, double factor, double shift) {
  if (factor != 1) x.mul_(factor);
  return shift == 0 ? x : x.add_(shift);
}

Tensors as_result(const HostArguments& call, const at::Tensor& x) { return {x.to(result_of(call).dtype)}; }

// Below this many numbers, the call overhead of each step would exceed the computation.
constexpr int64_t kFewNormals = 128;

// Returns Box and Muller's pairs from a uniform radius and angle: first all cosines, then all sines.
template <class T>
at::Tensor few_normals(const at::Tensor& radius, const at::Tensor& angle, c10::IntArrayRef sizes) {
  const at::Tensor result = at::empty(sizes, radius.options());
  const T* radii = radius.const_data_ptr<T>();
  const T* angles = angle.const_data_ptr<T>();
  T* data = result.mutable_data_ptr<T>();
  const int64_t n = result.numel(), half = radius.numel();
  for (int64_t i = 0; i < half; ++i) {
    const T length = std::sqrt(std::log(1 - radii[i]) * T{-2});
    const T turn = angles[i] * static_cast<T>(2 * std::numbers::pi);
    data[i] = length * std::cos(turn);
    if (half + i < n) data[half + i] = length * std::sin(turn);
  }
  return result;
}

at::Tensor random_normal(RandomState& state, c10::ScalarType dtype, c10::IntArrayRef sizes) {
  const int64_t n = c10::multiply_integers(sizes), half = (n + 1) / 2;
  at::Tensor radius = random_uniform(state, dtype, half), angle = random_uniform(state, dtype, half);
  if (n <= kFewNormals) {
    return dtype == c10::kDouble ? few_normals<double>(radius, angle, sizes) : few_normals<float>(radius, angle, sizes);
  }
  radius.neg_().add_(1).log_().mul_(-2).sqrt_();
  angle.mul_(2 * std::numbers::pi);
  return at::cat({radius * angle.cos(), radius * angle.sin()}).slice(0, 0, n).view(sizes);
}

Tensors uniform(const HostArguments& call) {
  const graph::TensorType& type = result_of(call);
  const double from = call.number("from"), to = call.number("to");
  TORCH_CHECK(from <= to, "uniform_: from is above to");
  RandomState state = call.state;
  const at::Tensor drawn = random_uniform(state, type.dtype, type.sizes);
  if (from == 0 && to == 1) return {drawn};
  return as_result(call, scaled(drawn.to(wide_enough(type.dtype)), to - from, from));
}

Tensors normal(const HostArguments& call) {
  const graph::TensorType& type = result_of(call);
  const double mean = call.number("mean"), std = call.number("std");
  RandomState state = call.state;
  if (!c10::isComplexType(type.dtype)) {
    return as_result(call, scaled(random_normal(state, wide_enough(type.dtype), type.sizes), std, mean));
  }
  const c10::ScalarType part = c10::toRealValueType(type.dtype);
  const at::Tensor real = scaled(random_normal(state, part, type.sizes), std / std::numbers::sqrt2, mean);
  return {at::complex(real, scaled(random_normal(state, part, type.sizes), std / std::numbers::sqrt2, 0))};
}

Tensors normal_tensors(const HostArguments& call) {
  const graph::TensorType& type = result_of(call);
  const auto operand = [&](std::string_view name) {
    const at::Tensor given = call.tensor(name);
    return given.defined() ? given.to(wide_enough(type.dtype))
                           : at::scalar_tensor(call.number(name), c10::TensorOptions(wide_enough(type.dtype)));
  };
  const at::Tensor mean = operand("mean"), deviation = operand("std");
  TORCH_CHECK((deviation >= 0).all().item().toBool(), "normal expects all elements of std >= 0.0");
  RandomState state = call.state;
  return as_result(call, random_normal(state, wide_enough(type.dtype), type.sizes).mul_(deviation).add_(mean));
}

Tensors bernoulli_of(const HostArguments& call, std::string_view name) {
  const graph::TensorType& type = result_of(call);
  at::Tensor p = call.tensor(name);
  p = p.to(p.scalar_type() == c10::kDouble ? c10::kDouble : c10::kFloat);
  TORCH_CHECK(((p >= 0) & (p <= 1)).all().item().toBool(),
              "Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
  RandomState state = call.state;
  return as_result(call, random_uniform(state, p.scalar_type(), type.sizes) < p);
}
Tensors bernoulli(const HostArguments& call) { return bernoulli_of(call, "self"); }
Tensors bernoulli_tensor(const HostArguments& call) { return bernoulli_of(call, "p"); }

Tensors bernoulli_p(const HostArguments& call) {
  const double p = call.number("p");
  TORCH_CHECK(p >= 0 && p <= 1, "bernoulli_: p is outside of [0, 1]");
  RandomState state = call.state;
  return as_result(call, random_chance(state, p, result_of(call).sizes));
}

// Draws integers in [from, to), with the same bits as a program.
Tensors random_between(const HostArguments& call, int64_t from, int64_t to) {
  TORCH_CHECK(from < to, "random_: to is not above from");
  RandomState state = call.state;
  const uint64_t range = static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
  return as_result(call, random_integers(state, from, range, result_of(call).sizes));
}

// Returns the number of integers from 0 on that the dtype holds exactly; 0 means 2^64.
uint64_t exact_integers(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kBool: return 2;
    case c10::kBFloat16: return (uint64_t{1} << 8) + 1;
    case c10::kHalf: return (uint64_t{1} << 11) + 1;
    case c10::kFloat: return (uint64_t{1} << 24) + 1;
    case c10::kDouble: return (uint64_t{1} << 53) + 1;
    case c10::kUInt64: return 0;
    default: break;
  }
  const size_t bits = 8 * c10::elementSize(dtype);
  return uint64_t{1} << (c10::isSignedType(dtype) ? bits - 1 : bits);
}

// Draws up to the dtype's largest integer.
Tensors random_up(const HostArguments& call, int64_t from) {
  const graph::TensorType& type = result_of(call);
  const uint64_t range = exact_integers(type.dtype) - static_cast<uint64_t>(from);
  RandomState state = call.state;
  return as_result(call, random_integers(state, from, range, type.sizes));
}
Tensors random_whole(const HostArguments& call) { return random_up(call, 0); }
Tensors random_to(const HostArguments& call) { return random_between(call, 0, call.integer("to")); }
Tensors random_from(const HostArguments& call) {
  const int64_t from = call.integer("from");
  return call.has("to") ? random_between(call, from, call.integer("to")) : random_up(call, from);
}

// Returns standard exponential numbers above zero.
at::Tensor random_exponential(RandomState& state, c10::ScalarType dtype, c10::IntArrayRef sizes) {
  const c10::ScalarType unit = unit_of(dtype);
  double least = unit == c10::kDouble ? 0x1p-54 : 0x1p-25;
  if (dtype == c10::kHalf) least = 0x1p-24;  // float16's smallest number
  return random_uniform(state, unit, sizes).neg_().log1p_().neg_().clamp_min_(least);
}

Tensors exponential(const HostArguments& call) {
  const graph::TensorType& type = result_of(call);
  RandomState state = call.state;
  return as_result(call, scaled(random_exponential(state, type.dtype, type.sizes), 1 / call.number("lambd"), 0));
}

Tensors geometric(const HostArguments& call) {
  const graph::TensorType& type = result_of(call);
  RandomState state = call.state;
  const at::Tensor trials = random_exponential(state, type.dtype, type.sizes);
  return as_result(call, scaled(trials, -1 / std::log1p(-call.number("p")), 0).ceil_().clamp_min_(1));
}

Tensors cauchy(const HostArguments& call) {
  const graph::TensorType& type = result_of(call);
  RandomState state = call.state;
  const at::Tensor angle =
      scaled(random_uniform(state, unit_of(type.dtype), type.sizes), std::numbers::pi, -std::numbers::pi / 2);
  return as_result(call, scaled(angle.sin() / angle.cos(), call.number("sigma"), call.number("median")));
}

Tensors log_normal(const HostArguments& call) {
  const graph::TensorType& type = result_of(call);
  RandomState state = call.state;
  const at::Tensor drawn = random_normal(state, wide_enough(type.dtype), type.sizes);
  return as_result(call, scaled(drawn, call.number("std"), call.number("mean")).exp_());
}

// Computes the cumulative sums in XLA:CPU's order: within blocks of 16, then over the blocks. Additions of several
// blocks alternate, because each addition of a block waits for the one before it.
template <class T>
void sum_up(std::span<T> x) {
  constexpr size_t kBlock = 16, kSeveral = 8 * kBlock;
  for (size_t first = 0; first < x.size(); first += kSeveral) {
    const size_t end = std::min(first + kSeveral, x.size());
    for (size_t i = 1; i < kBlock; ++i) {
      for (size_t at = first + i; at < end; at += kBlock) x[at] += x[at - 1];
    }
  }
  if (x.size() <= kBlock) return;
  std::vector<T> totals(x.size() / kBlock);
  for (size_t block = 0; block < totals.size(); ++block) totals[block] = x[block * kBlock + kBlock - 1];
  sum_up(std::span<T>(totals));
  for (size_t i = kBlock; i < x.size(); ++i) x[i] += totals[i / kBlock - 1];
}

// The cumulative sums of each row, and how many of them are below its total.
struct SummedUp {
  at::Tensor sums, below;
};

template <class T>
SummedUp summed_up(const at::Tensor& weights) {
  const int64_t rows = weights.size(0), n = weights.size(1);
  const SummedUp found{weights.clone(), at::empty({rows, 1}, at::kLong)};
  for (int64_t row = 0; row < rows; ++row) {
    const std::span<T> sums(found.sums.mutable_data_ptr<T>() + row * n, static_cast<size_t>(n));
    sum_up(sums);
    found.below.mutable_data_ptr<int64_t>()[row] =
        std::ranges::count_if(sums, [total = sums.back()](T sum) { return sum < total; });
  }
  return found;
}

// `by_entry`: uses the message of the kernel that checks one entry after the other.
void check_weights(const at::Tensor& weights, bool by_entry) {
  const at::Tensor least = weights.amin(1), most = weights.amax(1);  // aminmax of one row is not vectorized
  const auto holds = [](const at::Tensor& of_all) { return of_all.all().item().toBool(); };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (holds((least >= 0) & (most > 0) & (most < kInfinity))) return;
  if (by_entry) {
    const std::string wrong = "invalid multinomial distribution (encountering probability entry ";
    TORCH_CHECK(holds(least.isfinite() & most.isfinite()), wrong, "= infinity or NaN)");
    TORCH_CHECK(holds(least >= 0), wrong, "< 0)");
  } else {
    TORCH_CHECK(holds(most.isfinite() & (least >= 0)),
                "probability tensor contains either `inf`, `nan` or element < 0");
  }
  TORCH_CHECK(false, "invalid multinomial distribution (sum of probabilities <= 0)");
}

Tensors multinomial(const HostArguments& call) {
  const graph::TensorType& type = result_of(call);
  const at::Tensor given = call.tensor("self");
  const int64_t n = given.dim() == 0 ? 0 : given.size(-1), count = call.integer("num_samples");
  TORCH_CHECK(n > 0 && count > 0 && given.is_floating_point(), "multinomial: no categories, samples or probabilities");
  const c10::ScalarType dtype = wide_enough(given.scalar_type());
  const at::Tensor weights = given.to(dtype).reshape({-1, n}).contiguous();
  const bool replaces = call.flag("replacement");
  check_weights(weights, replaces && count > 1);
  RandomState state = call.state;
  if (replaces) {
    const auto [sums, below] = dtype == c10::kDouble ? summed_up<double>(weights) : summed_up<float>(weights);
    const at::Tensor total = sums.slice(1, n - 1), drawn = random_uniform(state, dtype, {weights.size(0), count});
    const at::Tensor passed = at::searchsorted(sums, drawn * total, /*out_int32=*/false, /*right=*/true);
    return {at::minimum(passed, below).view(type.sizes)};
  }
  const at::Tensor race = weights / random_exponential(state, dtype, weights.sizes());
  if (count == 1) return {race.argmax(1).view(type.sizes)};
  return {std::get<1>(race.topk(count, 1)).view(type.sizes)};
}

Tensors rrelu_with_noise(const HostArguments& call) {
  const at::Tensor x = call.tensor("self"), noise = call.tensor("noise");
  const double lower = call.number("lower"), upper = call.number("upper");
  const at::Tensor wide = x.to(wide_enough(x.scalar_type())), is_positive = wide > 0;
  if (!call.flag("training"))
    return {at::where(is_positive, wide, wide * ((lower + upper) / 2)).to(x.scalar_type()), noise};
  RandomState state = call.state;
  const at::Tensor slope = scaled(random_uniform(state, wide.scalar_type(), x.sizes()), upper - lower, lower);
  return {at::where(is_positive, wide, wide * slope).to(x.scalar_type()), slope.masked_fill(is_positive, 1)};
}

struct Entry {
  const char* name;
  HostKernel kernel;
  bool of_floats;  // the others return integers of any kind, too
};

constexpr Entry kDraws[] = {
    {"aten::uniform", uniform, true},
    {"aten::normal", normal, true},
    {"aten::normal_functional", normal, true},
    {"aten::normal.Tensor_float", normal_tensors, true},
    {"aten::normal.float_Tensor", normal_tensors, true},
    {"aten::normal.Tensor_Tensor", normal_tensors, true},
    {"aten::bernoulli", bernoulli, false},
    {"aten::bernoulli.Tensor", bernoulli_tensor, false},
    {"aten::bernoulli.p", bernoulli_p, false},
    {"aten::bernoulli.float", bernoulli_p, false},
    {"aten::random", random_whole, false},
    {"aten::random.to", random_to, false},
    {"aten::random.from", random_from, false},
    {"aten::exponential", exponential, true},
    {"aten::geometric", geometric, false},
    {"aten::cauchy", cauchy, true},
    {"aten::log_normal", log_normal, true},
    {"aten::rrelu_with_noise", rrelu_with_noise, true},
    {"aten::rrelu_with_noise_functional", rrelu_with_noise, true},
    {"aten::multinomial", multinomial, false},
};

// Returns whether PyTorch's CPU computes with this dtype directly.
bool takes(c10::ScalarType dtype, const Entry& draw) {
  const bool is_float = dtype == c10::kFloat || dtype == c10::kDouble || dtype == c10::kHalf || dtype == c10::kBFloat16;
  if (draw.of_floats && (dtype == c10::kComplexFloat || dtype == c10::kComplexDouble)) {
    return draw.kernel == normal;
  }
  return is_float || (!draw.of_floats && c10::isIntegralType(dtype, /*includeBool=*/true));
}

}  // namespace

HostKernel own_draw(const graph::Signature& signature) {
  std::string name = signature.name;  // in-place or not
  const size_t end = std::min(name.find('.'), name.size());
  if (name[end - 1] == '_') name.erase(end - 1, 1);
  for (const Entry& draw : kDraws) {
    if (name == draw.name) return takes(signature.results[0]->dtype, draw) ? draw.kernel : nullptr;
  }
  return nullptr;
}

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

c10::ScalarType dtype_of_result(const HostArguments& call) { return call.signature.results[0]->dtype; }

// Returns the argument in a dtype that its kernel takes, contiguous in the program's order, because the kernels draw
// one element after the other.
at::Tensor drawn_for(const HostArguments& call, std::string_view name) {
  const at::Tensor x = call.tensor(name);
  return x.to(x.scalar_type() == c10::kDouble ? c10::kDouble : c10::kFloat).contiguous();
}

// Returns the smallest normal number of the result's dtype.
double least(const HostArguments& call) {
  switch (dtype_of_result(call)) {
    case c10::kHalf: return std::numeric_limits<c10::Half>::min();
    case c10::kDouble: return std::numeric_limits<double>::min();
    default: return std::numeric_limits<float>::min();
  }
}

double below_one(const HostArguments& call) {
  switch (dtype_of_result(call)) {
    case c10::kHalf: return 1 - 0x1p-11;
    case c10::kBFloat16: return 1 - 0x1p-8;
    case c10::kDouble: return 1 - 0x1p-53;
    default: return 1 - 0x1p-24;
  }
}

Tensors poisson(const HostArguments& call) {
  constexpr double kMostCounted = 0x1p62;  // the kernel counts in int64
  const at::Tensor rate = drawn_for(call, "self");
  const at::Tensor counted = at::poisson(rate.clamp_max(kMostCounted), generator_of(call.state));
  return {at::where(rate <= kMostCounted, counted, rate)};
}

Tensors binomial(const HostArguments& call) {
  const at::Tensor count = drawn_for(call, "count"), chance = drawn_for(call, "prob");
  const at::Tensor is_none = count.isnan();  // the kernel would never end
  return {at::binomial(count.masked_fill(is_none, 0), chance, generator_of(call.state)).masked_fill_(is_none, kNone)};
}

// Returns NaN for a shape that is negative or NaN, for which the kernels give their smallest number.
Tensors standard_gamma(const HostArguments& call) {
  const at::Tensor shape = drawn_for(call, "self");
  at::Tensor drawn = at::_standard_gamma(shape, generator_of(call.state)).clamp_min_(least(call));
  return {drawn.masked_fill_((shape >= 0).logical_not_(), kNone)};
}

Tensors sample_dirichlet(const HostArguments& call) {
  const at::Tensor shape = drawn_for(call, "self");
  at::Tensor drawn = at::_sample_dirichlet(shape, generator_of(call.state)).clamp_(least(call), below_one(call));
  return {drawn.masked_fill_((shape >= 0).all(-1, /*keepdim=*/true).logical_not_(), kNone)};
}

Tensors randperm(const HostArguments& call) {
  const int64_t n = call.signature.results[0]->sizes[0];
  return {at::randperm(n, generator_of(call.state), at::TensorOptions(c10::kCPU).dtype(c10::kLong))};
}

}  // namespace

HostKernel pytorch_draw(const graph::Signature& signature) {
  const std::string& name = signature.name;
  if (name == "aten::poisson") return poisson;
  if (name == "aten::binomial") return binomial;
  if (name == "aten::_standard_gamma") return standard_gamma;
  if (name == "aten::_sample_dirichlet") return sample_dirichlet;
  return name == "aten::randperm" || name.starts_with("aten::randperm.") ? randperm : nullptr;
}

}  // namespace tpjrt::kernels
