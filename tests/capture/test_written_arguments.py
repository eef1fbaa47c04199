"""Arguments that a function writes to by another view of their memory: in ``jit``, in steps and in files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
