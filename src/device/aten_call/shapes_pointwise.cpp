// Shape functions of pointwise ops, and of ops that fill a tensor.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/result_type.h>

#include "device/aten_call/shapes.h"

namespace tpjrt::device {

Results broadcast(at::ScalarType dtype, std::initializer_list<at::Tensor> operands) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).declare_static_dtype(dtype).add_owned_output(at::Tensor());
  for (const at::Tensor& operand : operands) {
    if (operand.is_meta()) {
      config.add_owned_const_input(operand);
    } else if (operand.dim() > 0) {  // otherwise a scalar, which is on the host
      return {};
    }
  }
  return of({config.build().output()});
}

namespace {

// Returns the result of an op whose Meta kernel lays out results without elements as the CPU's does: contiguous.
Results with_elements(const at::Tensor& x, at::ScalarType dtype) {
  return x.numel() == 0 ? std::nullopt : of({made_like(x, x.options().dtype(dtype))});
}

// relu: self
Results unary(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  return are_alike({x}) || is_integer(x) ? with_elements(x, x.scalar_type()) : std::nullopt;
}

// abs: self
Results absolute(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  if (!x.is_complex()) return unary(a);
  return with_elements(x, c10::toRealValueType(x.scalar_type()));
}

// hardswish, logit: self, numbers
Results floating_unary(const Given& a) { return are_alike({tensor(a[0])}) ? pointwise(tensor(a[0])) : std::nullopt; }

// isnan: self
Results of_bools(const at::Tensor& x) { return with_elements(x, c10::kBool); }
Results isnan(const Given& a) { return are_alike({tensor(a[0])}) ? of_bools(tensor(a[0])) : std::nullopt; }

// logical_not: self
Results logical_not(const Given& a) { return of_bools(tensor(a[0])); }

// logical_and, logical_or, logical_xor: self, other
Results logical(const Given& a) { return broadcast(c10::kBool, {tensor(a[0]), tensor(a[1])}); }

// floor_divide: self, other
Results floor_divide(const Given& a) {
  const at::Tensor x = tensor(a[0]), y = tensor(a[1]);
  const at::ScalarType dtype = at::result_type(x, y);
  if (x.scalar_type() == c10::kBool || dtype == c10::kBool || c10::isComplexType(dtype)) return {};
  return broadcast(dtype, {x, y});
}

// hardtanh: self, min_val, max_val
Results hardtanh(const Given& a) {
  return a[1].toScalar().toDouble() <= a[2].toScalar().toDouble() ? floating_unary(a) : std::nullopt;
}

// log_sigmoid_forward: self
Results log_sigmoid(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  if (!are_alike({x})) return {};
  return of({contiguous_like(x), contiguous_like(x)});
}

// _prelu_kernel: self, weight
Results prelu(const Given& a) {
  const at::Tensor x = tensor(a[0]), weight = tensor(a[1]);
  if (!are_alike({x, weight}) || !at::is_expandable_to(weight.sizes(), x.sizes())) return {};
  return broadcast(x.scalar_type(), {x, weight});
}

// Returns the result of a loss: elementwise, or one number.
Results loss(const at::Tensor& x, const at::Tensor& target, const c10::IValue& reduction) {
  if (!are_alike({x, target}) || x.sizes() != target.sizes()) return {};
  if (reduction.toInt() != at::Reduction::None) return of({at::empty({}, x.options())});
  return x.is_contiguous() && target.is_contiguous() ? pointwise(x) : std::nullopt;
}

// mse_loss_backward, smooth_l1_loss_backward, huber_loss_backward: grad_output, self, target, … PyTorch's Python
// functions divide by the number of elements, which may be 0.
Results loss_backward(const Given& a) {
  const at::Tensor dy = tensor(a[0]), x = tensor(a[1]), target = tensor(a[2]);
  if (!are_alike({x, dy, target}) || x.sizes() != target.sizes()) return {};
  return dy.dim() == 0 || dy.sizes() == x.sizes() ? of({contiguous_like(x)}) : std::nullopt;
}

// huber_loss: self, target, reduction, delta
Results huber_loss(const Given& a) {
  return a[3].toDouble() > 0 ? loss(tensor(a[0]), tensor(a[1]), a[2]) : std::nullopt;
}

// binary_cross_entropy: self, target, weight, reduction
Results cross_entropy(const Given& a) { return a[2].isNone() ? loss(tensor(a[0]), tensor(a[1]), a[3]) : std::nullopt; }

// binary_cross_entropy_with_logits: self, target, weight, pos_weight, reduction
Results cross_entropy_with_logits(const Given& a) {
  return a[2].isNone() && a[3].isNone() ? loss(tensor(a[0]), tensor(a[1]), a[4]) : std::nullopt;
}

// zero_, fill_.Scalar: self, value
Results written(const Given& a) { return of({tensor(a[0])}); }

// zero, fill.Scalar: self, value
Results overwritten(const Given& a) { return pointwise(tensor(a[0])); }

// add.Scalar, mul.Scalar, …: self, other
Results with_scalar(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  const bool floating = are_alike({x});
  if (!floating && !is_integer(x)) return {};
  for (size_t i = 1; i < a.size(); ++i) {  // including an alpha
    if (!(a[i].isInt() || (floating && a[i].isDouble()))) return {};
  }
  return with_elements(x, x.scalar_type());
}

// div.Scalar: self, other
Results divided(const Given& a) { return are_alike({tensor(a[0])}) ? with_scalar(a) : std::nullopt; }

// add_.Scalar, div_.Scalar, …: self, other
template <ShapeFunction functional>
Results in_place(const Given& a) {
  return functional(a) ? of({tensor(a[0])}) : std::nullopt;
}

// uniform: self, from, to
Results uniform(const Given& a) {
  const double from = a[1].toDouble(), to = a[2].toDouble();
  constexpr double kSmall = 1e4;  // every floating dtype has it
  return -kSmall <= from && from <= to && to <= kSmall ? floating_unary(a) : std::nullopt;
}

// normal_functional: self, mean, std
Results normal(const Given& a) { return a[2].toDouble() >= 0 ? floating_unary(a) : std::nullopt; }

// exponential: self, lambd
Results exponential(const Given& a) { return a[1].toDouble() > 0 ? floating_unary(a) : std::nullopt; }

// where.self: condition, self, other
Results where(const Given& a) {
  const at::Tensor condition = tensor(a[0]), x = tensor(a[1]), y = tensor(a[2]);
  if (condition.scalar_type() != c10::kBool) return {};
  return broadcast(at::result_type(x, y), {condition, x, y});
}

// masked_fill.Scalar, .Tensor: self, mask, value
Results masked_fill(const Given& a) {
  const at::Tensor x = tensor(a[0]), mask = tensor(a[1]), value = tensor(a[2]);
  if (mask.scalar_type() != c10::kBool || !mask.is_meta()) return {};
  if (are_alike({x})) {
    if (value.defined() && (value.dim() > 0 || value.is_complex())) return {};
  } else if (!is_integer(x) || !a[2].isInt()) {
    return {};
  }
  return of({at::empty(at::infer_size(x.sizes(), mask.sizes()), x.options())});
}

// native_dropout: input, p, train
Results native_dropout(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  if (!are_alike({x})) return {};
  return of({made_like(x, x.options()), made_like(x, x.options().dtype(c10::kBool))});
}

// _foreach_<pointwise>: lists of tensors, numbers. In-place forms return nothing.
template <bool in_place>
Results foreach (const Given& a) {
  const auto first = a[0].toTensorList();
  for (const c10::IValue& argument : a) {
    if (argument.isTensor()) return {};
    if (argument.isList() && argument.toListRef().size() != first.size()) return {};  // lists of numbers, too
    if (!argument.isTensorList()) continue;
    const auto list = argument.toTensorList();
    for (size_t i = 0; i < list.size(); ++i) {
      const at::Tensor x = first.get(i), y = list.get(i);
      if (!are_alike({x, y}) || x.sizes() != y.sizes() || x.strides() != y.strides()) return {};
    }
  }
  if (in_place) return torch::jit::Stack();
  c10::List<at::Tensor> results;
  for (size_t i = 0; i < first.size(); ++i) results.push_back(made_like(first.get(i), first.get(i).options()));
  return torch::jit::Stack{results};
}

// Adds each overload of a _foreach_ op that takes lists of tensors and numbers, with its in-place form.
void add_foreach(ShapeFunctions& functions) {
  for (const char* name :
       {"add.Scalar", "add.List", "sub.Scalar", "sub.List", "mul.Scalar", "mul.List", "mul.ScalarList", "div.Scalar",
        "div.List", "div.ScalarList", "lerp.Scalar", "lerp.List", "addcmul.Scalar", "addcmul.ScalarList",
        "addcdiv.Scalar", "addcdiv.ScalarList", "sqrt", "neg"}) {
    const std::string_view all(name), base = all.substr(0, all.find('.')), overload = all.substr(base.size());
    const std::string stem = "aten::_foreach_" + std::string(base);
    functions.emplace(stem + std::string(overload), foreach<false>);
    functions.emplace(stem + "_" + std::string(overload), foreach<true>);
  }
}

}  // namespace

void add_pointwise(ShapeFunctions& functions) {
  functions.insert({
      {"aten::relu", unary},
      {"aten::abs", absolute},
      {"aten::hardswish", floating_unary},
      {"aten::logit", floating_unary},
      {"aten::hardtanh", hardtanh},
      {"aten::log_sigmoid_forward", log_sigmoid},
      {"aten::_prelu_kernel", prelu},
      {"aten::isnan", isnan},
      {"aten::logical_not", logical_not},
      {"aten::logical_and", logical},
      {"aten::logical_or", logical},
      {"aten::logical_xor", logical},
      {"aten::zero", overwritten},
      {"aten::zero_", written},
      {"aten::fill.Scalar", overwritten},
      {"aten::fill_.Scalar", written},
      {"aten::uniform", uniform},
      {"aten::uniform_", in_place<uniform>},
      {"aten::normal_functional", normal},
      {"aten::normal_", in_place<normal>},
      {"aten::exponential", exponential},
      {"aten::exponential_", in_place<exponential>},
      {"aten::add.Scalar", with_scalar},
      {"aten::add_.Scalar", in_place<with_scalar>},
      {"aten::sub.Scalar", with_scalar},
      {"aten::sub_.Scalar", in_place<with_scalar>},
      {"aten::rsub.Scalar", with_scalar},
      {"aten::mul.Scalar", with_scalar},
      {"aten::mul_.Scalar", in_place<with_scalar>},
      {"aten::remainder.Scalar", with_scalar},
      {"aten::div.Scalar", divided},
      {"aten::div_.Scalar", in_place<divided>},
      {"aten::floor_divide", floor_divide},
      {"aten::where.self", where},
      {"aten::masked_fill.Scalar", masked_fill},
      {"aten::masked_fill.Tensor", masked_fill},
      {"aten::native_dropout", native_dropout},
      {"aten::native_dropout_backward", floating_unary},
      {"aten::huber_loss", huber_loss},
      {"aten::mse_loss_backward", loss_backward},
      {"aten::smooth_l1_loss_backward", loss_backward},
      {"aten::huber_loss_backward", loss_backward},
      {"aten::binary_cross_entropy", cross_entropy},
      {"aten::binary_cross_entropy_with_logits", cross_entropy_with_logits},
  });
  add_foreach(functions);
}

}  // namespace tpjrt::device
