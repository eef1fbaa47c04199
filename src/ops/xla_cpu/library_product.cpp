// Products that libraries compute (Note [Claims]), by torch_pjrt::matrix_product (src/kernels/cpu/products/product.cpp).
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "hlo/type.h"
#include "ops/claims/claims.h"
#include "ops/contraction/contraction.h"
#include "ops/rule/by_aten.h"
#include "ops/rule/dims.h"

namespace tpjrt::ops {

namespace {

// A matrix, or a batch of them, as the kernel takes it; its rows and columns may be transposed in memory.
struct Matrices {
  Value x;
  bool transposed = false;
};

// Returns `given` as matrices of free by contracted dimensions if `free_first`, else of contracted by free ones.
// Returns nothing if that would need a copy.
std::optional<Matrices> matrices(Emit& e, const Value& given, const Dims& batch, const Dims& contracting,
                                 bool free_first) {
  Dims free;
  for (int64_t d = 0; d < given.rank(); ++d) {
    const auto has = [d](const Dims& dims) { return std::find(dims.begin(), dims.end(), d) != dims.end(); };
    if (!has(batch) && !has(contracting)) free.push_back(d);
  }
  const auto chained = [](std::initializer_list<Dims> parts) {
    Dims all;
    for (const Dims& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const Dims plain = free_first ? chained({batch, free, contracting}) : chained({batch, contracting, free});
  const Dims transposed = free_first ? chained({batch, contracting, free}) : chained({batch, free, contracting});
  const auto counted = [&](const Dims& dims) {
    int64_t count = 1;
    for (int64_t d : dims) count *= given.dim(d);
    return count;
  };
  const auto shaped = [&](const Value& x, bool transposed) -> Matrices {
    const int64_t first = counted(free_first != transposed ? free : contracting);
    const int64_t second = counted(free_first != transposed ? contracting : free);
    return {e.reshape(x, batch.empty() ? Dims{first, second} : Dims{counted(batch), first, second}), transposed};
  };
  // The layout before a transpose: the original order of dimensions, in the numbering of `given`.
  if (const auto* moved = e.moved_from(given)) {
    Dims layout(moved->permutation.size());
    for (size_t i = 0; i < layout.size(); ++i) layout[at(moved->permutation[i])] = static_cast<int64_t>(i);
    if (layout == plain) return shaped(moved->from, false);
    if (layout == transposed) return shaped(moved->from, true);
  }
  const Dims now = range(0, given.rank());
  if (now == plain) return shaped(given, false);
  if (now == transposed) return shaped(given, true);
  return {};
}

const char* name_of(Who who) { return who == Who::kSkinny ? "skinny" : who == Who::kOneDnn ? "onednn" : "aten"; }

std::optional<Value> by_library(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims,
                                ElementType result_element, const Added* added) {
  if (a.element() != b.element()) return {};
  const auto first = matrices(e, a, dims.lhs_batch, dims.lhs_contracting, true);
  const auto second = matrices(e, b, dims.rhs_batch, dims.rhs_contracting, false);
  if (!first || !second) return {};
  const int64_t rank = first->x.rank();
  const auto size = [&](const Matrices& m, int64_t place) {
    return m.x.dim(rank - (m.transposed ? 3 - place : place));
  };
  const int64_t batch = rank == 3 ? first->x.dim(0) : 1, rows = size(*first, 2), columns = size(*second, 1);
  if (a.element() == ElementType::kS8 && batch != 1) return {};
  const Layout layout = second->transposed ? kTransposed : first->transposed ? kFirstTransposed : kStraight;
  const Size work{batch * rows * size(*first, 1) * columns, rows, columns, batch};
  Values operands{first->x, second->x};
  Who who = Who::kXla;
  if (const Value* narrow = e.narrow_of(second->x)) {
    who = who_computes(Heavy::kProductOfBytes, a.element(), work, layout);
    if (who != Who::kXla) operands[1] = *narrow;
  }
  if (who == Who::kXla) who = who_computes(Heavy::kProduct, a.element(), work, layout);
  if (who == Who::kXla) return {};
  constexpr int64_t kLarge = 1 << 20;  // multiplications
  const Dims result = rank == 3 ? Dims{batch, rows, columns} : Dims{rows, columns};
  const Value product = call_aten(e, "torch_pjrt::matrix_product",
                                  {operands[0], operands[1], added ? added->x : Value(), first->transposed,
                                   second->transposed, name_of(who), added ? added->beta : 0, added ? added->alpha : 1},
                                  {Type{result_element, result}}, work.work >= kLarge)[0];
  Dims full;
  for (int64_t d : dims.lhs_batch) full.push_back(a.dim(d));
  for (const auto& [x, batch, contracting] :
       {std::tie(a, dims.lhs_batch, dims.lhs_contracting), std::tie(b, dims.rhs_batch, dims.rhs_contracting)}) {
    for (int64_t d = 0; d < x.rank(); ++d) {
      const bool contracted = std::find(contracting.begin(), contracting.end(), d) != contracting.end();
      const bool batched = std::find(batch.begin(), batch.end(), d) != batch.end();
      if (!contracted && !batched) full.push_back(x.dim(d));
    }
  }
  return e.reshape(product, full);
}

// A value without its transpose, and the dimension along which products sum.
struct Untransposed {
  Untransposed(const Emit& e, const Value& given, int64_t along) : x(given), inner(along) {
    if (const auto* moved = e.moved_from(given)) {
      x = moved->from;
      inner = moved->permutation[static_cast<size_t>(along)];
    }
  }
  Value x;
  int64_t inner;
};

// Returns `by`, which was broadcast to a matrix, as one number for each column of a product, or nothing if it differs
// along `inner`.
std::optional<Value> of_columns(Emit& e, const Value& by, int64_t inner, int64_t columns) {
  const int64_t place = by.rank() - 2 + inner;  // of the dimension along which the product sums
  if (by.rank() > 2 || (place >= 0 && by.dim(place) != 1)) return {};
  return e.broadcast_to(e.reshape(e.convert(by, ElementType::kF32), {count_of(by.dims())}), {columns});
}

// A matrix that was dequantized: 8-bit numbers less a zero point, times a scale, which differ by column.
struct Dequantized {
  Value numbers;
  int64_t inner;  // the dimension along which the product sums
  Value scale;    // float32, like the zero point
  std::optional<Value> zero;
};

// Returns how the second matrix was dequantized if the numbers as they are would be multiplied by a kernel: with few
// rows, dequantizing takes many times as long as the product.
std::optional<Dequantized> dequantized(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims) {
  if (Emit::compute_element(a.element()) != ElementType::kF32) return {};
  if (b.rank() != 2 || !dims.rhs_batch.empty() || dims.lhs_contracting.size() != 1) return {};
  Untransposed matrix(e, b, dims.rhs_contracting.at(0));
  const int64_t depth = matrix.x.dim(matrix.inner), columns = matrix.x.dim(1 - matrix.inner);
  const auto* scaled = e.scaled_from(matrix.x);
  if (scaled == nullptr) return {};
  const auto scale = of_columns(e, scaled->by, matrix.inner, columns);
  matrix = Untransposed(e, scaled->x, matrix.inner);
  std::optional<Value> zero;
  if (const auto* shifted = e.shifted_from(matrix.x)) {
    zero = of_columns(e, shifted->by, matrix.inner, columns);
    if (!zero) return {};
    matrix = Untransposed(e, shifted->x, matrix.inner);
  }
  const Value* narrow = e.narrow_of(matrix.x);
  if (!scale || narrow == nullptr || depth == 0) return {};
  const int64_t rows = count_of(a.dims()) / depth;
  const Layout layout = matrix.inner == 1 ? kTransposed : kStraight;
  if (!is_claimed(Heavy::kProductOfBytes, ElementType::kF32, {rows * depth * columns, rows, columns, 1}, layout)) {
    return {};
  }
  return Dequantized{*narrow, matrix.inner, *scale, zero};
}

// Returns the product in float32, which isn't rounded between scale and sum.
std::optional<Value> by_quantized(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims) {
  const auto matrix = dequantized(e, a, b, dims);
  if (!matrix) return {};
  const Value x = e.convert(a, ElementType::kF32);
  const hlo::DotDimensions contracted{{}, {}, dims.lhs_contracting, {matrix->inner}};
  auto y = by_library(e, x, e.convert(matrix->numbers, ElementType::kF32), contracted, ElementType::kF32, nullptr);
  if (!y) return {};
  const auto along_rows = [&](const Value& each) { return e.broadcast_in_dim(each, y->dims(), {y->rank() - 1}); };
  if (matrix->zero) {
    const Value sums = e.sum(x, dims.lhs_contracting);
    const Value shift = e.mul(e.broadcast_in_dim(sums, y->dims(), range(0, sums.rank())), along_rows(*matrix->zero));
    y = e.sub(*y, shift);
  }
  return e.mul(*y, along_rows(matrix->scale));
}

}  // namespace

Value product_with_kernels(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims, ElementType out) {
  const ElementType in = a.element();
  if (out == ElementType::kF32) {
    if (auto product = by_quantized(e, a, b, dims)) return *product;
  }
  const bool counts = in == ElementType::kS8 && out == ElementType::kS32;
  if (counts || out == Emit::compute_element(in)) {
    if (auto product = by_library(e, a, b, dims, counts ? out : in, nullptr)) return *product;
  }
  return product_on_cpu(e, a, b, dims, out);
}

std::optional<Value> sum_with_kernels(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims,
                                      const Added& added) {
  if (dequantized(e, a, b, dims)) return {};
  return by_library(e, a, b, dims, a.element(), &added);
}

// Convolutions that oneDNN computes (Note [Claims]), by ATen's kernels, and torch_pjrt::frozen_convolution
// (src/kernels/cpu/images.cpp).

namespace {

enum class Part : uint8_t { kResult, kOfInput, kOfWeight };

// Returns the size of the last dimension that the stride leads into. oneDNN runs a transposed convolution as the
// gradient of a convolution.
int64_t last_size(Part part, const Value& x, const Type& y, const Geometry& g) {
  const int64_t given = x.dims().back(), result = y.dims.back();
  return part == Part::kOfWeight ? std::min(given, result) : g.transposed ? given : result;
}

// Images of claimed convolutions have the NHWC layout, in which oneDNN is twice as fast. XLA's layouts carry that order
// from one call to the next, through the ops between them.
bool is_claimed(Part part, const Value& x, const Value& w, const Type& y, const Geometry& g) {
  const Type& over = g.transposed ? x.type : y;
  if (over.elements() == 0) return false;
  uint8_t layout = layout_of_stride(g.stride.back(), last_size(part, x, y, g));
  if (part == Part::kOfWeight && g.groups > 1 && w.dim(1) > 1) layout |= kGrouped;
  const Heavy op = part == Part::kOfWeight ? Heavy::kConvolutionOfWeight : Heavy::kConvolution;
  return ops::is_claimed(op, x.element(), {over.elements() / over.dims[1] * w.type.elements()}, layout);
}

// A call of at::convolution, or at::convolution_backward, whose images have the NHWC layout. ATen copies a weight to the
// images' layout at each call. If the weight is larger than the images, they are copied to its layout instead.
struct ImagesCall {
  const Geometry& g;
  Dims order;
  bool row_major, is_large;

  ImagesCall(const Geometry& geometry, const Type& x, const Type& w, const Type& y)
      : g(geometry),
        order(channels_last(x.rank())),
        row_major(w.elements() > x.elements() + y.elements()),
        is_large(y.elements() / std::max<int64_t>(1, y.dims[1]) * w.elements() >= 1 << 20) {}

  Values call(Emit& e, const char* op, std::vector<AtenArgument> arguments,
              const std::vector<std::optional<Type>>& results, const Emit::Orders& orders) const {
    for (const AtenArgument& more : std::initializer_list<AtenArgument>{g.stride, g.padding, g.dilation, g.transposed,
                                                                        g.output_padding, g.groups}) {
      arguments.push_back(more);
    }
    if (results.size() > 1) {
      std::array<bool, 3> mask{};
      for (size_t i = 0; i < mask.size(); ++i) mask[i] = results[i].has_value();
      arguments.emplace_back(mask);
    }
    return call_aten(e, op, arguments, results, is_large, orders);
  }
};

constexpr const char* kBackward = "aten::convolution_backward";

// oneDNN's convolution, as PyTorch's compiler calls it. It takes images in their own layout; at::convolution has to
// choose one, which takes up to 1.9 times as long.
constexpr const char* kPointwise = "mkldnn::_convolution_pointwise";
bool has_pointwise() {
  static const bool has = c10::Dispatcher::singleton().findSchema({kPointwise, ""}).has_value();
  return has;
}

}  // namespace

std::optional<Value> library_convolution(Emit& e, const Value& x, const Value& w, const std::optional<Value>& bias,
                                         const Geometry& g, const Type& out) {
  if (!is_claimed(Part::kResult, x, w, out, g)) return {};
  const ImagesCall of(g, x.type, w.type, out);
  if (x.rank() == 4 && !g.transposed && !of.row_major && has_pointwise()) {
    return call_aten(e, kPointwise,
                     {x, w, bias.value_or(Value()), g.padding, g.stride, g.dilation, g.groups, "none",
                      c10::List<std::optional<at::Scalar>>(), ""},
                     {out}, of.is_large, {{of.order}, {of.order}})[0];
  }
  return of.call(e, "aten::convolution", {{x, of.row_major}, w, bias.value_or(Value())}, {out},
                 {{of.order}, {of.order}})[0];
}

std::optional<Value> library_gradient_of_input(Emit& e, const Value& dy, const Value& x, const Value& w,
                                               const Geometry& g) {
  if (!is_claimed(Part::kOfInput, x, w, dy.type, g)) return {};
  const ImagesCall of(g, x.type, w.type, dy.type);
  return of.call(e, kBackward, {{dy, of.row_major}, AtenArgument::memory(0, of.row_major), w, Dims{dy.dim(1)}},
                 {x.type, {}, {}}, {{of.order}, {of.order}})[0];
}

std::optional<Values> library_gradients_of_weight(Emit& e, const Value& dy, const Value& x, const Value& w,
                                                  const Geometry& g, bool of_bias) {
  if (!is_claimed(Part::kOfWeight, x, w, dy.type, g)) return {};
  const ImagesCall of(g, x.type, w.type, dy.type);
  const std::optional<Type> bias = of_bias ? std::optional(Type{w.element(), {dy.dim(1)}}) : std::nullopt;
  Values grads =
      of.call(e, kBackward, {{dy, of.row_major}, {x, of.row_major}, AtenArgument::memory(0, false), Dims{dy.dim(1)}},
              {{}, w.type, bias}, {{of.order, of.order}, {}});
  grads.erase(grads.begin());
  if (!of_bias) grads.pop_back();
  return grads;
}

Values library_frozen_convolution(Emit& e, const Call& c) {
  constexpr int64_t kLarge = 1 << 12;  // elements of the result, each of which is some hundred multiplications
  const Value x = c.tensor("x");
  const Dims order = channels_last(x.rank());
  const std::optional<Value> added = c.optional_tensor("added");
  const Type result = e.type_of(c.result());
  return call_aten(e, "torch_pjrt::frozen_convolution",
                   {x, added.value_or(Value()), c.integer("weight"), result.dims, c.ints("stride"), c.ints("padding"),
                    c.ints("dilation"), c.integer("groups"), std::string(c.string("activation"))},
                   {result}, result.elements() >= kLarge, {{order, order}, {order}},
                   added ? std::optional<size_t>(1) : std::nullopt);
}

}  // namespace tpjrt::ops
