// LSTM, GRU and plain cells over a sequence: a few kernels a step, which write where the results lie.
#include "engine/run/host_recurrent.h"

#include <ATen/TensorOperators.h>
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

#include <string>

namespace tpjrt::engine {
namespace {

using Tensors = std::vector<at::Tensor>;

// The steps in the order of the sequence, or against it.
template <class F>
void each_step(int64_t length, bool backwards, const F& f) {
  for (int64_t i = 0; i < length; ++i) f(backwards ? length - 1 - i : i);
}

// The state that each step began with.
at::Tensor before(const at::Tensor& states, const at::Tensor& first, bool reverse) {
  const int64_t rest = states.size(0) - 1;
  const at::Tensor one = first.unsqueeze(0);
  return reverse ? at::cat({states.narrow(0, 1, rest), one}) : at::cat({one, states.narrow(0, 0, rest)});
}

// One of the parts of which a step's row is made, each as wide as the hidden state.
at::Tensor part(const at::Tensor& rows, int64_t first, int64_t hidden, int64_t count = 1) {
  return rows.narrow(-1, first * hidden, count * hidden);
}

struct Layer {
  at::Tensor hx, cx, weight;
  std::string cell;
  bool reverse;
  explicit Layer(const HostArguments& call)
      : hx(call.tensor("hx")),
        cx(call.tensor("cx")),
        weight(call.tensor("weight")),
        cell(call.constant("cell").toStringRef()),
        reverse(call.constant("reverse").toBool()) {}
  int64_t hidden() const { return hx.size(1); }
};

Tensors lstm(const Layer& layer, const at::Tensor& gates) {
  const int64_t length = gates.size(0), n = layer.hidden();
  at::Tensor outputs = at::empty({length, gates.size(1), n}, gates.options());
  at::Tensor cells = at::empty_like(outputs), workspace = at::empty(gates.sizes(), gates.options());
  const at::Tensor weight = layer.weight.t();
  at::Tensor h = layer.hx, c = layer.cx;
  each_step(length, layer.reverse, [&](int64_t t) {
    at::Tensor now = workspace.select(0, t), cell = cells.select(0, t), output = outputs.select(0, t);
    at::addmm_out(now, gates.select(0, t), h, weight);
    part(now, 0, n, 2).sigmoid_();
    const at::Tensor entering = part(now, 2, n).tanh_(), leaving = part(now, 3, n).sigmoid_();
    at::mul_out(cell, part(now, 1, n), c).addcmul_(part(now, 0, n), entering);
    at::tanh_out(output, cell).mul_(leaving);
    h = output;
    c = cell;
  });
  return {outputs, cells, workspace};
}

Tensors gru(const Layer& layer, const at::Tensor& gates, const at::Tensor& bias) {
  const int64_t length = gates.size(0), batch = gates.size(1), n = layer.hidden();
  at::Tensor outputs = at::empty({length, batch, n}, gates.options());
  at::Tensor workspace = at::empty({length, batch, 5 * n}, gates.options());
  at::Tensor inner = at::empty(gates.sizes(), gates.options());
  const at::Tensor weight = layer.weight.t();
  at::Tensor h = layer.hx;
  each_step(length, layer.reverse, [&](int64_t t) {
    const at::Tensor now = workspace.select(0, t), x = gates.select(0, t);
    at::Tensor of_h = inner.select(0, t), output = outputs.select(0, t);
    bias.defined() ? at::addmm_out(of_h, bias, h, weight) : at::mm_out(of_h, h, weight);
    at::Tensor both = part(now, 0, n, 2), fresh = part(now, 2, n);
    at::add_out(both, part(x, 0, n, 2), part(of_h, 0, n, 2)).sigmoid_();
    at::addcmul_out(fresh, part(x, 2, n), part(now, 0, n), part(of_h, 2, n)).tanh_();
    h = at::lerp_out(output, fresh, h, part(now, 1, n));
  });
  part(workspace, 3, n).copy_(before(outputs, layer.hx, layer.reverse));
  part(workspace, 4, n).copy_(part(inner, 2, n));
  return {outputs, at::empty({0}, gates.options()), workspace};
}

Tensors plain(const Layer& layer, const at::Tensor& gates) {
  at::Tensor outputs = at::empty({gates.size(0), gates.size(1), layer.hidden()}, gates.options());
  const at::Tensor weight = layer.weight.t();
  at::Tensor h = layer.hx;
  each_step(gates.size(0), layer.reverse, [&](int64_t t) {
    at::Tensor output = outputs.select(0, t);
    at::addmm_out(output, gates.select(0, t), h, weight);
    h = layer.cell == "rnn_tanh" ? output.tanh_() : output.relu_();
  });
  return {outputs, at::empty({0}, gates.options()), at::empty({0}, gates.options())};
}

struct Backward : Layer {
  at::Tensor grad_outputs, grad_cells, outputs, cells, workspace;
  explicit Backward(const HostArguments& call)
      : Layer(call),
        grad_outputs(call.tensor("grad_outputs")),
        grad_cells(call.tensor("grad_cells")),
        outputs(call.tensor("outputs")),
        cells(call.tensor("cells")),
        workspace(call.tensor("workspace")) {}
  // The parts of a row side by side, as rows of their own.
  at::Tensor apart(const at::Tensor& row, int64_t first, int64_t count) const {
    return part(row, first, hidden(), count).unflatten(-1, {count, hidden()});
  }
};

Tensors lstm_backward(const Backward& layer) {
  const int64_t n = layer.hidden();
  const at::Tensor i = part(layer.workspace, 0, n), f = part(layer.workspace, 1, n), g = part(layer.workspace, 2, n),
                   o = part(layer.workspace, 3, n);
  const at::Tensor activated = layer.cells.tanh();
  // Of a gate, what its gradient has besides the state's.
  const at::Tensor by = at::cat({g * i * (1 - i), before(layer.cells, layer.cx, layer.reverse) * f * (1 - f),
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

Tensors gru_backward(const Backward& layer) {
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

Tensors plain_backward(const Backward& layer) {
  const bool is_tanh = layer.cell == "rnn_tanh";
  const at::Tensor by = is_tanh ? 1 - layer.outputs * layer.outputs : layer.outputs > 0;
  const at::Tensor gates = at::empty_like(layer.outputs);
  at::Tensor gh = at::zeros_like(layer.hx);
  each_step(by.size(0), !layer.reverse, [&](int64_t t) {
    at::Tensor now = gates.select(0, t);
    gh = gh + layer.grad_outputs.select(0, t);
    is_tanh ? at::mul_out(now, gh, by.select(0, t)) : now.copy_(at::where(by.select(0, t), gh, 0));
    gh = at::mm(now, layer.weight);
  });
  return {gates, gates, gh, at::empty({0}, gh.options())};
}

}  // namespace

Tensors recurrent_layer(const HostArguments& call) {
  const Layer layer(call);
  const at::Tensor gates = call.tensor("gates");
  if (layer.cell == "lstm") return lstm(layer, gates);
  return layer.cell == "gru" ? gru(layer, gates, call.tensor("bias")) : plain(layer, gates);
}

Tensors recurrent_layer_backward(const HostArguments& call) {
  const Backward layer(call);
  if (layer.cell == "lstm") return lstm_backward(layer);
  return layer.cell == "gru" ? gru_backward(layer) : plain_backward(layer);
}

}  // namespace tpjrt::engine
