"""Ops on the host report their reason; costly ones are warned of, and all are counted."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch._decomp import decomposition_table

import torch_pjrt
from tests.ops.opinfo import may_call_kernels
from tests.warned import warned

LINEAR_ALGEBRA = "XLA has no op for this linear algebra, which the host does with LAPACK and BLAS"
SHAPE = "its result's shape depends on data"
NO_META = "it has no Meta kernel, which would tell what its results look like"
NO_WAY = "it has no lowering rule and no decomposition"


@pytest.fixture(scope="module")
def library() -> Iterator[torch.library.Library]:
    """Returns a library of ops that differ in what PyTorch knows about them."""
    library = torch.library.Library("host_test", "DEF")
    library.define("no_meta(Tensor x) -> Tensor")
    library.define("meta_refuses(Tensor x) -> Tensor")
    library.define("a_number_of_data(Tensor x) -> Tensor", tags=(torch.Tag.data_dependent_output,))
    library.define("reads(Tensor x) -> Tensor")
    for name in ("no_meta", "meta_refuses", "a_number_of_data", "reads"):
        library.impl(name, lambda x: x + 1, "CPU")

    def refuse(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("not that one")

    library.impl("meta_refuses", refuse, "Meta")
    library.impl("reads", torch.empty_like, "Meta")
    yield library
    library._destroy()


def why(call: Callable[[], object]) -> list[str]:
    """Returns the reasons of the calls that ran on the host."""
    with torch_pjrt.explain() as report, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call()
    return [fallback.reason for fallback in report.fallbacks]


@pytest.mark.parametrize("name", ["inv", "svd", "eigh", "qr", "det", "pinv", "eig", "lu_factor", "matrix_exp"])
def test_linear_algebra(name: str) -> None:
    x = (torch.eye(3) * 2).to("pjrt")
    reason = {LINEAR_ALGEBRA} if name == "eig" and not may_call_kernels() else set()
    assert set(why(lambda: getattr(torch.linalg, name)(x))) == reason
    assert not why(lambda: torch.linalg.solve(x, x))


def by_rank(x: torch.Tensor) -> object:
    """The result has residuals if the rank, which is computed, is the number of columns."""
    return torch.linalg.lstsq(x[:, None], x[:, None], driver="gelss")


def test_reasons(library: torch.library.Library) -> None:
    x, ops = torch.ones(3).to("pjrt"), torch.ops.host_test
    assert why(lambda: by_rank(x)) == [SHAPE]
    assert why(lambda: ops.no_meta(x)) == [NO_META]
    assert why(lambda: ops.meta_refuses(x)) == ["its Meta kernel refuses what the CPU's takes"]
    assert why(lambda: ops.a_number_of_data(x)) == ["its result depends on data"]
    assert why(lambda: ops.reads(torch.ones(4).to("pjrt"))) == [NO_WAY]


def test_a_decomposition_that_reads(library: torch.library.Library, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = torch.ops.host_test.reads.default
    monkeypatch.setitem(decomposition_table, reads, lambda x: x + x.sum().item() - 2)
    [reason] = why(lambda: reads(torch.ones(3).to("pjrt")))
    assert reason == "its decomposition can't be traced: RuntimeError: a value is needed, which only a run has"


def test_strict_mode_knows_the_reasons(library: torch.library.Library) -> None:
    x, ops = torch.ones(3).to("pjrt"), torch.ops.host_test
    with torch_pjrt.strict_mode():
        for call, reason in (
            (lambda: by_rank(x), SHAPE),
            (lambda: ops.no_meta(x), NO_META),
        ):
            with pytest.raises(RuntimeError, match=f"would run on the host at .*: {reason}"):
                call()
        with pytest.raises(ValueError, match="not that one"):
            ops.meta_refuses(x)


def test_a_usual_validation_needs_no_host(tier: str) -> None:
    """Metrics use labels, masks and counts: their shapes depend on data, so only the size is read."""
    x = torch.tensor([0, 2, 0, 3]).to("pjrt")
    torch_pjrt.reset_metrics()

    def validate() -> None:
        for _ in range(200):
            x.nonzero(), x.unique(), x[x > 0], x.bincount(), x.masked_select(x > 0)

    assert warned(validate) == []
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_rank(x.float())
    runs_eagerly = torch_pjrt._C.is_host_memory() and tier == "auto"
    assert torch_pjrt.metrics()["host_fallbacks"] == ({} if runs_eagerly else {"aten::linalg_lstsq": 1})
