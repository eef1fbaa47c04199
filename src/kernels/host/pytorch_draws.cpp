// Draws by PyTorch's kernels, with corrections where these are wrong or never return.
#include <ATen/ops/_sample_dirichlet.h>
#include <ATen/ops/_standard_gamma.h>
#include <ATen/ops/binomial.h>
#include <ATen/ops/poisson.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/where.h>

#include <limits>

#include "kernels/host/arguments.h"
#include "kernels/host/draws.h"

namespace tpjrt::kernels {
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
