"""torch.sparse.softmax and log_softmax: over each dimension, of hybrid tensors, with gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import torch_pjrt
from tests.sparse.layouts import DEVICE, assert_same_on_both, uncoalesced

FUNCTIONS: list[Callable[..., torch.Tensor]] = [torch.sparse.softmax, torch.sparse.log_softmax]


@pytest.mark.parametrize("function", FUNCTIONS, ids=["softmax", "log_softmax"])
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.each_way
def test_of_a_hybrid_tensor(function: Callable[..., torch.Tensor], dim: int) -> None:
    def run(device: str) -> list[torch.Tensor]:
        x = uncoalesced(dense=(3,)).div(7).to(device).coalesce().requires_grad_()
        result = function(x, dim if device == DEVICE else dim % 3)  # the CPU's gradient is another's of -1
        (gradient,) = torch.autograd.grad((result.to_dense() * torch.arange(3.0, device=device)).sum(), x)
        return [result.detach(), gradient]

    assert_same_on_both(run)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("function", FUNCTIONS, ids=["softmax", "log_softmax"])
def test_what_has_no_elements_or_another_dtype(function: Callable[..., torch.Tensor]) -> None:
    assert_same_on_both(lambda device: function(torch.zeros(2, 3, layout=torch.sparse_coo, device=device), 1))
    assert_same_on_both(lambda device: function(uncoalesced(torch.int64).to(device), 1, dtype=torch.float32))


def test_attention_over_edges() -> None:
    """Edge weights are normalised by node, as in a graph attention network."""
    edges = torch.stack([torch.randint(50, (400,)), torch.randint(50, (400,))]).unique(dim=1).contiguous()
    features = torch.randn(50, 8, dtype=torch.float64)
    scores = torch.randn(edges.shape[1], dtype=torch.float64)

    def run(device: str) -> list[torch.Tensor]:
        s, x = scores.to(device).requires_grad_(), features.to(device).requires_grad_()
        attention = torch.sparse.softmax(torch.sparse_coo_tensor(edges.to(device), s, (50, 50), is_coalesced=True), 1)
        result = torch.sparse.mm(attention, x)
        return [result.detach(), *torch.autograd.grad(result.square().sum(), [s, x])]

    assert_same_on_both(run)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
