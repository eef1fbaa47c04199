"""torch.compile: the generator from which a compiled function draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_pjrt


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="pjrt")


def test_dropout_draws_anew_and_from_the_seed() -> None:
    fast = compiled(nn.Dropout(0.5))
    x = torch.ones(1000)
    fast(x)
    torch.manual_seed(1)
    a, b = fast(x), fast(x)
    torch.manual_seed(1)
    torch.testing.assert_close(fast(x), a)
    assert not torch.equal(a, b)
    assert 0.4 < (a == 0).float().mean() < 0.6
    torch.manual_seed(1)
    torch._dynamo.reset()
    torch.testing.assert_close(compiled(nn.Dropout(0.5))(x), a)  # compiling draws nothing


@pytest.mark.parametrize("device", ["cpu", "pjrt"])
@pytest.mark.parametrize("options", [{}, {"retrace": True}])
def test_random_numbers_of_a_state_that_is_restored(device: str, options: dict[str, bool]) -> None:
    """Restores the state as activation checkpoints do, of the generators of the arguments' devices."""
    fast = torch.compile(lambda x: nn.functional.dropout(x, 0.5) * x, backend="pjrt", options=options)
    x = torch.ones(100, device=device, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda t: fast(t * 1), x, use_reentrant=False)
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * y.detach())
    assert 10 < (y == 0).sum() < 90
    with torch.random.fork_rng(device_type="pjrt"):
        a = fast(x)
    assert torch.equal(fast(x), a)
    assert not torch.equal(fast(x), a)


def test_a_graph_that_draws_from_two_generators() -> None:
    def draw(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.rand(50) + x, torch.rand(50, device="pjrt")

    fast = compiled(draw)
    with pytest.warns(UserWarning, match="draws from the generator of 'cpu', and others draw from that of 'pjrt:0'"):
        fast(torch.zeros(50))
    cpu, device = torch.get_rng_state(), torch.pjrt.get_rng_state()
    a, b = fast(torch.zeros(50))
    torch.set_rng_state(cpu)
    again, other = fast(torch.zeros(50))
    assert torch.equal(a, again)
    assert not torch.equal(b.cpu(), other.cpu())
    torch.pjrt.set_rng_state(device)
    assert torch.equal(fast(torch.zeros(50))[1].cpu(), b.cpu())


@pytest.mark.parametrize("device", ["cpu", "pjrt"])
def test_a_checkpoint_in_a_compiled_function(device: str) -> None:
    layer = nn.Linear(8, 8).to(device)

    def block(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(layer(x), 0.5) * x.sin()

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) * 2

    torch_pjrt.reset_metrics()
    x = torch.ones(16, 8, device=device, requires_grad=True)
    y = torch.compile(function, backend="pjrt", fullgraph=True)(x)
    y.sum().backward()
    drawn = (y != 0).float() * 2
    expected = torch.autograd.grad((drawn * layer(x) * x.sin() * 2).sum(), x)
    torch.testing.assert_close(x.grad, expected[0])
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
    assert 30 < (y == 0).sum() < 98


def test_what_a_checkpoint_in_a_compiled_function_keeps() -> None:
    """Dropout saves its mask, a byte per element."""

    def block(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x.sin().exp(), 0.5).cos().exp()

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)

    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    x = torch.ones(64, 64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = compiled(function)(x)
    y.sum().backward()
    assert sum(kept.values()) == x.nbytes + x.numel()
    dropped = x.detach().sin().exp() * 2 * (y != torch.e).detach()
    inner = (-dropped.sin() * dropped.cos().exp() * 2 * (dropped != 0)).detach()
    torch.testing.assert_close(x.grad, inner * x.detach().sin().exp() * x.detach().cos())


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("device", ["cpu", "pjrt"])
def test_a_checkpoint_in_a_step_draws_again_what_it_drew(device: str, reentrant: bool) -> None:
    class Dropped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1000))

        def inner(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.dropout(x * self.weight * self.weight, 0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.inner, x, use_reentrant=reentrant)

    model, x = Dropped().to(device), torch.ones(1000, device=device)

    def step(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        model.weight.grad = None
        y = model(x.detach().requires_grad_())
        y.sum().backward()
        return y, torch.nn.functional.dropout(x, 0.5)

    compiled = torch_pjrt.compile_step(step, modules=[model], keep_grads=True)
    masks = []
    for _ in range(3):
        y, other = compiled(x)
        assert torch.equal(y != 0, model.weight.grad != 0)
        masks += [(y != 0).cpu(), (other != 0).cpu()]
    for i, mask in enumerate(masks):
        assert all(400 < (mask == another).sum() < 600 for another in masks[:i])
