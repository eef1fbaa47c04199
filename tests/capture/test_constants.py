"""compile_step and jit: what a function makes of values is new in each call, and may be read while it is captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torch_pjrt
from torch_pjrt.errors import ValueNeeded

DEVICES = ("cpu", "pjrt")
WAYS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "compile_step": lambda f, x: torch_pjrt.compile_step(f),
    "jit": lambda f, x: torch_pjrt.jit(f, (x,)),
    "torch.compile": lambda f, x: torch.compile(f, backend="pjrt"),
}
TABLE = torch.zeros(2)


def made_of_a_list(x: torch.Tensor) -> torch.Tensor:
    made = torch.tensor([0.0, 1.0], device=x.device)
    made += x.sum()
    return made


def a_view_of_it(x: torch.Tensor) -> torch.Tensor:
    made = torch.as_tensor([0.0, 1.0]).to(x.device)
    made[1:].add_(x.sum())
    return made * 1


def a_clone_of_it(x: torch.Tensor) -> torch.Tensor:
    made = torch.tensor([0.0, 1.0], device=x.device).clone()
    made.view(2).add_(x.sum())
    return made


def of_its_kind(x: torch.Tensor) -> torch.Tensor:
    made = x.new_tensor([0.0, 1.0])
    made += x.sum()
    return made


def a_parameter(x: torch.Tensor) -> torch.Tensor:
    made = nn.Parameter(torch.tensor([0.0, 1.0], device=x.device))
    with torch.no_grad():
        made += x.sum()
    return made.detach()


def as_it_is(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([0.0, 1.0], device=x.device)


def moved(x: torch.Tensor) -> torch.Tensor:
    there = TABLE.to(x.device, copy=True)
    there += x.sum()
    return there


def moved_to_anothers(x: torch.Tensor) -> torch.Tensor:
    there = TABLE.to(x, copy=True)
    there[0] = x.sum()
    return there


MAKERS = (made_of_a_list, a_view_of_it, a_clone_of_it, of_its_kind, a_parameter, as_it_is, moved, moved_to_anothers)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("function", MAKERS)
def test_what_is_made_is_made_anew(function: Callable[..., torch.Tensor], device: str, way: str) -> None:
    if way == "torch.compile" and function is a_parameter:
        pytest.skip("Dynamo lifts a parameter that is made in the function out of its graph")
    x = torch.ones(6, device=device)
    wanted = function(x).tolist()
    fast = WAYS[way](function, x)
    for _ in range(4):
        result = fast(x)
        assert result.tolist() == wanted
        result.add_(1)
    assert TABLE.tolist() == [0, 0]


@pytest.mark.parametrize("way", WAYS)
def test_what_is_moved_to_the_device_is_a_copy(way: str) -> None:
    def to_its_device(x: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
        there = TABLE.to(x.device)
        there += x.sum()
        there.add_(number.to(x).add_(1))
        return there

    def as_another(x: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
        there = TABLE.to(x)
        there[0] = x.sum() + number
        return there

    x, number = torch.ones(6, device="pjrt"), torch.zeros(())
    for function in (to_its_device, as_another):
        wanted = function(x, number).tolist()
        given = (x, number)
        fast = torch_pjrt.jit(function, given) if way == "jit" else WAYS[way](function, x)
        assert [fast(*given).tolist() for _ in range(3)] == [wanted] * 3
        assert (TABLE.tolist(), number.item()) == ([0, 0], 0)


@pytest.mark.parametrize("device", DEVICES)
def test_writes_to_memory_that_only_the_capture_saw(device: str) -> None:
    x, array = torch.ones(3, device=device), np.zeros(2, np.float32)

    def fresh_array(x: torch.Tensor) -> torch.Tensor:
        made = torch.from_numpy(np.zeros(2, np.float32))
        made.add_(x.sum().to(made.device) if device == "cpu" else 1)
        return made.sum() + x

    with pytest.raises(torch_pjrt.CaptureError, match=r"torch\.from_numpy, torch\.Tensor and the like.*copy it first"):
        torch_pjrt.compile_step(fresh_array)(x)
    kept = torch.from_numpy(array)

    def kept_array(x: torch.Tensor) -> torch.Tensor:
        return kept.add_(x.sum()) if device == "cpu" else kept.to(device) + x.sum()

    fast = torch_pjrt.compile_step(kept_array)
    assert [fast(x).tolist() for _ in range(3)] == ([[3] * 2, [6] * 2, [9] * 2] if device == "cpu" else [[3] * 2] * 3)


@pytest.mark.parametrize("device", DEVICES)
def test_what_rests_on_no_argument_may_be_read(device: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(6, device=x.device)
        table = torch.tensor([1.0, 2.0, 3.0], device=x.device) + 1
        if (places.diff() != 1).any() or not bool((table == 4).any()):
            return x
        assert places.tolist() == [0, 1, 2, 3, 4, 5]
        assert f"{places[3]}" == "3"
        assert torch.div(len(x), 2, rounding_mode="floor") == 3  # a tensor of scalars alone
        halves = x.view(torch.div(len(x), 3, rounding_mode="floor"), -1)
        return x[: int((places > 2).sum())] * float(table.max()) + places[int(places[1]) :].sum() + halves[1]

    x = torch.rand(6, device=device)
    for fast in (torch_pjrt.compile_step(f), torch_pjrt.jit(f, (x,))):
        for _ in range(2):
            torch.testing.assert_close(fast(x), f(x))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "value",
    [
        lambda x, kept: x.sum(),
        lambda x, kept: kept.sum(),
        lambda x, kept: torch.rand(3, device=x.device).sum(),
        lambda x, kept: torch.randint(5, (3,), device=x.device).sum(),
        lambda x, kept: torch.arange(3, device=x.device).sum() + x.sum(),
    ],
)
def test_what_rests_on_more_has_no_value(value: Callable[..., torch.Tensor], device: str) -> None:
    kept = torch.ones(3, device=device)
    with pytest.raises(torch_pjrt.CaptureError, match="needs the value of a tensor"):
        torch_pjrt.compile_step(lambda x: x + 1 if value(x, kept) > 0 else x)(torch.ones(3, device=device))
    with pytest.raises(torch_pjrt.CaptureError, match="needs the value of a tensor"):
        torch_pjrt.compile_step(lambda x: x * int(value(x, kept)))(torch.ones(3, device=device))


def test_shapes_that_depend_on_known_data() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        places = torch.arange(5, device=x.device)
        mask = torch.ones(5, 2, device=x.device)
        mask[3] = 0
        written, known = x.clone(), torch.zeros(5, device=x.device)
        written[places > 2] = torch.ones(2, device=x.device)
        known[places > 2] = x[:2]
        parts = torch.tensor_split(x, torch.tensor([2, 3]))
        chosen = [torch.masked_select(x, places > 2), x[:, None].expand(5, 2).masked_select(mask.bool())]
        chosen += [x.repeat_interleave(places), torch.repeat_interleave(x[None] * x[:, None], places, dim=1)]
        chosen += [torch.repeat_interleave(places), x[:2].repeat_interleave(places[2:3])]
        some = [True, False, True, False, False]
        chosen += [x[some], (x * x[:, None])[None, ..., some]]
        return x[places % 2 == 0], x[mask.nonzero()[:, 0]], torch.unique(places // 2), written, known, *parts, *chosen

    for device in DEVICES:
        x = torch.rand(5, device=device)
        for fast in (torch_pjrt.compile_step(fn), torch_pjrt.jit(fn, (x,))):
            for _ in range(2):
                torch.testing.assert_close(fast(x), fn(x.cpu()) if device == "pjrt" else fn(x), check_device=False)


def test_shapes_that_depend_on_data_say_where() -> None:
    for fn in (lambda x: x[x > 0], torch.nonzero, lambda x: torch.tensor_split(x, (x > 0).long())):
        with pytest.raises(
            ValueNeeded,
            match=r"(torch\.where|numbers).*\(at .*test_constants\.py:\d+\)|^nonzero can.t be part",
        ):
            torch_pjrt.jit(fn, (torch.ones(3),))
