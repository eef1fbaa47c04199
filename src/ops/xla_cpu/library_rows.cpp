// Rows that call PyTorch's kernels (src/kernels/cpu/rows.cpp). Batch norms that call PyTorch's kernels
// (src/kernels/cpu/rows.cpp).
#include <algorithm>

#include "hlo/type.h"
#include "ops/claims/claims.h"
#include "ops/contraction/contraction.h"
#include "ops/movement/movement.h"
#include "ops/reduction/reduction.h"
#include "ops/rule/by_aten.h"
#include "ops/rule/dims.h"
#include "ops/xla_cpu/cpu_lowerings.h"

namespace tpjrt::ops {

namespace {

int64_t width_of(const Value& x, int64_t axis) { return count_of({x.dims().begin() + axis, x.dims().end()}); }

bool is_claimed(Heavy op, const Emit& e, std::initializer_list<const Value*> rows, int64_t axis) {
  if (e.target() != Target::kCpuWithKernels) return false;
  const Value& x = **rows.begin();
  const auto is_alike = [&](const Value* other) { return !*other || other->element() == x.element(); };
  if (axis >= x.rank() || !std::ranges::all_of(rows, is_alike)) return false;
  return ops::is_claimed(op, x.element(), {.work = x.type.elements(), .columns = width_of(x, axis)});
}

// Returns x as a table of rows.
Value table(Emit& e, const Value& x, int64_t axis) {
  const int64_t width = width_of(x, axis);
  return e.reshape(x, {x.type.elements() / width, width});
}

}  // namespace

std::optional<Value> library_softmax(Emit& e, const Value& x, int64_t axis, bool log) {
  if (!is_claimed(Heavy::kRows, e, {&x}, axis)) return {};
  const Value rows = table(e, x, axis);
  return e.reshape(e.call_kernel("torch_pjrt.softmax", {rows}, {rows.type}, {{"log", hlo::attribute(log)}})[0],
                   x.dims());
}

std::optional<Value> library_softmax_gradient(Emit& e, const Value& dy, const Value& y, int64_t axis, bool log) {
  if (!is_claimed(Heavy::kRows, e, {&y, &dy}, axis)) return {};
  const Value rows = table(e, y, axis);
  const Values dx = e.call_kernel("torch_pjrt.softmax_backward", {table(e, dy, axis), rows}, {rows.type},
                                  {{"log", hlo::attribute(log)}});
  return e.reshape(dx[0], y.dims());
}

std::optional<Value> library_reduced_rows(Emit& e, std::string_view op, const Value& x, Dims dims) {
  const int64_t axis = axis_of_rows(x, dims).value_or(0);
  if (axis == 0) return {};
  if ((op == "add" || op == "mean") && is_summed_by_product(x, axis)) return {};
  if (!is_claimed(Heavy::kReducedRows, e, {&x}, axis)) return {};
  const Value rows = table(e, x, axis);
  const Values result =
      e.call_kernel("torch_pjrt.reduce_rows", {rows}, {{x.element(), {rows.dim(0)}}}, {{"op", hlo::attribute(op)}});
  return e.reshape(result[0], {x.dims().begin(), x.dims().begin() + axis});
}

std::optional<Values> library_layer_norm(Emit& e, const Value& x, const Value& weight, const Value& bias, int64_t axis,
                                         double eps) {
  if (!is_claimed(Heavy::kLayerNorm, e, {&x, &weight, &bias}, axis)) return {};
  const Value rows = table(e, x, axis);
  Values operands{rows};
  for (const Value* of_columns : {&weight, &bias}) {
    if (*of_columns) operands.push_back(e.reshape(*of_columns, {rows.dim(1)}));
  }
  const Type of_rows{x.element(), {rows.dim(0)}};
  Values results = e.call_kernel("torch_pjrt.layer_norm", operands, {rows.type, of_rows, of_rows},
                                 {{"eps", hlo::attribute(eps)},
                                  {"weight", hlo::attribute(static_cast<bool>(weight))},
                                  {"bias", hlo::attribute(static_cast<bool>(bias))}});
  results[0] = e.reshape(results[0], x.dims());
  return results;
}

std::optional<Values> library_layer_norm_gradients(Emit& e, const Value& dy, const Value& x, const Value& mean,
                                                   const Value& rstd, const Value& weight, int64_t axis,
                                                   std::array<bool, 3> asked) {
  if (!weight && (asked[1] || asked[2])) return {};
  if (!is_claimed(Heavy::kRows, e, {&x, &dy, &mean, &rstd, &weight}, axis) || !(asked[0] || asked[1] || asked[2]))
    return {};
  const Value rows = table(e, x, axis);
  const Dims of_rows{rows.dim(0)}, of_columns{rows.dim(1)};
  Values operands{table(e, dy, axis), rows, e.reshape(mean, of_rows), e.reshape(rstd, of_rows)};
  if (weight) operands.push_back(e.reshape(weight, of_columns));
  const std::array<Type, 3> types{rows.type, Type{x.element(), of_columns}, Type{x.element(), of_columns}};
  std::vector<Type> results;
  for (size_t i = 0; i < 3; ++i) {
    if (asked[i]) results.push_back(types[i]);
  }
  const Values given = e.call_kernel("torch_pjrt.layer_norm_backward", operands, results,
                                     {{"weight", hlo::attribute(static_cast<bool>(weight))},
                                      {"of_rows", hlo::attribute(asked[0])},
                                      {"of_weight", hlo::attribute(asked[1])},
                                      {"of_bias", hlo::attribute(asked[2])}});
  Values all(3);
  size_t next = 0;
  for (size_t i = 0; i < 3; ++i) {
    if (asked[i]) all[i] = given[next++];
  }
  return all;
}

namespace {

// PyTorch computes the batch norm where convolutions call oneDNN, so that images are NHWC: XLA:CPU sums such images
// channel by channel, which takes ten times as long as memory order. Evaluation sums nothing.
bool is_claimed(const Emit& e, const Value& x) {
  return x.rank() == 4 &&
         ops::is_claimed(Heavy::kBatchNorm, x.element(), {x.type.elements()}, e.is_nhwc() ? kImagesLast : kStraight);
}

}  // namespace

std::optional<Values> library_batch_norm(Emit& e, const Value& x, const Value& weight, const Value& bias, double eps) {
  if (!is_claimed(e, x)) return {};
  const Dims order = channels_last(x.rank());
  return e.call_kernel("torch_pjrt.batch_norm", {x, weight, bias}, {x.type, weight.type, weight.type, weight.type},
                       {{"eps", hlo::attribute(eps)}}, {{order}, {order}});
}

std::optional<Values> library_batch_norm_gradients(Emit& e, const Value& dy, const Value& x, const Value& weight,
                                                   const Value& mean, const Value& rstd, double eps) {
  if (!is_claimed(e, x) || dy.element() != x.element()) return {};
  const Dims order = channels_last(x.rank());
  return e.call_kernel("torch_pjrt.batch_norm_backward", {dy, x, weight, mean, rstd},
                       {x.type, weight.type, weight.type}, {{"eps", hlo::attribute(eps)}}, {{order, order}, {order}});
}

// Writes through strides that call PyTorch (src/kernels/cpu/write.cpp).

namespace {

// Returns whether PyTorch writes a small part of a large tensor, such as a row of a key cache. XLA writes in place as
// well, but in two cases copies the whole tensor first: if it is bfloat16, which XLA converts to float32 and back,
// and if the update is computed from what it overwrites (`cache.narrow(2, 5, 1).mul_(x)`), which XLA reads in the
// same loop.
bool is_claimed(const Emit& e, const Value& base, const Value& update) {
  const bool copies =
      e.backend().carrier(base.element()) != base.element() || e.overwrites() != Overwrites::kNothingRead;
  const int64_t written = update.type.elements(), elements = base.type.elements();
  if (!copies || written == 0 || base.element() != update.element()) return false;
  return ops::is_claimed(Heavy::kWrite, base.element(), {.work = elements, .columns = elements / written});
}

bool is_row_major(const graph::TensorType& type) {
  const auto order = type.memory_order();
  return std::is_sorted(order.begin(), order.end());
}

}  // namespace

std::optional<Value> library_write(Emit& e, const Call& c) {
  const Value base = c.tensor("base");
  const Dims strides = c.ints("strides");
  const Value update = without_shared(e, c.tensor("update"), strides);
  if (!is_claimed(e, base, update) || !is_row_major(c.type("base"))) return {};
  return e.call_kernel("torch_pjrt.write", {base, update, c.scalar(e, "offset", ElementType::kS64)}, {base.type},
                       {{"strides", hlo::attribute(strides)}}, {}, 0)[0];
}

}  // namespace tpjrt::ops
