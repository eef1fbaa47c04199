"""Programs are dropped when they use too many mappings (Note [Mappings]), and are compiled again on demand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import torch_pjrt
from torch_pjrt import _C

pytestmark = pytest.mark.compiled

SIZES = range(201, 209)


def run(size: int, device: str = "pjrt") -> torch.Tensor:
    x = torch.ones(2, size, device=device)
    for i in range(4):
        x = (x * 1.5 + i).tanh().softmax(-1).cumsum(-1)
    return x.cpu()


def new_programs() -> int:
    metrics = torch_pjrt.metrics()
    return metrics["graphs_compiled"] + metrics["graphs_loaded_from_disk"]


def drop_all_but(size: int) -> None:
    for _ in range(20):  # drops half of them each time
        run(size)
        _C.drop_older_programs()


def test_the_older_ones_go_and_come_back() -> None:
    held = [torch_pjrt.jit(lambda x: x.tanh() + 1, [torch.ones(n)]) for n in range(3, 20)]  # held programs stay
    for size in SIZES:
        run(size)
    drop_all_but(SIZES[-1])
    torch_pjrt.reset_metrics()
    run(SIZES[-1])
    assert new_programs() == 0
    for size in SIZES:
        torch.testing.assert_close(run(size), run(size, "cpu"))
    assert new_programs() == len(SIZES) - 1
    assert held[0](torch.zeros(3)).tolist() == [1, 1, 1]


def test_compiled_functions_keep_theirs() -> None:
    f = torch.compile(lambda x: x.tanh() + 1, backend="pjrt")
    x = torch.ones(3)
    expected = f(x)
    drop_all_but(SIZES[0])
    torch_pjrt.reset_metrics()
    assert torch.equal(f(x), expected)
    assert new_programs() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the mappings")
@pytest.mark.host_memory
def test_what_goes_frees_its_mappings() -> None:
    def mappings() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    drop_all_but(SIZES[0])
    before = mappings()
    for size in SIZES:
        run(size)
    after = mappings()
    assert after > before + 3 * len(SIZES)
    drop_all_but(SIZES[0])
    assert mappings() < (before + after) / 2


def test_what_is_forgotten_makes_no_numbers_vary(programs: list[str]) -> None:
    def added(number: int) -> str:
        x = torch.ones(2, 211, device="pjrt")
        x.add_(number)
        x.cpu()
        return programs[-1]

    assert "%arg1" not in added(5)
    assert "%arg1" in added(6)
    _C.forget_programs()
    assert "%arg1" not in added(7)
