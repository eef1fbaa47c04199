"""A value that several kernels read, and that is expensive to recompute, is computed once (Note [Stored values])."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import torch_pjrt
from models.deep import deep
from torch_pjrt import _C

pytestmark = [pytest.mark.compiled, pytest.mark.host_memory]

SIZES = (40, 50)


def stored(function: Callable[[Tensor], Tensor | tuple[Tensor, ...]], sizes: tuple[int, ...] = SIZES) -> int:
    """Returns how many values a program stores, after checking its results."""
    x = torch.randn(sizes)
    expected, result = ([y] if isinstance(y, Tensor) else list(y) for y in (function(x), function(x.to("pjrt"))))
    count = _C.stablehlo(result, for_cpu=True).count('@"torch_pjrt.stored"')
    for mine, reference in zip(result, expected, strict=True):
        torch.testing.assert_close(mine.cpu(), reference, rtol=1e-4, atol=1e-4)
    return count


def sums(x: Tensor) -> tuple[Tensor, ...]:
    return x.sum(0), x.sum(1)


def test_what_two_kernels_read_and_is_not_cheap() -> None:
    assert stored(lambda x: sums(x.exp())) == 1
    assert stored(lambda x: sums((x * 2 + 1) * x * x + 3)) == 1
    assert stored(lambda x: sums(x + 1)) == 0  # recomputing costs no more than reading
    assert stored(lambda x: sums(x.exp()), (10, 20)) == 0  # nor is a small value stored
    assert stored(lambda x: x.exp().sum(0)) == 0  # only one kernel reads it


def test_what_leads_to_one_kernel_is_not_stored() -> None:
    """The branches of a SiLU meet before anything else reads them, and the value is stored there."""
    assert stored(lambda x: (x.exp() * x.exp().sigmoid()).sum(0)) == 0
    assert stored(lambda x: sums((lambda y: y * y.sigmoid())(x.exp()))) == 1


def test_a_chain_is_cut_where_it_has_become_long() -> None:
    """Each link is read by its own kernel and by the next link."""

    def chain(x: Tensor) -> tuple[Tensor, ...]:
        results = []
        for _ in range(12):
            x = x * 0.5 + 1
            results.append(x.sum(0))
        return (*results, x)

    assert 3 <= stored(chain) <= 6


def test_a_long_chain_of_one_kernel_is_cut() -> None:
    def chain(x: Tensor, links: int) -> Tensor:
        for _ in range(links):
            x = x * 0.5 + 1
        return x.sum(0)

    assert stored(lambda x: chain(x, 100)) == 0
    assert stored(lambda x: chain(x, 300)) == 2


def test_values_in_loops() -> None:
    def loop(x: Tensor) -> tuple[Tensor, ...]:
        def body(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            z = (y * 0.1).exp()
            return i + 1, z / z.sum(0) + z.sum(1, keepdim=True) / 50

        return torch._higher_order_ops.while_loop(
            lambda i, y: i < 3, body, (torch.zeros((), dtype=torch.int64, device=x.device), x)
        )

    assert stored(lambda x: loop(x)[1]) >= 1


@pytest.mark.parametrize("name", ["residual MLP", "LSTMCell"])
def test_deep_networks_learn_alike(name: str) -> None:
    def losses(device: str) -> list[float]:
        model, x = deep(name, 2)
        model, x = model.to(device), x.to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

        def step() -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = step if device == "cpu" else torch_pjrt.compile_step(step)
        return [float(run()) for _ in range(3)]

    torch.testing.assert_close(losses("pjrt"), losses("cpu"), rtol=1e-3, atol=1e-5)


def test_a_stored_value_that_is_a_result_too() -> None:
    """A stored value may also be a result in an argument's memory, which the program may overwrite."""
    x = torch.randn(SIZES)
    state = x.to("pjrt")

    @torch_pjrt.compile_step
    def step() -> Tensor:
        state.copy_((state * 0.5).exp() * state.sin() + 1)
        return torch.cat([state.sum(0), state.sum(1)])

    for _ in range(4):
        x = (x * 0.5).exp() * x.sin() + 1
        torch.testing.assert_close(step().cpu(), torch.cat([x.sum(0), x.sum(1)]), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(state.cpu(), x, rtol=1e-4, atol=1e-4)
