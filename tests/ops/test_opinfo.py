"""Every OpInfo entry: forward, backward and in place, against CPU eager."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest
import torch

import torch_pjrt
from tests.ops.opinfo import (
    GRADIENT_TOLERANCE,
    OPS,
    UNPREDICTABLE,
    UNSUPPORTED,
    WITHOUT_GAPS,
    assert_same,
    compute,
    may_call_kernels,
    on_device,
    on_the_cpu,
    on_the_host,
    predictable,
    samples,
    tensors,
    usual_dtype,
)

pytestmark = pytest.mark.each_way

# More samples for each op find more, and take longer; CI takes the first few.
COUNT = int(os.environ.get("TORCH_PJRT_TEST_SAMPLES", "2"))


def op_of(name: str) -> Any:
    if name in UNSUPPORTED:
        pytest.skip(UNSUPPORTED[name])
    return OPS[name]


def run(op: Any, sample: Any, function: Any = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (function or op.op)(sample.input, *sample.args, **sample.kwargs)


def with_gaps(given: list[Any]) -> list[Any]:
    """Returns the samples with the last one as views of every second element."""
    return [*given[:-1], given[-1].noncontiguous()] if len(given) > 1 else [given[0], given[0].noncontiguous()]


def compiled(tier: str) -> int:
    """Returns how many graphs were compiled so far although PyTorch's kernels can run them."""
    return torch_pjrt.metrics()["graphs_compiled"] if tier == "auto" and may_call_kernels() else 0


def gradients(op: Any, sample: Any, well_defined: Any) -> tuple[torch.Tensor | None, ...]:
    """Returns the gradients of `well_defined(outputs)`: some outputs are determined up to a phase only."""
    outputs = well_defined(run(op, sample))
    results = [t for t in tensors(outputs) if t.requires_grad]
    leaves = [t for t in tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
    if not results or not leaves:
        return ()
    grads = [torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape).to(t.dtype).to(t.device) for t in results]
    return torch.autograd.grad(results, leaves, grads, allow_unused=True)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.sampled(2)
def test_forward(name: str, tier: str) -> None:
    op = op_of(name)
    given = list(samples(op, usual_dtype(op), COUNT))
    if name not in WITHOUT_GAPS:
        given = with_gaps(given)
    results = [run(op, on_device(sample, name)) for sample in given]
    compute(results)
    assert compiled(tier) == 0
    for sample, result in zip(given, results, strict=True):
        assert_same(result, run(op, sample, on_the_cpu(op)), values=predictable(op, sample))
    on_host = bool(torch_pjrt.metrics()["host_fallbacks"])
    assert on_host == on_the_host(name), torch_pjrt.metrics()["host_fallbacks"]


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.supports_autograd])
@pytest.mark.sampled(2, part=1)
def test_backward(name: str, tier: str) -> None:
    op = op_of(name)
    if op.name in UNPREDICTABLE or not op.supports_dtype(torch.float32, "cpu"):
        pytest.skip("random results, or no float32 kernel on the CPU: there are no gradients to compare")
    given = list(samples(op, torch.float32, COUNT, requires_grad=True))
    results = [gradients(op, on_device(sample, name), sample.output_process_fn_grad) for sample in given]
    compute(results)
    assert compiled(tier) == 0
    for sample, result in zip(given, results, strict=True):
        expected = gradients(op, sample, sample.output_process_fn_grad)
        assert_same(result, expected, values=predictable(op, sample), tolerance=GRADIENT_TOLERANCE.get(name))


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.inplace_variant])
@pytest.mark.sampled(2)
def test_inplace(name: str, tier: str) -> None:
    op = op_of(name)
    if op.name in UNPREDICTABLE or not op.supports_dtype(torch.float32, "cpu"):
        pytest.skip("random results, or no float32 kernel on the CPU")
    written, expected = [], []
    for sample in samples(op, torch.float32, COUNT):
        if sample.broadcasts_input:
            continue
        moved = on_device(sample, name)
        try:
            on_cpu = run(op, sample, op.inplace_variant)
        except RuntimeError:
            with pytest.raises((RuntimeError, TypeError, IndexError)):
                run(op, moved, op.inplace_variant)
            continue
        written.append((run(op, moved, op.inplace_variant), moved.input))
        expected.append((on_cpu, sample.input))
    compute(written)
    assert compiled(tier) == 0
    assert_same(written, expected)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_products_are_compared_with_no_kernel(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    """Beyond float8_e4m3fn, a processor with AMX gives NaN, and others the largest number."""
    a, one = torch.full((16, 16), 32.0), torch.ones(())
    a[0] *= -1
    a, b = a.to(dtype), a.t().to(torch.float8_e4m3fn)
    got = torch._scaled_mm(a.to("pjrt"), b.to("pjrt"), one.to("pjrt"), one.to("pjrt"))

    def of_amx(*_: Any, **__: Any) -> Any:
        return torch.full((16, 16), torch.nan).to(dtype)

    monkeypatch.setattr(torch, "_scaled_mm", of_amx)
    expected = on_the_cpu(OPS["torch._scaled_mm"])(a, b, one, one)
    assert expected.float().abs().eq(448 if dtype == torch.float8_e4m3fn else 16384).all()
    assert_same(got, expected)
