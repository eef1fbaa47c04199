// Products that XLA:CPU takes better otherwise than as they are called.
#include "ops/contraction/product.h"

#include <optional>

#include "ops/rule/precision.h"

namespace tpjrt::ops {
namespace {

// A few rows times the transpose of a large matrix, as a linear layer of a small batch is: a [m, k], w [n, k]. XLA:CPU takes
// ten to forty times as long for that product as for w times a's transpose, and would turn that one into this one but for
// the barrier. bf16 has kernels of its own, which are as fast either way; and the transpose, which XLA moves into a product that
// follows once the barrier is gone, makes one of it that they don't compute. Nothing if the product is not of this kind.
std::optional<Value> few_rows(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims,
                              ElementType out) {
  constexpr int64_t kFew = 64, kLarge = 1 << 16;
  if (a.element() == ElementType::kBF16) return {};
  if (a.rank() != 2 || b.rank() != 2 || dims.lhs_contracting != Dims{1} || !dims.lhs_batch.empty()) return {};
  const Value* w = dims.rhs_contracting == Dims{1} ? &b : e.transposed_from(b);
  if (!w || w->type.elements() < kLarge || a.dim(0) > kFew || 4 * a.dim(0) > w->dim(0)) return {};
  Value columns = e.dot_general(*w, a, {{}, {}, {1}, {1}}, out, product_precision(e, a.element()));
  return e.transpose(e.optimization_barrier({columns})[0], {1, 0});
}

// The products that XLA:CPU's own matrix kernel computes, without a wider dtype to accumulate in.
bool is_of_float_matrices(const Value& a, const Value& b, ElementType out) {
  return a.rank() == 2 && b.rank() == 2 && a.element() == out && (out == ElementType::kF32 || out == ElementType::kF64);
}

// A product of a few thousand multiplications: XLA:CPU calls its matrix kernel for it, which costs more than the product,
// and fuses nothing into that call. Elementwise products and their sum become one loop with what is around them. Products
// with a vector are such loops already. Nothing if the product is not of this kind.
std::optional<Value> tiny(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims, ElementType out) {
  constexpr int64_t kTiny = 4096;
  if (!is_of_float_matrices(a, b, out) || !dims.lhs_batch.empty() || dims.lhs_contracting.size() != 1) return {};
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
  if (!is_of_float_matrices(a, b, out)) return {};
  if (dims.lhs_contracting != Dims{1} || dims.rhs_contracting != Dims{0}) return {};
  const int64_t piece = b.dim(0) / kPieces;
  if (a.dim(0) != 1 || b.type.elements() < kLarge || piece * kPieces != b.dim(0)) return {};
  const Value row = e.reshape(a, {kPieces, piece}), matrix = e.reshape(b, {kPieces, piece, b.dim(1)});
  const Value pieces = e.dot_general(row, matrix, {{0}, {0}, {1}, {1}}, out, product_precision(e, out));
  return e.reshape(e.sum(pieces, {0}), {1, b.dim(1)});
}

// The transpose of a large matrix times a vector, as the gradient of a product with a vector is: XLA:CPU takes a hundred times
// as long for it as for the vector times the matrix. Nothing if the product is not of this kind.
std::optional<Value> turned_vector(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims,
                                   ElementType out) {
  if (a.rank() != 2 || b.rank() != 1 || dims.lhs_contracting != Dims{1}) return {};
  const Value* matrix = e.transposed_from(a);
  if (!matrix) return {};
  return e.dot_general(b, *matrix, {{}, {}, {0}, {0}}, out, product_precision(e, a.element()));
}

}  // namespace

Value product_on_cpu(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims, ElementType out) {
  if (auto swapped = few_rows(e, a, b, dims, out)) return *swapped;
  if (auto turned = turned_vector(e, a, b, dims, out)) return *turned;
  if (auto fused = tiny(e, a, b, dims, out)) return *fused;
  if (auto in_pieces = one_row(e, a, b, dims, out)) return *in_pieces;
  return e.dot_general(a, b, dims, out, product_precision(e, a.element()));
}

}  // namespace tpjrt::ops
