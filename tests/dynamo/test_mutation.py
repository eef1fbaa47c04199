"""torch.compile: arguments that a compiled function changes, and results that share memory."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tests.dynamo.test_backend import DEVICES, compiled, same


@pytest.mark.parametrize("device", DEVICES)
class TestMutation:
    def test_argument(self, device: str) -> None:
        def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.add_(y)
            return x * 2

        x, y = torch.arange(16.0).to(device), torch.ones(16).to(device)
        version, address = x._version, x.data_ptr()
        result = compiled(f)(x, y)
        same(x.cpu(), torch.arange(16.0) + 1)
        same(result.cpu(), (torch.arange(16.0) + 1) * 2)
        assert x._version > version
        assert x.data_ptr() == address

    def test_view_argument_that_is_not_aligned(self, device: str) -> None:
        base, other = torch.arange(10.0).to(device), torch.arange(10.0)

        def f(x: torch.Tensor) -> torch.Tensor:
            x.mul_(3)
            return x.sum()

        same(compiled(f)(base[3:7]).cpu(), f(other[3:7]))
        same(base.cpu(), other)

    def test_strided_argument(self, device: str) -> None:
        base, other = torch.arange(24.0).reshape(4, 6).to(device), torch.arange(24.0).reshape(4, 6)

        def f(x: torch.Tensor) -> torch.Tensor:
            x.mul_(3)
            return x + 1

        torch.testing.assert_close(compiled(f)(base[:, 1:3]).cpu(), f(other[:, 1:3]))
        same(base.cpu(), other)

    def test_arguments_that_alias_each_other(self, device: str) -> None:
        def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return y * 2

        base, other = torch.zeros(8).to(device), torch.zeros(8)
        same(compiled(f)(base[:4], base[2:6]).cpu(), f(other[:4], other[2:6]))
        same(base.cpu(), other)

    def test_written_without_being_read(self, device: str) -> None:
        def f(x: torch.Tensor, y: torch.Tensor) -> None:
            x.copy_(y)

        x, y = torch.zeros(5).to(device), torch.arange(5.0).to(device)
        compiled(f)(x, y)
        same(x.cpu(), torch.arange(5.0))

    def test_buffer(self, device: str) -> None:
        class Counter(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("count", torch.zeros(3))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                self.count += 1
                return x + self.count

        model = Counter().to(device)
        fast = compiled(model)
        for i in range(1, 4):
            same(fast(torch.zeros(3).to(device)).cpu(), torch.full((3,), float(i)))
        same(model.count.cpu(), torch.full((3,), 3.0))

    def test_cache_written_by_index(self, device: str) -> None:
        def f(cache: torch.Tensor, position: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            cache.index_copy_(1, position, value)
            return cache.sum(1)

        cache, other = torch.zeros(2, 8, 4).to(device), torch.zeros(2, 8, 4)
        fast = compiled(f)
        for i in range(4):
            value = torch.randn(2, 1, 4)
            result = fast(cache, torch.tensor([i]).to(device), value.to(device))
            torch.testing.assert_close(result.cpu(), f(other, torch.tensor([i]), value))
        same(cache.cpu(), other)


@pytest.mark.parametrize("device", DEVICES)
class TestAliasing:
    def test_result_that_is_a_view_of_an_argument(self, device: str) -> None:
        x = torch.arange(6.0).reshape(2, 3).to(device)
        view = compiled(lambda t: t.t())(x)
        assert view.stride() == (1, 3)
        view.zero_()
        assert x.cpu().sum() == 0

    def test_results_that_alias_each_other(self, device: str) -> None:
        def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = x + 1
            return y, y[1:]

        whole, part = compiled(f)(torch.zeros(4).to(device))
        part.fill_(7)
        same(whole.cpu(), torch.tensor([1.0, 7, 7, 7]))

    def test_the_argument_itself(self, device: str) -> None:
        x = torch.ones(3).to(device)
        result, other = compiled(lambda t: (t, t + 1))(x)
        assert result is x
        same(other.cpu(), torch.full((3,), 2.0))

    def test_tied_weights(self, device: str) -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].weight = model[0].weight
        other = copy.deepcopy(model)
        other[0].weight = nn.Parameter(other[0].weight.detach().to(device))
        other[1].weight = other[0].weight
        other.to(device)
        x = torch.randn(2, 4)
        model(x).sum().backward()
        compiled(other)(x.to(device)).sum().backward()
        torch.testing.assert_close(other[0].weight.grad.cpu(), model[0].weight.grad)
