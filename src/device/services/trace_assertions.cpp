// Assertions are chained: each takes the result of the one before, so a value that depends on the last one depends on
// all.
#include "device/services/trace_assertions.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <atomic>
#include <utility>
#include <vector>

namespace tpjrt::device {

namespace {

thread_local std::vector<at::Tensor> scopes;  // the last assertion's result in each scope
std::atomic<TruthSource> truth_source{nullptr};

at::Tensor require_zero(const at::Tensor& violations, const std::string& error, const std::string& message,
                        const at::Tensor& result) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("torch_pjrt::require_zero", "");
  torch::jit::Stack stack{violations, error, message, result};
  op.callBoxed(stack);
  return stack.front().toTensor();
}

at::Tensor meta(const at::Tensor& /*violations*/, c10::string_view /*error*/, c10::string_view /*message*/,
                const at::Tensor& result) {
  return at::empty_like(result);
}

TORCH_LIBRARY_FRAGMENT(torch_pjrt, m) {
  m.def("require_zero(Tensor violations, str error, str message, Tensor result) -> Tensor");
}
TORCH_LIBRARY_IMPL(torch_pjrt, Meta, m) { m.impl("require_zero", TORCH_FN(meta)); }

}  // namespace

void begin_assertions() { scopes.emplace_back(); }
void end_assertions() { scopes.pop_back(); }
bool asserts() { return !scopes.empty(); }

void assert_zero(const at::Tensor& violations, const std::string& error, const std::string& message) {
  TORCH_CHECK_NOT_IMPLEMENTED(asserts(), "a check of values is not possible here");
  const at::NoGradGuard no_grad;
  at::Tensor before = scopes.back();
  if (!before.defined()) before = at::zeros({}, violations.options().dtype(c10::kBool));
  scopes.back() = require_zero(violations.detach(), error, message, before);
}

at::Tensor take_assertions() { return asserts() ? std::exchange(scopes.back(), {}) : at::Tensor(); }

at::Tensor depending(const at::Tensor& result, const at::Tensor& taken) {
  const at::NoGradGuard no_grad;
  return require_zero(taken, "", "", result.detach());
}

void install_truth_source(TruthSource source) { truth_source = source; }
std::optional<bool> assumed_truth(const at::Tensor& condition) {
  const TruthSource source = truth_source;
  return source && asserts() ? source(condition) : std::nullopt;
}

}  // namespace tpjrt::device
