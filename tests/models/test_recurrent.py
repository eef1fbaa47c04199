"""LSTM and GRU modules: values and gradients as on the CPU, in one graph."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import torch_pjrt


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_forward_and_backward(kind: type[nn.RNNBase], bias: bool) -> None:
    torch.manual_seed(0)
    model = kind(8, 16, num_layers=2, batch_first=True, bias=bias)
    device = copy.deepcopy(model).to("pjrt")
    x = torch.randn(3, 5, 8)
    torch_pjrt.reset_metrics()
    results = []
    for m, inputs in ((model, x), (device, x.to("pjrt"))):
        inputs = inputs.requires_grad_()
        output, _ = m(inputs)
        output.square().sum().backward()
        results.append([output, inputs.grad, *(p.grad for p in m.parameters())])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-5)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


def test_a_cell_without_gradients() -> None:
    """Autograd may call a backward with no gradient at all (gradcheck does)."""
    state, gates = torch.ones(2, 4, device="pjrt"), torch.ones(2, 16, device="pjrt")
    grads = torch.ops.aten._thnn_fused_lstm_cell_backward_impl(None, None, state, state, gates, True)
    assert grads == (None, None, None)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_packed_sequences(kind: type[nn.RNNBase], batch_first: bool) -> None:
    torch.manual_seed(0)
    model = kind(4, 8, num_layers=2, batch_first=batch_first, bidirectional=True)
    lengths = torch.tensor([5, 7, 2])  # on the CPU, as PyTorch asks of every device
    x = torch.rand((3, 7, 4) if batch_first else (7, 3, 4))
    torch_pjrt.reset_metrics()
    results = []
    for m, inputs in ((model, x), (copy.deepcopy(model).to("pjrt"), x.to("pjrt"))):
        inputs = inputs.requires_grad_()
        packed = nn.utils.rnn.pack_padded_sequence(inputs, lengths, batch_first, enforce_sorted=False)
        output, state = m(packed)
        padded, back = nn.utils.rnn.pad_packed_sequence(output, batch_first, padding_value=0.5)
        assert torch.equal(back, lengths)
        last = state[0] if isinstance(state, tuple) else state
        (padded.square().sum() + last.sin().sum()).backward()
        results.append([padded, last, inputs.grad, *(p.grad for p in m.parameters())])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-5)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
