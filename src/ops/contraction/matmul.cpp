// Matrix products: mm, bmm, mv, dot and the forms that add to a tensor.
//
// Half types are multiplied with f32 accumulation and rounded once, after alpha, beta and the added tensor, as on the
// CPU. alpha and beta are pinned: programs don't vary them, and most are 0 or 1, which cost nothing then.
#include <optional>

#include "ops/rule/dims.h"
#include "ops/rule/precision.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {
namespace {

// A few rows times the transpose of a large matrix, as a linear layer of a small batch is: a [m, k], w [n, k]. XLA:CPU takes
// ten to forty times as long for that product as for w times a's transpose, and would turn that one into this one but for
// the barrier. bf16 has kernels of its own, which are as fast either way; and the transpose, which XLA moves into a product that
// follows once the barrier is gone, makes one of it that they don't compute. Nothing if the product is not of this kind.
std::optional<Value> few_rows(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims,
                              ElementType out) {
  constexpr int64_t kFew = 64, kLarge = 1 << 16;
  if (!e.is_for_cpu() || a.element() == ElementType::kBF16) return {};
  if (a.rank() != 2 || b.rank() != 2 || dims.lhs_contracting != Dims{1} || !dims.lhs_batch.empty()) return {};
  const Value* w = dims.rhs_contracting == Dims{1} ? &b : e.transposed_from(b);
  if (!w || w->type.elements() < kLarge || a.dim(0) > kFew || 4 * a.dim(0) > w->dim(0)) return {};
  Value columns = e.dot_general(*w, a, {{}, {}, {1}, {1}}, out, precision_of(a.element()));
  return e.transpose(e.optimization_barrier({columns})[0], {1, 0});
}

// The products that XLA:CPU's own matrix kernel computes, without a wider dtype to accumulate in.
bool is_of_float_matrices(const Emit& e, const Value& a, const Value& b, ElementType out) {
  return e.is_for_cpu() && a.rank() == 2 && b.rank() == 2 && a.element() == out &&
         (out == ElementType::kF32 || out == ElementType::kF64);
}

// A product of a few thousand multiplications: XLA:CPU calls its matrix kernel for it, which costs more than the product,
// and fuses nothing into that call. Elementwise products and their sum become one loop with what is around them. Products
// with a vector are such loops already. Nothing if the product is not of this kind.
std::optional<Value> tiny(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims, ElementType out) {
  constexpr int64_t kTiny = 4096;
  if (!is_of_float_matrices(e, a, b, out) || !dims.lhs_batch.empty() || dims.lhs_contracting.size() != 1) return {};
  const int64_t a_contracted = dims.lhs_contracting[0], b_contracted = dims.rhs_contracting[0];
  const Dims full{a.dim(1 - a_contracted), b.dim(1 - b_contracted), a.dim(a_contracted)};  // rows, columns, contracted
  if (full[0] < 2 || full[1] < 2 || full[0] * full[1] * full[2] > kTiny) return {};
  auto spread = [&](const Value& x, int64_t contracted, int64_t free) {
    return e.broadcast_in_dim(x, full, contracted == 1 ? Dims{free, 2} : Dims{2, free});
  };
  const Value rows = spread(a, a_contracted, 0), columns = spread(b, b_contracted, 1);
  return e.sum(e.mul(rows, columns), {2});
}

// A row times a large matrix, as Conv1D's layers are when a token is decoded: XLA:CPU reads the matrix in one thread. As a
// batch of products, of pieces of the row with as many rows of the matrix each, it reads it in all. Nothing if the product is
// not of this kind.
std::optional<Value> one_row(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims, ElementType out) {
  constexpr int64_t kPieces = 8, kLarge = 1 << 18;
  if (!is_of_float_matrices(e, a, b, out)) return {};
  if (dims.lhs_contracting != Dims{1} || dims.rhs_contracting != Dims{0}) return {};
  const int64_t piece = b.dim(0) / kPieces;
  if (a.dim(0) != 1 || b.type.elements() < kLarge || piece * kPieces != b.dim(0)) return {};
  const Value row = e.reshape(a, {kPieces, piece}), matrix = e.reshape(b, {kPieces, piece, b.dim(1)});
  const Value pieces = e.dot_general(row, matrix, {{0}, {0}, {1}, {1}}, out, precision_of(out));
  return e.reshape(e.sum(pieces, {0}), {1, b.dim(1)});
}

// The transpose of a large matrix times a vector, as the gradient of a product with a vector is: XLA:CPU takes a hundred times
// as long for it as for the vector times the matrix. Nothing if the product is not of this kind.
std::optional<Value> turned_vector(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims,
                                   ElementType out) {
  if (!e.is_for_cpu() || a.rank() != 2 || b.rank() != 1 || dims.lhs_contracting != Dims{1}) return {};
  const Value* matrix = e.transposed_from(a);
  if (!matrix) return {};
  return e.dot_general(b, *matrix, {{}, {}, {0}, {0}}, out, precision_of(a.element()));
}

// The product in the dtype it is accumulated in. _int_mm and the .dtype overloads accumulate in their wider result.
Value product(Emit& e, const Call& c, const Value& a, const Value& b, const hlo::DotDimensions& dims) {
  ElementType in = a.element(), out = Emit::compute_element(in);
  if (hlo::is_integer(in)) out = e.element(c.result());
  if (b.element() != in) throw Mistake("matrices of different dtypes");
  if (in == ElementType::kPred) throw Unsupported("a matrix product of bools");
  if (auto swapped = few_rows(e, a, b, dims, out)) return *swapped;
  if (auto turned = turned_vector(e, a, b, dims, out)) return *turned;
  if (auto fused = tiny(e, a, b, dims, out)) return *fused;
  if (auto in_pieces = one_row(e, a, b, dims, out)) return *in_pieces;
  return e.dot_general(a, b, dims, out, precision_of(in));
}

Values matrix(Emit& e, const Call& c, std::string_view a, std::string_view b) {
  return {e.as(product(e, c, c.tensor(a), c.tensor(b), {{}, {}, {1}, {0}}), c.result())};
}

// beta * self + alpha * product. A factor of 0 leaves its operand out, NaN and infinities included; `always_product`:
// only beta does.
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
Values mm(Emit& e, const Call& c) { return matrix(e, c, "self", "mat2"); }

// aten::_int_mm: int8, or uint8 times int8, into int32.
Values int_mm(Emit& e, const Call& c) {
  const Value a = c.tensor("self"), b = c.tensor("mat2");
  if (a.element() == b.element()) return matrix(e, c, "self", "mat2");
  const ElementType out = e.element(c.result());
  return {e.dot_general(e.to(a, out), e.to(b, out), {{}, {}, {1}, {0}}, out, precision_of(out))};
}

// aten::bmm
Values bmm(Emit& e, const Call& c) {
  return {e.as(product(e, c, c.tensor("self"), c.tensor("mat2"), {{0}, {0}, {2}, {1}}), c.result())};
}

// aten::mv
Values mv(Emit& e, const Call& c) { return matrix(e, c, "self", "vec"); }

// aten::dot: complex numbers are not conjugated.
Values dot(Emit& e, const Call& c) {
  return {e.as(product(e, c, c.tensor("self"), c.tensor("tensor"), {{}, {}, {0}, {0}}), c.result())};
}

// aten::vdot: the first vector is conjugated.
Values vdot(Emit& e, const Call& c) {
  Value a = c.tensor("self");
  if (hlo::is_complex(a.element())) a = e.complex(e.unary("real", a), e.neg(e.unary("imag", a)));
  return {e.as(product(e, c, a, c.tensor("other"), {{}, {}, {0}, {0}}), c.result())};
}

// aten::addmm
Values addmm(Emit& e, const Call& c) {
  return plus(e, c, product(e, c, c.tensor("mat1"), c.tensor("mat2"), {{}, {}, {1}, {0}}));
}

// aten::linear: input · weightᵀ + bias; a weight of one dimension gives no features.
Values linear(Emit& e, const Call& c) {
  Value input = c.tensor("input"), weight = c.tensor("weight");
  const Dims dims = e.type_of(c.result()).dims;
  if (input.rank() > 2) {  // one batch
    const int64_t rows = count_of({dims.begin(), dims.end() - (weight.rank() - 1)});
    input = e.reshape(input, {rows, input.dims().back()});
  }
  Value x = e.reshape(product(e, c, input, weight, {{}, {}, {input.rank() - 1}, {weight.rank() - 1}}), dims);
  if (c.has("bias")) {
    if (c.tensor("bias").element() != input.element()) throw Mistake("a bias of another dtype");
    x = e.add(x, e.broadcast_to(e.to(c.tensor("bias"), x.element()), dims));
  }
  return {e.as(x, c.result())};
}

// aten::linear_backward: of a real matrix (device/override/linear.cpp sees to it); dimensions before the last are one
// batch.
Values linear_backward(Emit& e, const Call& c) {
  Value dy = c.tensor("grad_output");
  const Dims batch = range(0, dy.rank() - 1);
  Values grads(3);
  if (c.results[0]) grads[0] = product(e, c, dy, c.tensor("weight"), {{}, {}, {dy.rank() - 1}, {0}});
  if (c.results[1]) grads[1] = product(e, c, dy, c.tensor("self"), {{}, {}, batch, batch});
  if (c.results[2]) grads[2] = e.upcast(dy, [&](const Value& y) { return e.sum(y, batch); });
  for (size_t i = 0; i < 3; ++i) {
    if (c.results[i]) grads[i] = e.as(grads[i], c.result(i));
  }
  return grads;
}

// aten::addmv
Values addmv(Emit& e, const Call& c) {
  return plus(e, c, product(e, c, c.tensor("mat"), c.tensor("vec"), {{}, {}, {1}, {0}}));
}

// aten::baddbmm
Values baddbmm(Emit& e, const Call& c) {
  return plus(e, c, product(e, c, c.tensor("batch1"), c.tensor("batch2"), {{0}, {0}, {2}, {1}}));
}

// aten::addbmm: the batch is summed over, so it is one more contracted dimension.
Values addbmm(Emit& e, const Call& c) {
  return plus(e, c, product(e, c, c.tensor("batch1"), c.tensor("batch2"), {{}, {}, {0, 2}, {0, 1}}));
}

// aten::addr: an outer product is an elementwise one; of bools it is "and", added by "or".
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
  rules.add("aten::mm", mm);
  rules.add("aten::mm.dtype", mm);
  rules.add("aten::_int_mm", int_mm);
  rules.add("aten::bmm", bmm);
  rules.add("aten::bmm.dtype", bmm);
  rules.add("aten::mv", mv, kNotBools);
  rules.add("aten::dot", dot, kNotBools);
  rules.add("aten::vdot", vdot, kNotBools);
  rules.add("aten::addmm", addmm);
  rules.add("aten::addmm.dtype", addmm);
  rules.add("aten::linear", linear);
  rules.add("aten::linear_backward", linear_backward);
  rules.add("aten::addmv", addmv, kNotBools);
  rules.add("aten::baddbmm", baddbmm);
  rules.add("aten::baddbmm.dtype", baddbmm);
  rules.add("aten::addbmm", addbmm);
  rules.add("aten::addr", addr);
}

}  // namespace tpjrt::ops
