// Matrix products: mm, bmm, mv, dot and the forms that add to a tensor.
//
// Half types are multiplied with f32 accumulation and rounded once, after alpha, beta and the added tensor, as on the
// CPU. alpha and beta are pinned: programs don't vary them, and most are 0 or 1, which cost nothing then.
#include "ops/contraction/contraction.h"
#include "ops/rule/dims.h"
#include "ops/rule/precision.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {
namespace {

Value as_it_is(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims, ElementType out) {
  return e.dot_general(a, b, dims, out, product_precision(e, a.element()));
}
constexpr Product kPlain{as_it_is};

// Returns the product before it is rounded to the result's dtype (see Product). _int_mm and the .dtype overloads
// accumulate in their wider result.
template <const Product& by>
Value product(Emit& e, const Call& c, const Value& a, const Value& b, const hlo::DotDimensions& dims) {
  ElementType in = a.element(), out = Emit::compute_element(in);
  if (hlo::is_integer(in)) out = e.element(c.result());
  if (b.element() != in) throw Mistake("matrices of different dtypes");
  if (in == ElementType::kPred) throw Unsupported("a matrix product of bools");
  return by.times(e, a, b, dims, out);
}

template <const Product& by>
Values matrix(Emit& e, const Call& c, std::string_view a, std::string_view b) {
  return {e.as(product<by>(e, c, c.tensor(a), c.tensor(b), {{}, {}, {1}, {0}}), c.result())};
}

// Returns beta * self + alpha * a · b from one call that rounds once, or nothing where `plus` must add them.
template <const Product& by>
std::optional<Values> in_one_call(Emit& e, const Call& c, const Value& a, const Value& b,
                                  const hlo::DotDimensions& dims) {
  const ElementType element = a.element();
  if constexpr (by.plus == nullptr) return {};
  if (element != e.element(c.result()) || !hlo::is_float(element) || b.element() != element) return {};
  const double beta = c.constant_scalar("beta").toDouble(), alpha = c.constant_scalar("alpha").toDouble();
  if (beta == 0 || alpha == 0 || c.tensor("self").element() != element) return {};
  const auto sum = by.plus(e, a, b, dims, {c.tensor("self"), beta, alpha});
  if (!sum) return {};
  return Values{*sum};
}

// Returns beta * self + alpha * product. A factor of 0 drops its operand, NaN and infinities included; with
// `always_product` only beta does.
Values plus(Emit& e, const Call& c, const Value& product, bool always_product = false) {
  Type type{product.element(), e.type_of(c.result()).dims};
  auto term = [&](std::string_view factor, const Value& x) -> Value {
    c10::Scalar value = c.constant_scalar(factor);
    if (value.equal(0) && !(always_product && factor == "alpha")) return {};
    Value full = e.broadcast_to(e.to(x, type.element), type.dims);
    return value.equal(1) ? full : e.mul(full, e.broadcast_to(c.scalar(e, factor, type.element), type.dims));
  };
  Value x = term("alpha", product), self = term("beta", c.tensor("self"));
  if (!x) x = e.zeros(type);
  return {e.as(self ? e.add(x, self) : x, c.result())};
}

// aten::mm; mm.dtype gives a wider result.
template <const Product& by>
Values mm(Emit& e, const Call& c) {
  return matrix<by>(e, c, "self", "mat2");
}

// aten::_int_mm: int8, or uint8 times int8, into int32.
template <const Product& by>
Values int_mm(Emit& e, const Call& c) {
  const Value a = c.tensor("self"), b = c.tensor("mat2");
  if (a.element() == b.element()) return matrix<by>(e, c, "self", "mat2");
  const ElementType out = e.element(c.result());
  return {e.dot_general(e.to(a, out), e.to(b, out), {{}, {}, {1}, {0}}, out, product_precision(e, out))};
}

// aten::bmm
template <const Product& by>
Values bmm(Emit& e, const Call& c) {
  return {e.as(product<by>(e, c, c.tensor("self"), c.tensor("mat2"), {{0}, {0}, {2}, {1}}), c.result())};
}

// aten::mv
template <const Product& by>
Values mv(Emit& e, const Call& c) {
  return matrix<by>(e, c, "self", "vec");
}

// aten::dot: complex numbers are not conjugated.
Values dot(Emit& e, const Call& c) {
  return {e.as(product<kPlain>(e, c, c.tensor("self"), c.tensor("tensor"), {{}, {}, {0}, {0}}), c.result())};
}

// aten::vdot: the first vector is conjugated.
Values vdot(Emit& e, const Call& c) {
  Value a = c.tensor("self");
  if (hlo::is_complex(a.element())) a = e.complex(e.unary("real", a), e.neg(e.unary("imag", a)));
  return {e.as(product<kPlain>(e, c, a, c.tensor("other"), {{}, {}, {0}, {0}}), c.result())};
}

// XLA:CPU multiplies vectors one element after the other, each waiting for the last. A sum in parts is faster
// (CpuLowerings::sum).
Values line_product(Emit& e, const Call& c, const Value& a, const Value& b) {
  if (a.element() != b.element()) throw Mistake("vectors of different dtypes");
  const ElementType element = Emit::compute_element(a.element());
  return {e.as(e.sum(e.mul(e.to(a, element), e.to(b, element)), {0}), c.result())};
}

Values dot_on_cpu(Emit& e, const Call& c) {
  const bool is_complex = hlo::is_complex(c.tensor("self").element());
  return is_complex ? dot(e, c) : line_product(e, c, c.tensor("self"), c.tensor("tensor"));
}

Values vdot_on_cpu(Emit& e, const Call& c) {
  const bool is_complex = hlo::is_complex(c.tensor("self").element());
  return is_complex ? vdot(e, c) : line_product(e, c, c.tensor("self"), c.tensor("other"));
}

// aten::addmm
template <const Product& by>
Values addmm(Emit& e, const Call& c) {
  const Value a = c.tensor("mat1"), b = c.tensor("mat2");
  if (auto sum = in_one_call<by>(e, c, a, b, {{}, {}, {1}, {0}})) return *sum;
  return plus(e, c, product<by>(e, c, a, b, {{}, {}, {1}, {0}}));
}

// Makes one batch of the dimensions before the last. XLA:CPU brings a product of several rows' dimensions into the form
// of matrices itself, and copies both operands on the way.
Value as_matrix(Emit& e, const Value& x) {
  return x.rank() <= 2 ? x : e.reshape(x, {count_of({x.dims().begin(), x.dims().end() - 1}), x.dims().back()});
}

// aten::linear: input · weightᵀ + bias; a weight of one dimension gives no features.
template <const Product& by>
Values linear(Emit& e, const Call& c) {
  const Value input = as_matrix(e, c.tensor("input")), weight = c.tensor("weight");
  const Dims dims = e.type_of(c.result()).dims;
  const hlo::DotDimensions last{{}, {}, {input.rank() - 1}, {weight.rank() - 1}};
  if (c.has("bias")) {
    if (c.tensor("bias").element() != input.element()) throw Mistake("a bias of another dtype");
    if constexpr (by.plus != nullptr) {
      const auto sum = by.plus(e, input, weight, last, {c.tensor("bias")});
      if (sum) return {e.as(e.reshape(*sum, dims), c.result())};
    }
  }
  Value x = e.reshape(product<by>(e, c, input, weight, last), dims);
  if (c.has("bias")) {
    x = e.add(x, e.broadcast_to(e.to(c.tensor("bias"), x.element()), dims));
  }
  return {e.as(x, c.result())};
}

// aten::linear_backward: the operands are real matrices (device/override/linear.cpp makes sure of it).
template <const Product& by>
Values linear_backward(Emit& e, const Call& c) {
  const Value dy = as_matrix(e, c.tensor("grad_output"));
  const Dims batch = range(0, dy.rank() - 1);
  Values grads(3);
  if (c.results[0]) grads[0] = product<by>(e, c, dy, c.tensor("weight"), {{}, {}, {dy.rank() - 1}, {0}});
  if (c.results[1]) grads[1] = product<by>(e, c, dy, as_matrix(e, c.tensor("self")), {{}, {}, batch, batch});
  if (c.results[2]) grads[2] = e.upcast(dy, [&](const Value& y) { return e.sum(y, batch); });
  for (size_t i = 0; i < 3; ++i) {
    if (c.results[i]) grads[i] = e.as(e.reshape(grads[i], e.type_of(c.result(i)).dims), c.result(i));
  }
  return grads;
}

// aten::addmv
template <const Product& by>
Values addmv(Emit& e, const Call& c) {
  return plus(e, c, product<by>(e, c, c.tensor("mat"), c.tensor("vec"), {{}, {}, {1}, {0}}));
}

// aten::baddbmm
template <const Product& by>
Values baddbmm(Emit& e, const Call& c) {
  const Value a = c.tensor("batch1"), b = c.tensor("batch2");
  if (auto sum = in_one_call<by>(e, c, a, b, {{0}, {0}, {2}, {1}})) return *sum;
  return plus(e, c, product<by>(e, c, a, b, {{0}, {0}, {2}, {1}}));
}

// aten::addbmm: the batch is summed over, so it is one more contracted dimension.
Values addbmm(Emit& e, const Call& c) {
  return plus(e, c, product<kPlain>(e, c, c.tensor("batch1"), c.tensor("batch2"), {{}, {}, {0, 2}, {0, 1}}));
}

// aten::addr: an outer product is an elementwise one; for bools it is "and", added by "or".
Values addr(Emit& e, const Call& c) {
  ElementType element = Emit::compute_element(e.element(c.result()));
  Value a = e.to(c.tensor("vec1"), element), b = e.to(c.tensor("vec2"), element);
  Dims dims{a.dim(0), b.dim(0)};
  a = e.broadcast_in_dim(a, dims, {0});
  b = e.broadcast_in_dim(b, dims, {1});
  if (element != ElementType::kPred) return plus(e, c, e.mul(a, b), true);
  Value x = e.binary("and", e.binary("and", a, b), e.broadcast_to(c.scalar(e, "alpha", element), dims));
  Value self = e.broadcast_to(e.to(c.tensor("self"), element), dims);
  return {e.binary("or", x, e.binary("and", self, e.broadcast_to(c.scalar(e, "beta", element), dims)))};
}

}  // namespace

void add_matmul_rules(RuleTable& rules) {
  // The platforms of a product: the CPU's rules, and PyTorch's kernel for integers.
  const auto by = [](Rule cpu, Rule with_kernels = nullptr) {
    return Platforms{.cpu = cpu, .with_kernels = with_kernels, .aten_from = kAtenFrom, .aten_kinds = kIntegers};
  };
  rules.add_composite("aten::mm", mm<kPlain>, by(mm<kOnCpu>, mm<kWithKernels>));
  rules.add_composite("aten::mm.dtype", mm<kPlain>, {.cpu = mm<kOnCpu>, .with_kernels = mm<kWithKernels>});
  rules.add_composite("aten::_int_mm", int_mm<kPlain>, {.cpu = int_mm<kOnCpu>, .with_kernels = int_mm<kWithKernels>});
  rules.add_composite("aten::bmm", bmm<kPlain>, by(nullptr, bmm<kWithKernels>));
  rules.add_composite("aten::bmm.dtype", bmm<kPlain>, {.with_kernels = bmm<kWithKernels>});
  rules.add_composite("aten::mv", mv<kPlain>, by(mv<kOnCpu>), kNotBools);
  rules.add_composite("aten::dot", dot, {.cpu = dot_on_cpu}, kNotBools);
  rules.add_composite("aten::vdot", vdot, {.cpu = vdot_on_cpu}, kNotBools);
  rules.add_composite("aten::addmm", addmm<kPlain>, by(addmm<kOnCpu>, addmm<kWithKernels>));
  rules.add_composite("aten::addmm.dtype", addmm<kPlain>, {.cpu = addmm<kOnCpu>, .with_kernels = addmm<kWithKernels>});
  rules.add_composite("aten::linear", linear<kPlain>, by(linear<kOnCpu>, linear<kWithKernels>));
  rules.add_composite("aten::linear_backward", linear_backward<kPlain>,
                      {.cpu = linear_backward<kOnCpu>, .with_kernels = linear_backward<kWithKernels>});
  rules.add_composite("aten::addmv", addmv<kPlain>, by(addmv<kOnCpu>), kNotBools);
  rules.add_composite("aten::baddbmm", baddbmm<kPlain>, by(nullptr, baddbmm<kWithKernels>));
  rules.add_composite("aten::baddbmm.dtype", baddbmm<kPlain>, {.with_kernels = baddbmm<kWithKernels>});
  rules.add_composite("aten::addbmm", addbmm, kIntegersByAten);
  rules.add_composite("aten::addr", addr);
}

}  // namespace tpjrt::ops
