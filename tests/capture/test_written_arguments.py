"""Arguments that a function writes to by another view of their memory: in ``jit``, in steps and in files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_pjrt


def flat(x: torch.Tensor) -> None:
    x.view(-1).add_(torch.arange(x.numel()))


def in_two_ways(x: torch.Tensor) -> None:
    x.t().add_(torch.arange(x.numel()).view(x.shape[1], x.shape[0]))
    x.flatten().mul_(2)
    x[0].sub_(1)


def scaled_columns(x: torch.Tensor) -> None:
    x.t().mul_(torch.arange(x.shape[1])[:, None])


def as_integers(x: torch.Tensor) -> None:
    x.view(torch.int32).add_(torch.arange(x.numel()).view(x.shape))


def of_one_more_dimension(x: torch.Tensor) -> None:
    x.unsqueeze(0).mul_(torch.arange(x.shape[1]))


ANY = (scaled_columns, as_integers, of_one_more_dimension)


@pytest.mark.parametrize(
    ("write", "transposed"),
    [*((write, False) for write in (flat, in_two_ways, *ANY)), *((write, True) for write in ANY)],
)
@pytest.mark.parametrize("shape", [(3, 3), (2, 3)], ids=["square", "wide"])
@pytest.mark.parametrize("entry", ["jit", "step", "file"])
def test_what_is_written(
    tmp_path: Path, write: Callable[[torch.Tensor], None], shape: tuple[int, int], transposed: bool, entry: str
) -> None:
    def given() -> torch.Tensor:
        x = torch.arange(1.0, 1 + shape[0] * shape[1])
        return x.view(shape[::-1]).t() if transposed else x.view(shape)

    expected, got = given(), given()
    write(expected)
    if entry == "jit":
        torch_pjrt.jit(write, (got,))(got)
    elif entry == "step":
        torch_pjrt.compile_step(write)(got)
    else:
        torch_pjrt.export(write, got).save(tmp_path / "it.pjrt", form="text")
        torch_pjrt.load(tmp_path / "it.pjrt")(got)
    assert torch.equal(got, expected)


def same_object(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + 1 if a is b else a + b * 10


def write_first(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    return a + b * 10


def as_dict(a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"sum": a + 1 if a is b else a + b * 10}


def same_address(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + 1 if a.data_ptr() == b.data_ptr() else a + b * 10


def same_storage(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + 1 if a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() else a + b * 10


def captured(entry: str, fn: Callable[..., Any], *examples: torch.Tensor) -> Callable[..., Any]:
    return torch_pjrt.jit(fn, examples) if entry == "jit" else torch_pjrt.compile_step(fn)


@pytest.mark.parametrize("entry", ["jit", "step"])
@pytest.mark.parametrize("device", ["cpu", "pjrt"])
@pytest.mark.parametrize("fn", [same_object, write_first, as_dict, same_address])
@pytest.mark.parametrize("order", ["apart first", "one first"])
def test_one_tensor_for_two_arguments(entry: str, device: str, fn: Callable[..., Any], order: str) -> None:
    fast = None
    for is_one in [order == "one first", order != "one first"] * 2:
        results = []
        for call in (fn, fast):
            x, y = torch.arange(3.0, device=device), torch.ones(3, device=device)
            args = (x, x) if is_one else (x, y)
            if call is None:
                call = fast = captured(entry, fn, *args)
            results.append((call(*args), x, y))
        torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("entry", ["jit", "step"])
@pytest.mark.parametrize("fn", [write_first, same_storage])
def test_arguments_that_share_memory_are_named(entry: str, fn: Callable[..., Any]) -> None:
    x = torch.ones(2, 2)
    fast = captured(entry, fn, x, x.clone())
    torch.testing.assert_close(fast(x, x * 2), fn(torch.ones(2, 2), torch.ones(2, 2) * 2))
    with pytest.raises(RuntimeError, match=r"'argument \d' and 'argument \d' share memory.*Pass a clone\(\)"):
        fast(x, x.view(2, 2))
    with pytest.raises((RuntimeError, TypeError), match=r"Pass a clone\(\)|no copy can stand for it"):
        fast(x, x.t())


@pytest.mark.parametrize("fn", [same_address, same_storage])
def test_a_file_has_no_addresses(fn: Callable[..., Any]) -> None:
    with pytest.warns(UserWarning, match="'main' reads addresses.*a tensor of its own"):
        torch_pjrt.export(fn, (torch.ones(2), torch.ones(2)))
