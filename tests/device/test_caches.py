"""Writes to a part of a large tensor that is read as well (a cache of keys): nothing of it is copied."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch

import torch_pjrt

DEVICE = "pjrt"
SHAPE = (8, 512, 8, 64)  # 8 MiB, which takes milliseconds to copy


def slices(cache: torch.Tensor, x: torch.Tensor, place: int) -> torch.Tensor:
    cache[:2, place : place + 4] = x
    return cache[:2, : 4 + 4].sum(1) + cache[1, 0]


def select(cache: torch.Tensor, x: torch.Tensor, place: int) -> torch.Tensor:
    cache[1, place] = x[0, 0]
    return cache[1, :8] * 2


def two_in_a_row(cache: torch.Tensor, x: torch.Tensor, place: int) -> torch.Tensor:
    cache[:2, place : place + 4] = x
    cache[:2, place + 4 : place + 8] = cache[:2, place : place + 4] * 2
    return cache[:2, :16].sum(1)


def transposed(cache: torch.Tensor, x: torch.Tensor, place: int) -> torch.Tensor:
    cache.transpose(1, 2)[:2, :, place : place + 4] = x.transpose(1, 2)
    return cache.transpose(1, 2)[:2, :, :8].sum(2)


WRITES: list[Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]] = [slices, select, two_in_a_row, transposed]


@pytest.mark.parametrize("write", WRITES)
def test_values_at_places_that_vary(write: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]) -> None:
    cache, on_device = torch.zeros(SHAPE), torch.zeros(SHAPE, device=DEVICE)
    torch.manual_seed(0)
    for i, place in enumerate((0, 4, 7, 504, 3)):
        x = torch.randn(2, 4, *SHAPE[2:])
        before = torch_pjrt.metrics()["graphs_compiled"]
        torch.testing.assert_close(write(on_device, x.to(DEVICE), place).cpu(), write(cache, x, place))
        assert i < 3 or torch_pjrt.metrics()["graphs_compiled"] == before
        assert torch.equal(on_device.cpu(), cache)


def test_a_window_that_crosses_a_boundary_of_the_base_is_another_program() -> None:
    memory, on_device = torch.zeros(4, 6), torch.zeros(4, 6, device=DEVICE)
    for offset in (0, 1, 8, 4, 5, 2):  # from 3 on, an element of the next row
        for x in (memory, on_device):
            x.as_strided((2, 3), (6, 1), offset).copy_(torch.arange(6.0).view(2, 3) + offset)
        assert on_device.tolist() == memory.tolist()


@pytest.mark.alone
@pytest.mark.parametrize("write", [write for write in WRITES if write is not two_in_a_row])  # (engine/overwrites.h)
def test_nothing_is_copied(write: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]) -> None:
    large, small = (torch.zeros(n, *SHAPE[1:], device=DEVICE) for n in (64, 2))  # 64 MiB and 2
    x = torch.randn(2, 4, *SHAPE[2:]).to(DEVICE)

    def fastest(cache: torch.Tensor) -> float:
        times = []
        for place in range(12):
            start = time.perf_counter()
            write(cache, x, 3 * place)
            torch.pjrt.synchronize()
            times.append(time.perf_counter() - start)
        return min(times[4:])

    assert fastest(large) < fastest(small) + 3e-3  # a copy takes 10 ms and more
