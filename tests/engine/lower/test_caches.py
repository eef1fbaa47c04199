"""Writes to a part of a large tensor that is also read (a cache of keys) copy nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch

import torch_pjrt

DEVICE = "pjrt"
SHAPE = (8, 512, 8, 64)  # 1 MiB a row


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
    for offset in (0, 1, 8, 4, 5, 2):  # offsets from 3 on include an element of the next row
        for x in (memory, on_device):
            x.as_strided((2, 3), (6, 1), offset).copy_(torch.arange(6.0).view(2, 3) + offset)
        assert on_device.tolist() == memory.tolist()


def in_slices(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.slice_scatter(x, torch.slice_scatter(x[1:5], y[:, :2], 1, 2, 4), 0, 1, 5)


def in_steps(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.slice_scatter(x, torch.slice_scatter(x[1:5], y[:, :2], 1, 2, 6, 2), 0, 1, 5)


def in_a_row(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.select_scatter(x, torch.slice_scatter(x[3], y[0], 0, 1, 4), 0, 3)


def in_columns(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.select_scatter(x, torch.slice_scatter(x[:, 3], y[:3, 0], 0, 1, 4), 1, 3)


def in_a_transpose(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.slice_scatter(x.t(), torch.slice_scatter(x.t()[2:5], y.t(), 1, 1, 5), 0, 2, 5)


def elsewhere(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:  # the written values were read elsewhere
    return torch.slice_scatter(x, torch.slice_scatter(x[1:5], y[:, :2], 1, 2, 4), 0, 0, 4)


@pytest.mark.parametrize("write", [in_slices, in_steps, in_a_row, in_columns, in_a_transpose, elsewhere])
def test_writes_of_a_part_in_a_part(write: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    x, y = torch.randn(6, 7), torch.randn(4, 3)
    wide = torch.randn(6, 14)
    for layout in (lambda d: x.to(d), lambda d: x.t().contiguous().to(d).t(), lambda d: wide.to(d)[:, ::2]):
        expected, found = write(layout("cpu"), y), write(layout(DEVICE), y.to(DEVICE))
        assert torch.equal(found.cpu(), expected)
        assert found.stride() == expected.stride()
    text = torch_pjrt.to_graph(write, x, y)
    assert text.count("pjrt::write") == (1 if write in (in_slices, in_a_row) else 2)


def test_parts_that_do_not_fit_are_refused_as_on_the_cpu() -> None:
    for scatter in (torch.slice_scatter, torch.select_scatter):
        said = []
        for device in (DEVICE, "cpu"):
            with pytest.raises(RuntimeError, match="expected src to have a size equal to the slice of self") as error:
                scatter(torch.ones(3, 4, device=device), torch.ones(2, 2, device=device), 0, 1)
            said.append(str(error.value))
        assert said[0] == said[1]


@pytest.mark.alone
@pytest.mark.parametrize(
    "write", [write for write in WRITES if write is not two_in_a_row]
)  # (engine/lower/module/emit_program.h)
def test_nothing_is_copied(write: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]) -> None:
    large, small = (torch.zeros(n, *SHAPE[1:], device=DEVICE) for n in (128, 2))  # MiB
    x = torch.randn(2, 4, *SHAPE[2:]).to(DEVICE)

    def fastest(cache: torch.Tensor) -> float:
        times = []
        for place in range(12):
            start = time.perf_counter()
            write(cache, x, 3 * place)
            torch.pjrt.synchronize()
            times.append(time.perf_counter() - start)
        return min(times[4:])

    assert fastest(large) < fastest(small) + 8e-3  # a copy takes 25 ms or more


@pytest.mark.alone
@pytest.mark.parametrize("device", [DEVICE, "cpu"])
def test_nothing_is_copied_in_a_compiled_call(device: str) -> None:
    compiled = torch.compile(slices, backend="pjrt")
    x = torch.randn(2, 4, *SHAPE[2:]).to(device)

    def fastest(n: int) -> float:
        cache = torch.zeros(n, *SHAPE[1:], device=device)
        times = []
        for _ in range(8):
            start = time.perf_counter()
            compiled(cache, x, 3)
            torch.pjrt.synchronize()
            times.append(time.perf_counter() - start)
        assert cache[1, 4, 5].tolist() == x[1, 1, 5].tolist()
        return min(times[3:])

    assert fastest(128) < fastest(2) + 8e-3
