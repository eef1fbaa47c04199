// Calls of PyTorch's kernels by rules, among them rows, batch norms, and writes (src/kernels/cpu/write.cpp).
#include <algorithm>
#include <sstream>

#include "graph/functional_variant.h"
#include "hlo/type.h"
#include "kernels/cpu/kept_call.h"
#include "ops/claims/claims.h"
#include "ops/contraction/contraction.h"
#include "ops/movement/movement.h"
#include "ops/reduction/reduction.h"
#include "ops/rule/by_aten.h"
#include "ops/rule/dims.h"
#include "ops/xla_cpu/cpu_lowerings.h"

namespace tpjrt::ops {

namespace {

// Returns the dense type whose dimensions have this order, the innermost first; row-major if `order` is empty.
graph::TypePtr type_of_layout(const Type& type, const Dims& order) {
  const c10::ScalarType dtype = dtype_of(type.element);
  if (order.empty()) return graph::intern_contiguous(dtype, type.dims);
  Dims strides(type.dims.size());
  int64_t step = 1;
  for (const int64_t d : order) {
    strides[static_cast<size_t>(d)] = step;
    step *= type.dims[static_cast<size_t>(d)];
  }
  return graph::intern(dtype, type.dims, strides);
}

Dims order_at(const std::vector<Dims>& orders, size_t i) { return i < orders.size() ? orders[i] : Dims(); }

c10::OperatorHandle op_named(std::string_view name) {
  const size_t end = std::min(name.find('.'), name.size());
  const std::string overload(name.substr(std::min(end + 1, name.size())));
  return c10::Dispatcher::singleton().findSchemaOrThrow(std::string(name.substr(0, end)).c_str(), overload.c_str());
}

}  // namespace

Values emit_kept(Emit& e, std::string text, const Values& operands, const std::vector<Type>& results,
                 kernels::KeptCall call, const Emit::Orders& orders, std::optional<size_t> over) {
  text += " of";
  for (size_t i = 0; i < operands.size(); ++i) {
    call.arguments.push_back(type_of_layout(operands[i].type, order_at(orders.operands, i)));
    text += " " + graph::to_string(*call.arguments.back());
  }
  text += " to";
  for (size_t i = 0; i < results.size(); ++i) {
    call.results.push_back(type_of_layout(results[i], order_at(orders.results, i)));
    text += " " + graph::to_string(*call.results.back());
  }
  if (over) text += ", over %" + std::to_string(*over);
  const bool may_throw = call.may_throw;
  kernels::keep_call(text, std::move(call));
  std::vector<Type> types = results;
  if (may_throw) types.push_back({ElementType::kS64, {}});
  Values all =
      e.call_kernel(kernels::kAtenTarget, operands, types, {{kernels::kAtenText, hlo::attribute(text)}}, orders, over);
  if (may_throw) {
    e.require_nothing_thrown(all.back());
    all.pop_back();
  }
  return all;
}

Values call_aten(Emit& e, std::string_view op, const std::vector<AtenArgument>& arguments,
                 const std::vector<std::optional<Type>>& results, bool is_large, const Emit::Orders& orders,
                 std::optional<size_t> over) {
  kernels::OpCall call{.op = op_named(op)};
  const auto& schema = call.op.schema().arguments();
  Values operands;
  std::ostringstream text;
  text << op << "(";
  for (const AtenArgument& argument : arguments) {
    kernels::OpCall::Argument& added =
        call.arguments.emplace_back(std::nullopt, argument.place, argument.is_row_major, argument.constant);
    text << (call.arguments.size() > 1 ? ", " : "") << schema.at(call.arguments.size() - 1).name() << "=";
    if (argument.operand) {
      text << "%" << *(added.operand = operands.size());
      operands.push_back(argument.operand);
    } else if (argument.place) {
      text << "memory of " << *argument.place;
    } else {
      text << argument.constant;
    }
    if (argument.is_row_major) text << " row-major";
  }
  text << ") ->";
  for (size_t i = arguments.size(); i < schema.size(); ++i) {
    call.arguments.push_back({.constant = schema[i].default_value().value()});
  }
  std::vector<Type> types;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i]) continue;
    call.wanted.push_back(i);
    text << " " << i;
    types.push_back(*results[i]);
  }
  if (types.size() == call.op.schema().returns().size()) call.writing = graph::out_variant_on_cpu(call.op);
  const Values given = emit_kept(e, text.str(), operands, types,
                                 {.run = std::move(call), .is_large = is_large, .may_throw = false}, orders, over);
  Values all(results.size());
  for (size_t i = 0, next = 0; i < results.size(); ++i) {
    if (results[i]) all[i] = given[next++];
  }
  return all;
}

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

// Returns whether ATen would split the rows among several threads.
bool are_many(const Value& rows) { return rows.type.elements() > 1 << 15; }

}  // namespace

std::optional<Value> library_softmax(Emit& e, const Value& x, int64_t axis, bool log) {
  if (!is_claimed(Heavy::kRows, e, {&x}, axis)) return {};
  const Value rows = table(e, x, axis);
  const char* op = log ? "aten::_log_softmax" : "aten::_softmax";
  return e.reshape(call_aten(e, op, {rows, 1, false}, {rows.type}, are_many(rows))[0], x.dims());
}

std::optional<Value> library_softmax_gradient(Emit& e, const Value& dy, const Value& y, int64_t axis, bool log) {
  if (!is_claimed(Heavy::kRows, e, {&y, &dy}, axis)) return {};
  const Value rows = table(e, y, axis);
  const char* op = log ? "aten::_log_softmax_backward_data" : "aten::_softmax_backward_data";
  const auto dtype = static_cast<int64_t>(dtype_of(y.element()));
  return e.reshape(call_aten(e, op, {table(e, dy, axis), rows, 1, dtype}, {rows.type}, are_many(rows))[0], y.dims());
}

std::optional<Value> library_reduced_rows(Emit& e, std::string_view op, const Value& x, Dims dims) {
  const int64_t axis = axis_of_rows(x, dims).value_or(0);
  if (axis == 0) return {};
  if ((op == "add" || op == "mean") && is_summed_by_product(x, axis)) return {};
  if (!is_claimed(Heavy::kReducedRows, e, {&x}, axis)) return {};
  const Value rows = table(e, x, axis);
  const char* name = op == "add"       ? "aten::sum.dim_IntList"
                     : op == "mean"    ? "aten::mean.dim"
                     : op == "maximum" ? "aten::amax"
                                       : "aten::amin";
  const Type of_rows{x.element(), {rows.dim(0)}};
  return e.reshape(call_aten(e, name, {rows, Dims{1}}, {of_rows}, are_many(rows))[0],
                   {x.dims().begin(), x.dims().begin() + axis});
}

std::optional<Values> library_layer_norm(Emit& e, const Value& x, const Value& weight, const Value& bias, int64_t axis,
                                         double eps) {
  if (!is_claimed(Heavy::kLayerNorm, e, {&x, &weight, &bias}, axis)) return {};
  const Value rows = table(e, x, axis);
  const Dims row{rows.dim(1)};
  const auto of_columns = [&](const Value& given) { return given ? e.reshape(given, row) : Value(); };
  const Type of_rows{x.element(), {rows.dim(0), 1}};
  Values results = call_aten(e, "aten::native_layer_norm", {rows, row, of_columns(weight), of_columns(bias), eps},
                             {rows.type, of_rows, of_rows}, are_many(rows));
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
  const Dims of_rows{rows.dim(0), 1}, row{rows.dim(1)};
  const Value factors = weight ? e.reshape(weight, row) : weight;
  const std::array<Type, 3> types{rows.type, Type{x.element(), row}, Type{x.element(), row}};
  std::vector<std::optional<Type>> results(3);
  for (size_t i = 0; i < 3; ++i) {
    if (asked[i]) results[i] = types[i];
  }
  // ATen reads the bias's sizes alone, which are the weight's.
  return call_aten(
      e, "aten::native_layer_norm_backward",
      {table(e, dy, axis), rows, row, e.reshape(mean, of_rows), e.reshape(rstd, of_rows), factors, factors, asked},
      results, are_many(rows));
}

namespace {

// PyTorch computes the batch norm where convolutions call oneDNN, so that images are NHWC: XLA:CPU sums such images
// channel by channel, which takes ten times as long as memory order. Evaluation sums nothing.
bool is_claimed(const Emit& e, const Value& x) {
  return x.rank() == 4 &&
         ops::is_claimed(Heavy::kBatchNorm, x.element(), {x.type.elements()}, e.is_nhwc() ? kImagesLast : kStraight);
}

bool is_worth_a_team(const Value& images) { return images.type.elements() >= 1 << 16; }

}  // namespace

std::optional<Values> library_batch_norm(Emit& e, const Value& x, const Value& weight, const Value& bias, double eps) {
  if (!is_claimed(e, x)) return {};
  const Dims order = channels_last(x.rank());
  return call_aten(e, "torch_pjrt::batch_norm_in_training", {x, weight, bias, eps},
                   {x.type, weight.type, weight.type, weight.type}, is_worth_a_team(x), {{order}, {order}});
}

std::optional<Values> library_batch_norm_gradients(Emit& e, const Value& dy, const Value& x, const Value& weight,
                                                   const Value& mean, const Value& rstd, double eps) {
  if (!is_claimed(e, x) || dy.element() != x.element()) return {};
  const Dims order = channels_last(x.rank());
  return call_aten(e, "aten::native_batch_norm_backward",
                   {dy, x, weight, Value(), Value(), mean, rstd, true, eps, std::array<bool, 3>{true, true, true}},
                   {x.type, weight.type, weight.type}, is_worth_a_team(x), {{order, order}, {order}});
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
  return call_aten(e, "torch_pjrt::write_strided", {base, update, c.scalar(e, "offset", ElementType::kS64), strides},
                   {base.type}, update.type.elements() >= 1 << 16, {}, 0)[0];
}

}  // namespace tpjrt::ops
