// Recurrent layers as an op on the CPU, into guarded memory, for every layout of operands.
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tanh.h>

#include <functional>

#include "call.h"

namespace tpjrt::kernels::test {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors called(const char* name, const char* overload, torch::jit::Stack stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).callBoxed(stack);
  Tensors results;
  for (const c10::IValue& value : stack) results.push_back(value.toTensor());
  return results;
}

struct Layer {
  std::string cell;
  int64_t length, batch, hidden;
  c10::ScalarType dtype = at::kFloat;
  bool reverse = false;

  int64_t gates() const { return cell == "lstm" ? 4 : cell == "gru" ? 3 : 1; }
  int64_t workspace() const { return cell == "lstm" ? 4 : cell == "gru" ? 5 : 0; }
  bool has_cells() const { return cell == "lstm"; }
};

struct Operands {
  at::Tensor gates, hx, weight;
  std::optional<at::Tensor> cx, bias;
};

Operands drawn(const Layer& layer) {
  const auto some = [&](c10::IntArrayRef sizes) { return at::randn(sizes).to(layer.dtype); };
  Operands o{some({layer.length, layer.batch, layer.gates() * layer.hidden}),
             some({layer.batch, layer.hidden}),
             some({layer.gates() * layer.hidden, layer.hidden}) / 4,
             {},
             {}};
  if (layer.has_cells()) o.cx = some({layer.batch, layer.hidden});
  if (layer.cell == "gru") o.bias = some({3 * layer.hidden});
  return o;
}

// Returns equal values in the reverse memory layout.
at::Tensor transposed(const at::Tensor& x) { return x.transpose(0, -1).contiguous().transpose(0, -1); }

torch::jit::Stack stack_of(const Layer& layer, const Operands& o) {
  return {o.gates, o.hx, o.cx, o.weight, o.bias, layer.cell, layer.reverse};
}

Tensors forward(const Layer& layer, const Operands& o) {
  return called("torch_pjrt::recurrent_layer", "", stack_of(layer, o));
}

Tensors backward(const Layer& layer, const Operands& o, const Tensors& results) {
  return called("torch_pjrt::recurrent_layer_backward", "",
                {results[0] * 0.5, results[1] * 0.25, results[0], results[1], results[2], o.hx, o.cx, o.weight,
                 layer.cell, layer.reverse});
}

void expect_alike(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(near(a[i], b[i])) << i;
}

class KernelRecurrentLayers : public testing::TestWithParam<Layer> {};

TEST_P(KernelRecurrentLayers, GiveTheSameHoweverOperandsLie) {
  const Layer& layer = GetParam();
  const Operands straight = drawn(layer);
  Operands other{transposed(straight.gates), transposed(straight.hx), transposed(straight.weight), straight.cx,
                 straight.bias};
  if (other.cx) other.cx = transposed(*other.cx);
  const Tensors results = forward(layer, straight);
  expect_alike(results, forward(layer, other));
  expect_alike(backward(layer, straight, results),
               backward(layer, other, {transposed(results[0]), results[1], results[2]}));
}

TEST_P(KernelRecurrentLayers, WriteNoFurtherThanTheirPlaces) {
  const Layer& layer = GetParam();
  const Operands o = drawn(layer);
  const Tensors expected = forward(layer, o);
  std::vector<std::unique_ptr<Fenced>> memory;
  torch::jit::Stack stack = stack_of(layer, o);
  for (const at::Tensor& result : expected) {
    memory.push_back(std::make_unique<Fenced>(result.nbytes()));
    stack.emplace_back(at::from_blob(memory.back()->data(), result.sizes(), result.options()));
  }
  expect_alike(called("torch_pjrt::recurrent_layer", "out", stack), expected);
}

INSTANTIATE_TEST_SUITE_P(Layers, KernelRecurrentLayers,
                         testing::Values(Layer{"lstm", 5, 3, 7}, Layer{"lstm", 12, 2, 5, at::kFloat, true},
                                         Layer{"lstm", 3, 2, 6, at::kBFloat16}, Layer{"gru", 9, 3, 7},
                                         Layer{"gru", 4, 2, 5, at::kHalf, true}, Layer{"rnn_tanh", 9, 2, 3},
                                         Layer{"rnn_relu", 3, 4, 5, at::kDouble, true}, Layer{"lstm", 1, 1, 1},
                                         Layer{"gru", 3, 0, 4}),
                         [](const auto& info) { return info.param.cell + std::to_string(info.index); });

// Calls torch_pjrt::lstm_layer and its backward.
Tensors results_of_library(const Tensors& operands, bool keeps,
                           const std::function<at::Tensor(const at::Tensor&)>& as) {
  torch::jit::Stack stack;
  for (const at::Tensor& operand : operands) stack.emplace_back(as(operand));
  stack.emplace_back(/*reverse=*/true);
  stack.emplace_back(keeps);
  Tensors results = called("torch_pjrt::lstm_layer", "", stack);
  torch::jit::Stack backward;
  for (size_t i = 0; i < 3; ++i) backward.emplace_back(as(results[i] * 0.5));
  for (const at::Tensor& operand : operands) backward.emplace_back(as(operand));
  for (size_t i = 0; i < 3; ++i) backward.emplace_back(as(results[i]));
  backward.emplace_back(results[3]);
  backward.emplace_back(/*reverse=*/true);
  EXPECT_EQ(results[3].numel() > 0, keeps);
  results.pop_back();
  for (at::Tensor& gradient : called("torch_pjrt::lstm_layer_backward", "", backward)) results.push_back(gradient);
  return results;
}

class KernelLstmLayers : public testing::TestWithParam<c10::ScalarType> {};

TEST_P(KernelLstmLayers, GiveTheSameHoweverOperandsLie) {
  const auto some = [](c10::IntArrayRef sizes) { return (at::randn(sizes) / 4).to(GetParam()); };
  const Tensors o{some({9, 3, 4}), some({28, 4}), some({28, 7}), some({28}), some({3, 7}), some({3, 7})};
  const auto itself = [](const at::Tensor& x) { return x; };
  const Tensors expected = results_of_library(o, true, itself);
  expect_alike(results_of_library(o, true, transposed), expected);
  expect_alike(results_of_library(o, false, itself), expected);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, KernelLstmLayers, testing::Values(at::kFloat));

}  // namespace
}  // namespace tpjrt::kernels::test
