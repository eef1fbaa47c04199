// Products that XLA:CPU computes faster in another form than they are called in.
#include "ops/contraction/contraction.h"

#include <optional>

#include "ops/rule/precision.h"

namespace tpjrt::ops {
namespace {

// Returns a few rows times the transpose of a large matrix, such as a linear layer of a small batch (a [m, k], w [n,
// k]), as the transpose of w times a's transpose. XLA:CPU takes ten to forty times as long for the product as called,
// and would turn the result back into it but for the barrier. bfloat16 is left alone: its kernels are as fast either
// way, and once the barrier is gone XLA moves the transpose into a product that follows, which they then don't
// compute. Returns nothing for other products.
std::optional<Value> skinny(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims, ElementType out) {
  constexpr int64_t kFew = 64, kLarge = 1 << 16;
  if (a.element() == ElementType::kBF16) return {};
  if (a.rank() != 2 || b.rank() != 2 || dims.lhs_contracting != Dims{1} || !dims.lhs_batch.empty()) return {};
  const Value* w = dims.rhs_contracting == Dims{1} ? &b : e.transposed_from(b);
  if (!w || w->type.elements() < kLarge || a.dim(0) > kFew || 4 * a.dim(0) > w->dim(0)) return {};
  Value columns = e.dot_general(*w, a, {{}, {}, {1}, {1}}, out, product_precision(e, a.element()));
  return e.transpose(e.optimization_barrier({columns})[0], {1, 0});
}

// Returns whether XLA:CPU's own matrix kernel computes the product, without a wider dtype to accumulate in.
bool is_of_float_matrices(const Value& a, const Value& b, ElementType out) {
  return a.rank() == 2 && b.rank() == 2 && a.element() == out && (out == ElementType::kF32 || out == ElementType::kF64);
}

// Returns a product of a few thousand multiplications as a sum of elementwise products, which is one loop with its
// neighbours. XLA:CPU would call its matrix kernel, which costs more than the product and fuses with nothing.
// Products with a vector are such loops already. Returns nothing for other products.
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

// Returns a row times a large matrix, as in Conv1D layers when a token is decoded, as a batch of products: each
// multiplies a piece of the row with as many rows of the matrix. XLA:CPU then reads the matrix in all threads instead
// of one. Returns nothing for other products.
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

// Returns the transpose of a large matrix times a vector, as in the gradient of a product with a vector, as the
// vector times the matrix. XLA:CPU takes a hundred times as long for the former. Returns nothing for other products.
std::optional<Value> transposed_vector(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims,
                                       ElementType out) {
  if (a.rank() != 2 || b.rank() != 1 || dims.lhs_contracting != Dims{1}) return {};
  const Value* matrix = e.transposed_from(a);
  if (!matrix) return {};
  return e.dot_general(b, *matrix, {{}, {}, {0}, {0}}, out, product_precision(e, a.element()));
}

}  // namespace

Value product_on_cpu(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims, ElementType out) {
  if (auto swapped = skinny(e, a, b, dims, out)) return *swapped;
  if (auto transposed = transposed_vector(e, a, b, dims, out)) return *transposed;
  if (auto fused = tiny(e, a, b, dims, out)) return *fused;
  if (auto in_pieces = one_row(e, a, b, dims, out)) return *in_pieces;
  return e.dot_general(a, b, dims, out, product_precision(e, a.element()));
}

}  // namespace tpjrt::ops
