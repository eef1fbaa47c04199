// torch_pjrt::recurrent_layer and its backward on the CPU (python/torch_pjrt/decompositions/recurrent/layer.py
// documents them): a few ATen kernels for each step, which write into the results' memory. Work that does not depend
// on the previous step is done for all steps in one call.
#include <ATen/TensorOperators.h>
#include <ATen/cpu/Utils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

namespace tpjrt::kernels {
namespace {

using Optional = std::optional<at::Tensor>;

// Calls f for each step, in the order of the sequence or backwards.
template <class F>
void each_step(int64_t length, bool backwards, const F& f) {
  for (int64_t i = 0; i < length; ++i) f(backwards ? length - 1 - i : i);
}

// Returns the state before each step.
at::Tensor before(const at::Tensor& states, const at::Tensor& first, bool reverse) {
  const int64_t rest = states.size(0) - 1;
  const at::Tensor one = first.unsqueeze(0);
  return reverse ? at::cat({states.narrow(0, 1, rest), one}) : at::cat({one, states.narrow(0, 0, rest)});
}

// Returns one part of a step's row; each is as wide as the hidden state.
at::Tensor part(const at::Tensor& rows, int64_t first, int64_t hidden, int64_t count = 1) {
  return rows.narrow(-1, first * hidden, count * hidden);
}

// Returns the transposed matrix for many products: MKL reads a contiguous one in two thirds of the time. oneDNN,
// which multiplies 16-bit numbers, reorders both kinds itself.
at::Tensor transpose_of(const at::Tensor& weight, int64_t times) {
  constexpr int64_t kMany = 8;
  const at::Tensor transposed = weight.t();
  return times >= kMany && !c10::isReducedFloatingType(weight.scalar_type()) ? transposed.contiguous() : transposed;
}

// Returns whether oneDNN multiplies bfloat16 with instructions of its own.
bool has_bf16_products() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") || at::cpu::init_amx();
#else
  return false;
#endif
}

// Returns whether float32 computes a step of 16-bit numbers faster. A call of oneDNN takes some 30 µs, and MKL's
// takes less for so few multiplications.
bool is_for_floats(const at::Tensor& hx, const at::Tensor& weight) {
  constexpr int64_t kMany = 1 << 21;
  if (!c10::isReducedFloatingType(hx.scalar_type())) return false;
  static const bool is_fast = has_bf16_products();
  return !(is_fast && hx.scalar_type() == c10::kBFloat16) || hx.size(0) * weight.numel() <= kMany;
}

struct Layer {
  at::Tensor hx;
  Optional cx;
  at::Tensor weight;
  c10::string_view cell;
  bool reverse;
  int64_t hidden() const { return hx.size(1); }
};

struct Forward {
  at::Tensor outputs, cells, workspace;
};

void lstm(const Layer& layer, const at::Tensor& gates, const Forward& results) {
  const int64_t n = layer.hidden();
  const at::Tensor weight = transpose_of(layer.weight, gates.size(0));
  at::Tensor h = layer.hx, c = *layer.cx;
  each_step(gates.size(0), layer.reverse, [&](int64_t t) {
    at::Tensor now = results.workspace.select(0, t), cell = results.cells.select(0, t),
               output = results.outputs.select(0, t);
    at::addmm_out(now, gates.select(0, t), h, weight);
    part(now, 0, n, 2).sigmoid_();
    const at::Tensor entering = part(now, 2, n).tanh_(), leaving = part(now, 3, n).sigmoid_();
    at::mul_out(cell, part(now, 1, n), c).addcmul_(part(now, 0, n), entering);
    at::tanh_out(output, cell).mul_(leaving);
    h = output;
    c = cell;
  });
}

void gru(const Layer& layer, const at::Tensor& gates, const Optional& bias, const Forward& results) {
  const int64_t n = layer.hidden();
  const at::Tensor inner = at::empty(gates.sizes(), gates.options());
  const at::Tensor weight = transpose_of(layer.weight, gates.size(0));
  at::Tensor h = layer.hx;
  each_step(gates.size(0), layer.reverse, [&](int64_t t) {
    const at::Tensor now = results.workspace.select(0, t), x = gates.select(0, t);
    at::Tensor of_h = inner.select(0, t), output = results.outputs.select(0, t);
    bias ? at::addmm_out(of_h, *bias, h, weight) : at::mm_out(of_h, h, weight);
    at::Tensor both = part(now, 0, n, 2), fresh = part(now, 2, n);
    at::add_out(both, part(x, 0, n, 2), part(of_h, 0, n, 2)).sigmoid_();
    at::addcmul_out(fresh, part(x, 2, n), part(now, 0, n), part(of_h, 2, n)).tanh_();
    h = at::lerp_out(output, fresh, h, part(now, 1, n));
  });
  part(results.workspace, 3, n).copy_(before(results.outputs, layer.hx, layer.reverse));
  part(results.workspace, 4, n).copy_(part(inner, 2, n));
}

void plain(const Layer& layer, const at::Tensor& gates, const Forward& results) {
  const at::Tensor weight = transpose_of(layer.weight, gates.size(0));
  at::Tensor h = layer.hx;
  each_step(gates.size(0), layer.reverse, [&](int64_t t) {
    at::Tensor output = results.outputs.select(0, t);
    at::addmm_out(output, gates.select(0, t), h, weight);
    h = layer.cell == "rnn_tanh" ? output.tanh_() : output.relu_();
  });
}

Forward empty_results(const at::Tensor& gates, const at::Tensor& hx, c10::string_view cell) {
  const int64_t length = gates.size(0), batch = hx.size(0), n = hx.size(1);
  const auto nothing = [&] { return at::empty({0}, gates.options()); };
  const at::Tensor states = at::empty({length, batch, n}, gates.options());
  if (cell == "lstm") return {states, at::empty_like(states), at::empty({length, batch, 4 * n}, gates.options())};
  return {states, nothing(), cell == "gru" ? at::empty({length, batch, 5 * n}, gates.options()) : nothing()};
}

void run_forward(const at::Tensor& gates, const Layer& layer, const Optional& bias, const Forward& results) {
  if (layer.cell == "lstm") return lstm(layer, gates, results);
  return layer.cell == "gru" ? gru(layer, gates, bias, results) : plain(layer, gates, results);
}

Optional in(const Optional& x, c10::ScalarType dtype) { return x ? Optional(x->to(dtype)) : x; }

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&> forward_out(const at::Tensor& gates, const at::Tensor& hx,
                                                              const Optional& cx, const at::Tensor& weight,
                                                              const Optional& bias, c10::string_view cell, bool reverse,
                                                              at::Tensor& outputs, at::Tensor& cells,
                                                              at::Tensor& workspace) {
  if (is_for_floats(hx, weight)) {
    const Layer wide{hx.to(c10::kFloat), in(cx, c10::kFloat), weight.to(c10::kFloat), cell, reverse};
    const at::Tensor given = gates.to(c10::kFloat);
    const Forward results = empty_results(given, hx, cell);
    run_forward(given, wide, in(bias, c10::kFloat), results);
    outputs.copy_(results.outputs);
    cells.copy_(results.cells);
    workspace.copy_(results.workspace);
  } else {
    run_forward(gates, {hx, cx, weight, cell, reverse}, bias, {outputs, cells, workspace});
  }
  return {outputs, cells, workspace};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> forward(const at::Tensor& gates, const at::Tensor& hx,
                                                       const Optional& cx, const at::Tensor& weight,
                                                       const Optional& bias, c10::string_view cell, bool reverse) {
  Forward results = empty_results(gates, hx, cell);
  forward_out(gates, hx, cx, weight, bias, cell, reverse, results.outputs, results.cells, results.workspace);
  return {results.outputs, results.cells, results.workspace};
}

// The forward's arguments and results, and the results' gradients.
struct Backward : Layer {
  at::Tensor grad_outputs, grad_cells, outputs, cells, workspace;
  // Returns `count` parts of a row as rows of their own.
  at::Tensor apart(const at::Tensor& row, int64_t first, int64_t count) const {
    return part(row, first, hidden(), count).unflatten(-1, {count, hidden()});
  }
};

// Gradients of the gates, of what weight and bias added to them, of hx and cx.
using LayerGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

LayerGradients lstm_backward(const Backward& layer) {
  const int64_t n = layer.hidden();
  const at::Tensor i = part(layer.workspace, 0, n), f = part(layer.workspace, 1, n), g = part(layer.workspace, 2, n),
                   o = part(layer.workspace, 3, n);
  const at::Tensor activated = layer.cells.tanh();
  // The factors of each gate's gradient other than the state's.
  const at::Tensor by = at::cat({g * i * (1 - i), before(layer.cells, *layer.cx, layer.reverse) * f * (1 - f),
                                 i * (1 - g * g), activated * o * (1 - o)},
                                2);
  const at::Tensor through = o * (1 - activated * activated);
  const at::Tensor gates = at::empty_like(by);
  at::Tensor gh = at::zeros_like(layer.hx), gc = gh;
  each_step(by.size(0), !layer.reverse, [&](int64_t t) {
    const at::Tensor now = gates.select(0, t), by_now = by.select(0, t);
    gh = gh + layer.grad_outputs.select(0, t);
    gc = (gc + layer.grad_cells.select(0, t)).addcmul_(gh, through.select(0, t));
    at::Tensor of_cell = layer.apart(now, 0, 3), of_output = part(now, 3, n);
    at::mul_out(of_cell, layer.apart(by_now, 0, 3), gc.unsqueeze(1));
    at::mul_out(of_output, part(by_now, 3, n), gh);
    gh = at::mm(now, layer.weight);
    gc = gc * f.select(0, t);
  });
  return {gates, gates, gh, gc};
}

LayerGradients gru_backward(const Backward& layer) {
  const int64_t n = layer.hidden();
  const at::Tensor r = part(layer.workspace, 0, n), i = part(layer.workspace, 1, n),
                   fresh = part(layer.workspace, 2, n), h = part(layer.workspace, 3, n),
                   of_h = part(layer.workspace, 4, n);
  const at::Tensor by_fresh = (1 - i) * (1 - fresh * fresh), by_r = by_fresh * of_h * (1 - r) * r,
                   by_i = (h - fresh) * (1 - i) * i;
  const at::Tensor by_inner = at::cat({by_r, by_i, by_fresh * r}, 2);
  const at::Tensor inner = at::empty_like(by_inner), grads = at::empty_like(layer.grad_outputs);
  at::Tensor gh = at::zeros_like(layer.hx);
  each_step(inner.size(0), !layer.reverse, [&](int64_t t) {
    at::Tensor grad = grads.select(0, t), now = inner.select(0, t), rows = layer.apart(now, 0, 3);
    at::add_out(grad, gh, layer.grad_outputs.select(0, t));
    at::mul_out(rows, layer.apart(by_inner.select(0, t), 0, 3), grad.unsqueeze(1));
    gh = at::addmm(grad * i.select(0, t), now, layer.weight);
  });
  const at::Tensor gates = at::cat({by_r, by_i, by_fresh}, 2).unflatten(2, {3, n}).mul_(grads.unsqueeze(2)).flatten(2);
  return {gates, inner, gh, at::empty({0}, gh.options())};
}

LayerGradients plain_backward(const Backward& layer) {
  const bool is_tanh = layer.cell == "rnn_tanh";
  const at::Tensor by = is_tanh ? 1 - layer.outputs * layer.outputs : layer.outputs <= 0;  // NaN lets gradients through
  const at::Tensor gates = at::empty_like(layer.outputs);
  at::Tensor gh = at::zeros_like(layer.hx);
  each_step(by.size(0), !layer.reverse, [&](int64_t t) {
    at::Tensor now = gates.select(0, t);
    gh = gh + layer.grad_outputs.select(0, t);
    is_tanh ? at::mul_out(now, gh, by.select(0, t)) : now.copy_(at::where(by.select(0, t), 0, gh));
    gh = at::mm(now, layer.weight);
  });
  return {gates, gates, gh, at::empty({0}, gh.options())};
}

LayerGradients run_backward(const Backward& layer) {
  if (layer.cell == "lstm") return lstm_backward(layer);
  return layer.cell == "gru" ? gru_backward(layer) : plain_backward(layer);
}

LayerGradients backward(const at::Tensor& grad_outputs, const at::Tensor& grad_cells, const at::Tensor& outputs,
                        const at::Tensor& cells, const at::Tensor& workspace, const at::Tensor& hx, const Optional& cx,
                        const at::Tensor& weight, c10::string_view cell, bool reverse) {
  const c10::ScalarType dtype = hx.scalar_type();
  if (!is_for_floats(hx, weight)) {
    return run_backward({{hx, cx, weight, cell, reverse}, grad_outputs, grad_cells, outputs, cells, workspace});
  }
  const auto wide = [](const at::Tensor& x) { return x.to(c10::kFloat); };
  const auto [gates, inner, gh, gc] = run_backward({{wide(hx), in(cx, c10::kFloat), wide(weight), cell, reverse},
                                                    wide(grad_outputs),
                                                    wide(grad_cells),
                                                    wide(outputs),
                                                    wide(cells),
                                                    wide(workspace)});
  const at::Tensor narrow = gates.to(dtype);
  return {narrow, inner.is_same(gates) ? narrow : inner.to(dtype), gh.to(dtype), gc.to(dtype)};
}

TORCH_LIBRARY_FRAGMENT(torch_pjrt, m) {
  m.def(
      "recurrent_layer(Tensor gates, Tensor hx, Tensor? cx, Tensor weight, Tensor? bias, str cell, bool reverse) -> "
      "(Tensor outputs, Tensor cells, Tensor workspace)");
  m.def(
      "recurrent_layer.out(Tensor gates, Tensor hx, Tensor? cx, Tensor weight, Tensor? bias, str cell, bool reverse, "
      "*, Tensor(a!) outputs, Tensor(b!) cells, Tensor(c!) workspace) -> (Tensor(a!), Tensor(b!), Tensor(c!))");
  m.def(
      "recurrent_layer_backward(Tensor grad_outputs, Tensor grad_cells, Tensor outputs, Tensor cells, Tensor "
      "workspace, Tensor hx, Tensor? cx, Tensor weight, str cell, bool reverse) -> (Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(torch_pjrt, CPU, m) {
  m.impl("recurrent_layer", TORCH_FN(forward));
  m.impl("recurrent_layer.out", TORCH_FN(forward_out));
  m.impl("recurrent_layer_backward", TORCH_FN(backward));
}

}  // namespace
}  // namespace tpjrt::kernels
