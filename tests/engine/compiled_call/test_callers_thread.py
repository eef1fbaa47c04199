"""A program that its caller waits for runs in the caller's thread (Note [Caller's thread])."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

pytestmark = pytest.mark.host_memory


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Kernels of PyTorch that are worth several threads run in another one (Note [One team])."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def share_of_this_thread(call: Callable[[], object]) -> float:
    """Returns which part of the processor time of warm calls this thread takes: the most of several rounds."""
    shares = []
    for _ in range(5):
        call()
        own, all_of_them = time.thread_time(), time.process_time()
        for _ in range(100):
            call()
        shares.append((time.thread_time() - own) / (time.process_time() - all_of_them))
    return max(shares)


def product(x: Tensor) -> Tensor:
    return torch.relu(x @ x + 1).sum(0)


@pytest.mark.parametrize(
    ("function", "size"),
    [
        (lambda x: x * 3 + 1, 100),
        (lambda x: x.sort(dim=0).values * 2, 100),
        (product, 30),
        (lambda x: torch.complex(x, x + 1), 100),
        (lambda x: (torch.complex(x, x + 1), x * 2), 100),
    ],
)  # XLA's own threads help with larger products
def test_compiled_calls(function: Callable[[Tensor], Tensor | tuple[Tensor, ...]], size: int) -> None:
    x = torch.randn(size, size)
    compiled = torch.compile(function, backend="pjrt")
    torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-3)
    assert share_of_this_thread(lambda: compiled(x)) > 0.9


def test_a_training_step() -> None:
    net = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 5))
    compiled, x = torch.compile(net, backend="pjrt"), torch.randn(30, 20)
    assert share_of_this_thread(lambda: compiled(x).sum().backward()) > 0.9


@pytest.mark.compiled
def test_small_programs_on_the_device() -> None:
    x = torch.randn(100, 100).to("pjrt")
    assert share_of_this_thread(lambda: (x * 3 + 1)[0, 0].item()) > 0.9
