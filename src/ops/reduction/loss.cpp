// Losses and their backwards. PyTorch's decompositions do losses that only chain other ops.
#include "ops/rule/expression.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {
namespace {

// at::Reduction.
enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

// Returns the dtype and shape in which the operands of a loss are combined.
Type joint_type(Emit& e, const Call& c, std::initializer_list<std::string_view> names) {
  Type type{Emit::compute_element(e.element(c.result())), {}};
  for (std::string_view name : names) {
    if (!c.has(name)) continue;
    Dims dims = c.tensor(name).dims();
    if (dims.size() < type.dims.size()) dims.insert(dims.begin(), type.dims.size() - dims.size(), 1);
    type.dims.insert(type.dims.begin(), dims.size() - type.dims.size(), 1);
    for (size_t d = 0; d < dims.size(); ++d) {
      if (type.dims[d] == 1) type.dims[d] = dims[d];
    }
  }
  return type;
}

Dims all_dims(const Value& x) {
  Dims all;
  for (int64_t d = 0; d < x.rank(); ++d) all.push_back(d);
  return all;
}

// Returns the reduced loss; the mean of nothing is NaN.
Values reduced(Emit& e, const Call& c, const Expression& loss) {
  Value x = loss.value;
  const int64_t reduction = c.integer("reduction");
  if (reduction == kMean) x = e.mean(x, all_dims(x));
  if (reduction == kSum) x = e.sum(x, all_dims(x));
  return {e.as(x, c.result())};
}

// Throws Mistake where an operand would broadcast: the CPU writes the loss over an operand with the result's shape.
void require_dims(const Type& joint, const Value& x) {
  if (joint.dims != x.dims()) throw Mistake("operands that broadcast an operand");
}

// Returns the factor by which a mean scales each element's gradient.
double gradient_scale(const Call& c) {
  return c.integer("reduction") == kMean ? 1.0 / static_cast<double>(c.type("self").numel()) : 1.0;
}

// --- regression -----------------------------------------------------------------------------------------------------

// aten::mse_loss
Values mse_loss(Emit& e, const Call& c) {
  Elementwise k(e, c, joint_type(e, c, {"self", "target"}));
  Expression d = k("self") - k("target");
  return reduced(e, c, d * d);
}

// aten::mse_loss_backward
Values mse_loss_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression d = k("self") - k("target");
  return k.give(2 * gradient_scale(c) * d * k("grad_output"));
}

// aten::smooth_l1_loss
Values smooth_l1_loss(Emit& e, const Call& c) {
  Elementwise k(e, c, joint_type(e, c, {"self", "target"}));
  const Expression z = abs(k("self") - k("target")), beta = k.scalar("beta");
  return reduced(e, c, where(z < beta, 0.5 * z * z / beta, z - 0.5 * beta));  // distances are never below 0
}

// aten::smooth_l1_loss_backward: with beta 0 the slope at 0 is -1, as on the CPU.
Values smooth_l1_loss_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression d = k("self") - k("target"), g = gradient_scale(c) * k("grad_output");
  const Expression beta = k.scalar("beta");
  return k.give(where(d <= -beta, -g, where(d >= beta, g, g * d / beta)));
}

// aten::huber_loss
Values huber_loss(Emit& e, const Call& c) {
  if (hlo::is_complex(c.tensor("target").element())) throw Mistake("a complex target");
  Elementwise k(e, c, joint_type(e, c, {"self", "target"}));
  const Expression z = abs(k("self") - k("target")), delta = k.scalar("delta");
  return reduced(e, c, where(z <= delta, 0.5 * z * z, delta * (z - 0.5 * delta)));
}

// aten::huber_loss_backward
Values huber_loss_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression d = k("self") - k("target"), g = gradient_scale(c) * k("grad_output");
  const Expression delta = k.scalar("delta");
  return k.give(where(d <= -delta, -g * delta, where(d >= delta, g * delta, g * d)));
}

// aten::soft_margin_loss
Values soft_margin_loss(Emit& e, const Call& c) {
  const Type joint = joint_type(e, c, {"self", "target"});
  require_dims(joint, c.tensor("self"));
  Elementwise k(e, c, joint);
  const Expression power = rounded(c, exp(rounded(c, -k("self") * k("target"))));
  return reduced(e, c, rounded(c, log1p(power)));
}

// --- binary cross entropy -------------------------------------------------------------------------------------------

// aten::binary_cross_entropy: logarithms are limited to -100.
Values binary_cross_entropy(Emit& e, const Call& c) {
  if (c.type("target").dtype != c.type("self").dtype) throw Mistake("a target of another dtype");
  const Type joint = joint_type(e, c, {"self", "target", "weight"});
  require_dims(joint, c.tensor("self"));
  Elementwise k(e, c, joint);
  Expression x = k("self"), t = k("target");
  e.require_all(((x >= 0) & (x <= 1)).value, "all elements of input should be between 0 and 1");
  Expression loss = (t - 1) * maximum(log1p(-x), -100) - t * maximum(log(x), -100);
  return reduced(e, c, c.has("weight") ? loss * k("weight") : loss);
}

// aten::binary_cross_entropy_backward
Values binary_cross_entropy_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self");
  Expression dx = k("grad_output") * (x - k("target")) / maximum((1 - x) * x, 1e-12);
  if (c.has("weight")) dx = dx * k("weight");
  return k.give(dx * gradient_scale(c));
}

// aten::binary_cross_entropy_with_logits
Values binary_cross_entropy_with_logits(Emit& e, const Call& c) {
  if (!hlo::is_float(c.tensor("self").element())) throw Mistake("logits that are not of floats");
  const Type joint = joint_type(e, c, {"self", "target", "weight", "pos_weight"});
  require_dims(joint, c.tensor("self"));
  require_dims(joint, c.tensor("target"));
  Elementwise k(e, c, joint);
  Expression x = k("self"), t = k("target");
  Expression log_sigmoid = minimum(x, 0) - log1p(exp(-abs(x)));
  Expression factor = c.has("pos_weight") ? (k("pos_weight") - 1) * t + 1 : t * 0 + 1;
  Expression loss = (1 - t) * x - factor * log_sigmoid;
  return reduced(e, c, c.has("weight") ? loss * k("weight") : loss);
}

// --- negative log likelihood ----------------------------------------------------------------------------------------

// A call of nll_loss or nll_loss2d. Classes are dimension 1 of self, or the only one.
struct NegativeLogLikelihood {
  Emit& e;
  const Call& c;
  Type scores;      // self, in the dtype of the computation
  int64_t classes;  // the dimension of classes
  Type targets;     // one number for each target

  NegativeLogLikelihood(Emit& emit, const Call& call) : e(emit), c(call), scores(call.tensor("self").type) {
    scores.element = Emit::compute_element(scores.element);
    const bool planes = c.name.find("nll_loss2d") != c.name.npos;
    if (planes ? scores.rank() != 4 : scores.rank() != 1 && scores.rank() != 2) throw Mistake("scores of this rank");
    if (c.has("weight") && c.tensor("weight").element() != c.tensor("self").element()) {
      throw Mistake("class weights of another dtype than the scores'");
    }
    classes = scores.rank() == 1 ? 0 : 1;
    targets = scores;
    targets.dims.erase(targets.dims.begin() + classes);
  }
  Value target() const { return e.reshape(e.to(c.tensor("target"), ElementType::kS64), targets.dims); }
  Expression counted() const {  // targets that are not ignored
    Value t = target();
    return {&e, e.compare(hlo::Comparison::kNe, t, e.constant(c.integer("ignore_index"), t.type))};
  }
  Value with_classes(const Value& per_target) const { return e.unsqueeze(per_target, classes); }
  // Returns the class weights at the targets, and 0 where a target is ignored.
  Expression weights(const Value& safe_target, const Expression& kept) const {
    Expression one{&e, e.ones(targets)};
    if (auto weight = c.optional_tensor("weight")) {
      Value flat = e.reshape(safe_target, {targets.elements()});
      one.value = e.reshape(e.take(e.to(*weight, scores.element), flat, 0), targets.dims);
    }
    return where(kept, one, 0);
  }
};

// aten::nll_loss_forward, nll_loss2d_forward: without a reduction total_weight is 0, except for a single target.
Values nll_loss_forward(Emit& e, const Call& c) {
  NegativeLogLikelihood n(e, c);
  Value x = e.to(c.tensor("self"), n.scores.element), target = n.target();
  Expression kept = n.counted();
  Value safe = e.select(kept.value, target, e.zeros(target.type));
  e.require(safe, 0, n.scores.dims[static_cast<size_t>(n.classes)], "Target {} is out of bounds.");
  Value picked = e.gather_along(x, n.with_classes(safe), n.classes);
  Expression weights = n.weights(safe, kept);
  Expression loss = where(kept, -(weights * weights.with(e.reshape(picked, n.targets.dims))), 0);
  Dims all = all_dims(loss.value);
  const int64_t reduction = c.integer("reduction");
  if (reduction == kNone && !all.empty()) return {e.as(loss.value, c.result()), e.zeros(e.type_of(c.result(1)))};
  Value total = e.sum(loss.value, all), weight = e.sum(weights.value, all);
  return {e.as(reduction == kMean ? e.div(total, weight) : total, c.result()), e.as(weight, c.result(1))};
}

// aten::nll_loss_backward, nll_loss2d_backward: comparing classes with the target selects where the gradient goes.
Values nll_loss_backward(Emit& e, const Call& c) {
  NegativeLogLikelihood n(e, c);
  Value target = n.target();
  Expression kept = n.counted();
  Value safe = e.select(kept.value, target, e.zeros(target.type));
  Value dy = e.broadcast_to(e.to(c.tensor("grad_output"), n.scores.element), n.targets.dims);
  Expression g = -(Expression{&e, dy} * n.weights(safe, kept));
  if (c.integer("reduction") == kMean) {
    Value total = e.reshape(e.to(c.tensor("total_weight"), n.scores.element), {});
    g = g / g.with(e.broadcast_to(total, n.targets.dims));
  }
  g = where(kept, g, 0);
  Value wide_target = e.broadcast_to(n.with_classes(target), n.scores.dims);
  Expression hit{&e, e.compare(hlo::Comparison::kEq, wide_target, e.iota(wide_target.type, n.classes))};
  return {e.as(where(hit, g.with(e.broadcast_to(n.with_classes(g.value), n.scores.dims)), 0).value, c.result())};
}

}  // namespace

void add_loss_rules(RuleTable& rules) {
  rules.add_composite("aten::mse_loss", mse_loss, kFloats);
  rules.add_composite("aten::mse_loss_backward", mse_loss_backward);
  rules.add_composite("aten::smooth_l1_loss", smooth_l1_loss, kFloats);
  rules.add_composite("aten::smooth_l1_loss_backward", smooth_l1_loss_backward);
  rules.add_composite("aten::huber_loss", huber_loss, kFloats);
  rules.add_composite("aten::huber_loss_backward", huber_loss_backward);
  rules.add_composite("aten::soft_margin_loss", soft_margin_loss, kFloats);
  rules.add_composite("aten::binary_cross_entropy", binary_cross_entropy, kFloats);
  rules.add_composite("aten::binary_cross_entropy_backward", binary_cross_entropy_backward);
  rules.add_composite("aten::binary_cross_entropy_with_logits", binary_cross_entropy_with_logits, kFloats);
  rules.add_composite("aten::nll_loss_forward", nll_loss_forward, kFloats);
  rules.add_composite("aten::nll_loss_backward", nll_loss_backward);
  rules.add_composite("aten::nll_loss2d_forward", nll_loss_forward, kFloats);
  rules.add_composite("aten::nll_loss2d_backward", nll_loss_backward);
}

}  // namespace tpjrt::ops
