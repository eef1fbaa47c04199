"""Every OpInfo entry with out=: the right size, none, and memory with gaps."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.ops.opinfo import (
    DEVICE,
    OPS,
    UNPREDICTABLE,
    UNSUPPORTED,
    assert_same,
    compute,
    on_device,
    on_the_cpu,
    samples,
    to_device,
    usual_dtype,
)
from tests.ops.test_opinfo import run
from tests.warned import warned

pytestmark = pytest.mark.each_way

COUNT = 1


def outs(result: torch.Tensor) -> Iterator[torch.Tensor]:
    yield torch.empty_like(result)
    yield torch.empty(0, dtype=result.dtype)  # will be resized
    yield torch.zeros((*result.shape, 2), dtype=result.dtype)[..., 0]


def run_out(op: Any, sample: Any, out: torch.Tensor) -> Any:
    return op.op(sample.input, *sample.args, **{**sample.kwargs, "out": out})


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.supports_out])
@pytest.mark.sampled(4)
def test_out(name: str) -> None:
    if name in UNSUPPORTED:
        pytest.skip(UNSUPPORTED[name])
    op = OPS[name]
    dtype = usual_dtype(op)
    for sample in samples(op, dtype, COUNT):
        moved = on_device(sample)
        result = run(op, sample, on_the_cpu(op))
        if not isinstance(result, torch.Tensor):
            continue
        written = []
        for out in outs(result):
            out_on_device = to_device(out)
            try:
                run_out(op, sample, out)
            except (RuntimeError, TypeError):
                continue  # this sample's call has no out=
            assert run_out(op, moved, out_on_device) is out_on_device
            written.append(out_on_device)
        compute(written)
        for out in written:
            # Compared with the result, not with the CPU's out: some of its kernels (gelu, avg_pool3d, narrow_copy)
            # mistake memory with gaps.
            assert_same(out, result, values=op.name not in UNPREDICTABLE)


def said_of(call: Callable[[], object]) -> tuple[str, ...]:
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error).split("\n")[0]
    return ("done",)


REFUSED: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "index_select": lambda x, out: torch.index_select(x, 0, torch.tensor([2, 2, 0], device=x.device), out=out),
    "take": lambda x, out: torch.take(x, torch.tensor([4, 2], device=x.device), out=out),
    "cross": lambda x, out: torch.linalg.cross(x, x, out=out),
    "index_add": lambda x, out: torch.index_add(x, 0, torch.tensor([2], device=x.device), x[:1], out=out),
    "scatter_reduce": lambda x, out: torch.scatter_reduce(x, 0, (x * 0).long(), x, "amax", out=out),
    "multinomial": lambda x, out: torch.multinomial(x, 2, out=out),
    "cholesky": lambda x, out: torch.cholesky(x @ x.T, out=out),
    "all": lambda x, out: torch.all(x, dim=(0, 1), out=out),
    "normal": lambda x, out: torch.normal(x, 1.0, out=out),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_out_of_another_dtype_is_refused_at_once(name: str) -> None:
    if not hasattr(torch.ops.aten, name) and name == "cholesky":
        pytest.skip("until torch 2.13")
    said = []
    for device in ("cpu", DEVICE):
        state = torch.get_rng_state()
        x = torch.arange(1.0, 10, device=device).view(3, 3)
        out = torch.zeros(0, dtype=torch.int32 if name in ("cholesky", "normal") else torch.float64, device=device)
        said.append(said_of(lambda x=x, out=out: REFUSED[name](x, out)))
        if device == DEVICE:
            assert torch.get_rng_state().equal(state)  # the host's kernel, which is asked, draws elsewhere
    assert said[1] == said[0] != ("done",)


@pytest.mark.parametrize(
    "fill",
    [
        lambda out: torch.arange(4, out=out),
        lambda out: torch.arange(1, 9, 2, out=out),
        lambda out: torch.range(0, 3, out=out),
        lambda out: torch.linspace(0, 3, 4, out=out),
        lambda out: torch.logspace(0, 3, 4, base=2, out=out),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_memory_is_filled_in_its_own_shape(fill: Any) -> None:
    for shape in ((2, 2), (4, 1), (4,)):
        expected, held = torch.zeros(4, 6), torch.zeros(4, 6, device=DEVICE)
        result = fill(held.as_strided(shape, (6, 1)[: len(shape)], 2))
        assert result.shape == fill(expected.as_strided(shape, (6, 1)[: len(shape)], 2)).shape == shape
        assert held.tolist() == expected.tolist()
    assert fill(torch.zeros((), device=DEVICE)[None, None][:, :0]).tolist() == fill(torch.zeros(1, 0)).tolist()


@pytest.mark.parametrize("fill", [torch.arange, lambda n, *, out: torch.linspace(0, 3, n, out=out)])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (4,)])
def test_a_shape_that_does_not_fit_is_resized_with_the_same_words(fill: Any, shape: tuple[int, ...]) -> None:
    outs = {device: torch.ones(shape, device=device) for device in (DEVICE, "cpu")}
    said = [(warned(lambda out=out: fill(4, out=out)), out.tolist()) for out in outs.values()]
    assert said[0] == said[1]


RESIZED: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "add": lambda x, out: torch.add(x, 1, out=out),
    "abs": lambda x, out: torch.abs(x, out=out),
    "sum": lambda x, out: torch.sum(x, 0, out=out),
    "mm": lambda x, out: torch.mm(x, x, out=out),
    "mv": lambda x, out: torch.mv(x, x[0], out=out),
    "tril": lambda x, out: torch.tril(x, out=out),
    "cat": lambda x, out: torch.cat([x, x], out=out),
    "max": lambda x, out: torch.max(x, 0, out=(out, torch.empty(0, dtype=torch.long, device=x.device))),
    "isnan_any": lambda x, out: torch.any(x, 1, out=out),
    "fft": lambda x, out: torch.fft.fft2(x, out=out),
    "eye": lambda x, out: torch.eye(4, out=out),
    "narrow_copy": lambda x, out: torch.narrow_copy(x, 0, 0, 2, out=out),
}


@pytest.mark.parametrize("name", RESIZED)
def test_each_call_that_resizes_says_so(name: str) -> None:
    """PyTorch's Python functions for Meta tensors warn in the first call only, of a "shape {str(shape)}"."""
    dtype = {"isnan_any": torch.bool, "fft": torch.complex64}.get(name, torch.float32)

    def calls(device: str) -> list[object]:
        x = torch.arange(16.0, device=device).reshape(4, 4)
        outs = [torch.ones(3, dtype=dtype, device=device) for _ in range(3)]
        return [(warned(lambda out=out: RESIZED[name](x, out)), out.shape, out.stride(), out.tolist()) for out in outs]

    assert calls(DEVICE) == calls("cpu")


LAID_OUT: dict[str, Callable[..., torch.Tensor]] = {
    "add": lambda x, out: torch.add(x, x[0], out=out),
    "eq": lambda x, out: torch.eq(x, 1, out=out),
    "where": lambda x, out: torch.where(x > 0, x, x + 1, out=out),
    "clamp": lambda x, out: torch.clamp(x, 0, 1, out=out),
    "nan_to_num": lambda x, out: torch.nan_to_num(x, out=out),
    "div": lambda x, out: torch.div(x, 3, rounding_mode="floor", out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 0, out=out),
    "sum": lambda x, out: torch.sum(x, -1, out=out),
}


@pytest.mark.parametrize("size", [0, 7])
@pytest.mark.parametrize("name", LAID_OUT)
def test_a_resized_out_is_laid_out_as_a_new_result(name: str, size: int) -> None:
    """Elementwise results have the operands' order in memory, which PyTorch's Python Meta kernels ignore."""
    dtype = torch.bool if name == "eq" else torch.float32
    for order in itertools.permutations(range(3)):
        x = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))[..., ::2].permute(order)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "An output with one or more elements was resized")
            expected = LAID_OUT[name](x, torch.empty(size, dtype=dtype))
            got = LAID_OUT[name](x.to(DEVICE), torch.empty(size, dtype=dtype, device=DEVICE))
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got.cpu(), expected)


def test_resized_within_its_storage() -> None:
    """The storage also grows by the memory before the tensor."""
    for _ in range(2):  # the second call is known
        results = []
        for device in ("cpu", DEVICE):
            base = torch.zeros(2, 3, device=device)
            out = base.narrow(1, 2, 1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the warning about the resize
                torch.sin(torch.ones(2, 3, device=device), out=out)
            results.append((out.untyped_storage().nbytes(), out.stride(), out.cpu(), base.cpu()))
        assert results[0][:2] == results[1][:2]
        for expected, actual in zip(results[0][2:], results[1][2:], strict=True):
            torch.testing.assert_close(actual, expected)


def test_what_is_read_is_not_resized() -> None:
    for device in ("cpu", DEVICE, DEVICE):
        x = torch.ones(4, device=device)
        with pytest.raises(RuntimeError, match=r"output with shape \[4\] doesn't match the broadcast shape \[3, 4\]"):
            torch.add(x, torch.ones(3, 4, device=device), out=x)
        assert x.tolist() == [1] * 4
