"""Graphs that AOTAutograd refuses or can't trace into: parameters that a forward changes through ``.data`` (masked
convolutions, clipped weights), filled diagonals of views, and regions."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import torch_pjrt


def multiply(p: nn.Parameter) -> None:
    p.data *= 0.5


def clamp(p: nn.Parameter) -> None:
    p.data = p.data.clamp_(-0.1, 0.1)


def in_turn(p: nn.Parameter) -> None:
    p.data = p.data.mul_(2.0).sub_(0.1)


class Changing(nn.Module):
    def __init__(self, change: Callable[[nn.Parameter], None]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(2, 3, 3)
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        self.change(self.conv.weight)
        return self.conv(x)


@pytest.mark.parametrize("change", [multiply, clamp, in_turn])
@pytest.mark.parametrize("device", ["cpu", "pjrt"])
@pytest.mark.host_memory
def test_data_written_in_place(change: Callable[[nn.Parameter], None], device: str) -> None:
    """AOTAutograd refuses the assignment that Dynamo captures for it if the parameter requires grad."""
    expected = Changing(change)
    actual = copy.deepcopy(expected).to(device)
    address = actual.conv.weight.data_ptr()
    compiled = torch.compile(actual, backend="pjrt", fullgraph=True)
    optimizers = [torch.optim.SGD(each.parameters(), 0.001) for each in (expected, actual)]
    with torch_pjrt.strict_mode():
        for step in range(3):
            x = torch.full((1, 2, 5, 5), step + 1.0)
            results = expected(x), compiled(x.to(device))
            for result, optimizer in zip(results, optimizers, strict=True):
                optimizer.zero_grad()
                result.square().sum().backward()
                optimizer.step()
            torch.testing.assert_close(results[1].cpu(), results[0])
    torch.testing.assert_close(actual.conv.weight.detach().cpu(), expected.conv.weight.detach())
    assert device == "pjrt" or actual.conv.weight.data_ptr() == address


def test_data_of_another_tensor() -> None:
    """The data of another tensor stays an assignment."""

    def exchange(p: nn.Parameter, q: nn.Parameter) -> Tensor:
        p.data = q.data.mul_(2.0)
        return p.sum()

    results = []
    for function in (exchange, torch.compile(exchange, backend="pjrt")):
        p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.full((3,), 4.0))
        with torch.no_grad():
            value = function(p, q)
        results.append((value.item(), p.tolist(), q.tolist()))
    assert results[0] == results[1]


def masked(x: Tensor) -> Tensor:
    y = x * 2
    for i in range(len(y)):
        y[i].fill_diagonal_(0)
    return y


def wrapped(x: Tensor) -> Tensor:
    y = x.flatten(0, 1) * 2
    y[1:].fill_diagonal_(0.5)
    y[::2].fill_diagonal_(fill_value=3, wrap=True)
    y.t().fill_diagonal_(-1, True)
    return y


def cubic(x: Tensor) -> Tensor:
    y = x.repeat(2, 1, 1, 1)
    y[1].fill_diagonal_(1)
    return y


def checkpointed(x: Tensor) -> Tensor:
    result: Tensor = torch.utils.checkpoint.checkpoint(masked, x.sin(), use_reentrant=False)
    return result


@pytest.mark.parametrize("fill", [masked, wrapped, cubic, checkpointed])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("device", ["cpu", "pjrt"])
@pytest.mark.sampled(3)
def test_diagonals_of_views(fill: Callable[[Tensor], Tensor], dynamic: bool, device: str) -> None:
    torch._dynamo.reset()
    torch_pjrt.reset_metrics()
    compiled = torch.compile(fill, backend="pjrt", fullgraph=True, dynamic=dynamic)
    for n in (3, 2):
        x = torch.rand(n, n, n, requires_grad=True)
        moved = x.detach().to(device).requires_grad_()
        expected, found = fill(x), compiled(moved)
        torch.testing.assert_close(found.detach().cpu(), expected.detach())
        expected.square().sum().backward()
        found.square().sum().backward()
        assert moved.grad is not None
        torch.testing.assert_close(moved.grad.cpu(), x.grad)
    assert not torch_pjrt.metrics()["host_fallbacks"]


class Blocks(nn.Module):
    """A model whose blocks are regions."""

    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)) for _ in range(depth))

    @torch.compiler.nested_compile_region
    def block(self, block: nn.Module, x: Tensor) -> Tensor:
        return x + block(x)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = self.block(block, x)
        return x


region = torch.compiler.nested_compile_region


@region
def sine(x: Tensor) -> Tensor:
    return x.sin() * 2


@region
def two(x: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    y = sine(x * factor)
    return y.t() @ y, y + sine(y).sum(0)


@region
def branch(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: sine(x) + 1, lambda x: x.cos(), (x,))


@region
def halves(x: Tensor) -> Tensor:
    return x.exp().reshape(x.shape[0] * 2, -1)


REGIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "twice": lambda x: sine(sine(x)),
    "nested, two results": lambda x: sum(result.sum() for result in (*two(x, 2.0), *two(x + 1, 2.0))),
    "a branch in it, and it in a branch": lambda x: branch(x) * branch(-x),
    "its size": lambda x: halves(x).sum(0) * x.shape[0],
    "a checkpoint": lambda x: torch.utils.checkpoint.checkpoint(lambda x: sine(x.exp()), x, use_reentrant=False),
}


def one_program(f: Callable[[Tensor], Tensor], compiled: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Checks that forward and backward are one program each, with eager's results."""
    torch_pjrt.reset_metrics()
    with torch_pjrt.strict_mode():
        found = compiled(x)
        (gradient,) = torch.autograd.grad(found.square().sum(), x)
    assert torch_pjrt.metrics()["executions"] == 2
    expected = f(x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradient, *torch.autograd.grad(expected.square().sum(), x))


@pytest.mark.parametrize("name", REGIONS)
def test_regions(name: str) -> None:
    compiled = torch.compile(REGIONS[name], backend="pjrt", fullgraph=True)
    for rows in (3, 5, 6, 3):
        one_program(REGIONS[name], compiled, torch.rand(rows, 4, dtype=torch.float64, requires_grad=True))


@pytest.mark.host_memory
def test_blocks_that_are_regions() -> None:
    model = Blocks()
    compiled = torch.compile(model, backend="pjrt", fullgraph=True)
    with torch_pjrt.strict_mode():
        for rows in (5, 5, 7, 2):
            x, results = torch.randn(rows, 4), []
            for each in (model, compiled):
                model.zero_grad()
                value = each(x)
                value.square().sum().backward()
                results.append((value.detach(), [p.grad for p in model.parameters()]))
            torch.testing.assert_close(*results)
            if rows == 5:
                assert torch_pjrt.metrics()["graphs_compiled"] <= 2
    assert torch_pjrt.metrics()["executions"] == 8


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_a_size_that_depends_on_data_in_a_region_that_is_called_twice() -> None:
    places = region(lambda x: torch.nonzero(x) * 2)

    def f(x: Tensor) -> Tensor:
        return places(x) + places(x).cumsum(0)

    x = torch.tensor([0.0, 1.0, 0.0, 2.0])
    torch.testing.assert_close(torch.compile(f, backend="pjrt", fullgraph=True)(x), f(x))


def test_what_is_cut_out_of_a_region() -> None:
    @torch.library.custom_op("tests_rewrites::halve", mutates_args=())
    def halve(x: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().numpy() / 2)

    halve.register_fake(torch.empty_like)
    block = region(lambda x: halve(x + 1) * 2)
    with pytest.warns(UserWarning, match=r"halve.default\] is not compiled at .*test_rewrites.py"):
        found = torch.compile(lambda x: block(block(x)), backend="pjrt", fullgraph=True)(torch.ones(3))
    torch.testing.assert_close(found, torch.full((3,), 3.0))
    assert torch_pjrt.metrics()["host_fallbacks"] == {"tests_rewrites.halve.default": 2}
    assert torch_pjrt.metrics()["executions"] == 3


def windows(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    y.unfold(1, 2, 4).mul_(3)
    part = y.t().unfold(0, 1, 5)
    part.sub_(1)
    y[0].unfold(0, 3, 100).zero_()
    return y, part


@pytest.mark.parametrize("device", ["cpu", "pjrt"])
def test_what_is_between_windows_stays(device: str) -> None:
    """AOTAutograd writes zeros there."""
    compiled = torch.compile(windows, backend="pjrt", fullgraph=True)
    x = torch.rand(2, 12, requires_grad=True)
    moved = x.detach().to(device).requires_grad_()
    expected, found = windows(x), compiled(moved)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach())
        assert a.stride() == b.stride()
    expected[0].square().sum().backward()
    found[0].square().sum().backward()
    assert moved.grad is not None
    torch.testing.assert_close(moved.grad.cpu(), x.grad)


def test_windows_that_end_early_are_refused_where_they_are_written() -> None:
    def write(x: Tensor) -> Tensor:
        x.unfold(0, 2, 3).add_(1)
        return x * 1

    with pytest.raises(Exception, match=r"unfold\(dimension=0, size=2, step=3\) of 11 elements is written to"):
        torch.compile(write, backend="pjrt")(torch.arange(11.0))
    torch.testing.assert_close(
        torch.compile(lambda x: x.unfold(0, 2, 3) + 1, backend="pjrt")(torch.arange(11.0)),
        torch.arange(11.0).unfold(0, 2, 3) + 1,
    )
