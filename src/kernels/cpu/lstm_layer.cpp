// torch_pjrt::lstm_layer and its backward on the CPU (python/torch_pjrt/decompositions/recurrent/lstm.py documents
// them): oneDNN's, as in eager mode.
#include "kernels/cpu/lstm_layer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/mkldnn_rnn_layer_backward.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

namespace tpjrt::kernels {
namespace {

constexpr int64_t kLstm = 2;  // oneDNN's kind of cell

struct LstmLayer {
  at::Tensor x, w_ih, w_hh, no_bias, bias, hx, cx;
  bool reverse;

  LstmLayer(const at::Tensor& x, const at::Tensor& w_ih, const at::Tensor& w_hh, const std::optional<at::Tensor>& bias,
            const at::Tensor& hx, const at::Tensor& cx, bool reverse)
      : x(x.contiguous()),
        w_ih(w_ih.contiguous()),
        w_hh(w_hh.contiguous()),
        no_bias(at::zeros({w_ih.size(0)}, x.options())),
        bias(bias ? bias->contiguous() : no_bias),
        hx(hx.contiguous()),
        cx(cx.contiguous()),
        reverse(reverse) {}

  // Returns outputs, the last states, and the workspace for a backward.
  std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> forward(bool train) const {
    const at::AutoGradMode mode(train);  // which decides whether there is a workspace
    return at::mkldnn_rnn_layer(x, w_ih, w_hh, bias, no_bias, hx, cx, reverse, {}, kLstm, hx.size(1), /*num_layers=*/1,
                                /*has_biases=*/true, /*bidirectional=*/false, /*batch_first=*/false, train);
  }
};

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> lstm_forward(const at::Tensor& x, const at::Tensor& w_ih,
                                                                        const at::Tensor& w_hh,
                                                                        const std::optional<at::Tensor>& bias,
                                                                        const at::Tensor& hx, const at::Tensor& cx,
                                                                        bool reverse, bool train) {
  auto results = LstmLayer(x, w_ih, w_hh, bias, hx, cx, reverse).forward(train);
  if (!train) std::get<3>(results) = at::empty({0}, x.options().dtype(c10::kByte));
  return results;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> lstm_layer_backward(
    const at::Tensor& grad_outputs, const at::Tensor& grad_hy, const at::Tensor& grad_cy, const at::Tensor& x,
    const at::Tensor& w_ih, const at::Tensor& w_hh, const std::optional<at::Tensor>& bias, const at::Tensor& hx,
    const at::Tensor& cx, const at::Tensor& outputs, const at::Tensor& hy, const at::Tensor& cy,
    const at::Tensor& workspace, bool reverse) {
  const LstmLayer layer(x, w_ih, w_hh, bias, hx, cx, reverse);
  const bool is_kept = workspace.numel() > 0;
  const auto [y, h, c, kept] =
      is_kept ? std::make_tuple(outputs.contiguous(), hy.contiguous(), cy.contiguous(), workspace.contiguous())
              : layer.forward(/*train=*/true);
  const auto [dx, dw_ih, dw_hh, db, db_again, dhx, dcx] = at::mkldnn_rnn_layer_backward(
      layer.x, layer.w_ih, layer.w_hh, layer.bias, layer.no_bias, layer.hx, layer.cx, y, h, c,
      grad_outputs.contiguous(), grad_hy.contiguous(), grad_cy.contiguous(), reverse, kLstm, hx.size(1),
      /*num_layers=*/1, /*has_biases=*/true, /*train=*/true, /*bidirectional=*/false, {}, /*batch_first=*/false, kept);
  return {dx, dw_ih, dw_hh, db, dhx, dcx};
}

TORCH_LIBRARY_FRAGMENT(torch_pjrt, m) {
  m.def(
      "lstm_layer(Tensor x, Tensor w_ih, Tensor w_hh, Tensor? bias, Tensor hx, Tensor cx, bool reverse, bool train) -> "
      "(Tensor outputs, Tensor hy, Tensor cy, Tensor workspace)");
  m.def(
      "lstm_layer_backward(Tensor grad_outputs, Tensor grad_hy, Tensor grad_cy, Tensor x, Tensor w_ih, Tensor w_hh, "
      "Tensor? bias, Tensor hx, Tensor cx, Tensor outputs, Tensor hy, Tensor cy, Tensor workspace, bool reverse) -> "
      "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(torch_pjrt, CPU, m) {
  m.impl("lstm_layer", TORCH_FN(lstm_forward));
  m.impl("lstm_layer_backward", TORCH_FN(lstm_layer_backward));
}

}  // namespace

int64_t lstm_workspace_bytes(int64_t length, int64_t batch, int64_t features, int64_t hidden, c10::ScalarType dtype) {
  // A trace's modes are not asked, and its kernels are not Meta's.
  const c10::impl::ForceDispatchKeyGuard plain(
      c10::default_included_set, c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  const auto some = [dtype](c10::IntArrayRef sizes) {
    return at::zeros(sizes, at::TensorOptions(c10::kCPU).dtype(dtype));
  };
  const LstmLayer layer(some({length, batch, features}), some({4 * hidden, features}), some({4 * hidden, hidden}), {},
                        some({batch, hidden}), some({batch, hidden}), /*reverse=*/false);
  return std::get<3>(layer.forward(/*train=*/true)).numel();
}

}  // namespace tpjrt::kernels
