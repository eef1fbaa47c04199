"""Graphs with dynamic shapes are not compiled for each size, whatever the policy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import torch_pjrt
from tests.engine.tier.conftest import counts
from tests.models.generating import KINDS, programs_of
from torch_pjrt import _C


@pytest.fixture(autouse=True)
def growing() -> Iterator[None]:
    _C.set_interprets_growing(True)
    yield
    _C.set_interprets_growing(False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.host_memory
@pytest.mark.sampled(3)
def test_tokens_make_no_programs(kind: str) -> None:
    _C.set_compile_policy("first")
    assert programs_of(kind) <= 5


@pytest.mark.host_memory
def test_nor_do_those_of_a_call_with_other_options() -> None:
    """The networks are known; the ops around them, such as another last token, are not."""
    _C.set_compile_policy("first")
    assert programs_of("GPT-2", tokens=14, eos_token_id=96) <= 5
    assert programs_of("GPT-2") <= 5


def test_strict_mode_makes_none_either() -> None:
    with torch_pjrt.strict_mode():
        assert programs_of("GPT-2, static") <= 5


def of_sizes(first: int) -> None:
    for n in range(first, first + 6):
        x = torch.linspace(0, 1, n)
        given = (x.to("pjrt") * 3).tanh().sum()
        torch.testing.assert_close(given.cpu(), (x * 3).tanh().sum())


@pytest.mark.host_memory
@pytest.mark.parametrize("how", ["first", "strict"])
def test_of_graphs_that_differ_in_sizes_two_are_compiled(how: str) -> None:
    if how == "first":
        _C.set_compile_policy("first")
        of_sizes(11)
        assert counts() == (4, 2)
        of_sizes(11)
        assert counts() == (8, 2)  # not amortized yet
    else:
        with torch_pjrt.strict_mode():
            for n in range(21, 27):
                (torch.linspace(0, 1, n).to("pjrt") * 3).sin().sum().cpu()
        assert counts() == (4, 2)


def test_where_each_is_compiled() -> None:
    _C.set_compile_policy("first")
    torch.use_deterministic_algorithms(True)
    try:
        of_sizes(41)
    finally:
        torch.use_deterministic_algorithms(False)
    assert counts() == (0, 6)


@pytest.mark.parametrize(("how", "size"), [("first", 51), ("deterministic", 61)])
def test_integer_ops_are_not_compiled(how: str, size: int) -> None:
    """Both tiers give the same bits, so this is valid under deterministic algorithms, too."""
    torch.use_deterministic_algorithms(how == "deterministic")
    _C.set_compile_policy("first")
    try:
        tokens = torch.arange(size).to("pjrt")
        for i in range(5):
            tokens = torch.cat([tokens, torch.full((1,), i, device="pjrt")])
            assert (tokens.cumsum(0)[-1] > 3).item()
    finally:
        torch.use_deterministic_algorithms(False)
    assert counts() == (5, 0)
