"""XLA rewrites no float program: each op rounds as in PyTorch, and zeros keep the CPU's signs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import torch_pjrt
from tests.fresh import Job, Server

pytestmark = pytest.mark.compiled

DEVICE = "pjrt"
SHARE = float(os.environ.get("TORCH_PJRT_TEST_REWRITES", "0.004"))
SWEEP = (Path(__file__).parent / "rewrites.py").read_text()
# Without fused multiply-adds (docs/numerics.md), a program rounds each op.
EXACT = {"TORCH_PJRT_XLA_OPTIONS": "xla_cpu_max_isa=AVX"}

Run = Callable[[Callable[..., Tensor], Tensor], Tensor]


def on_device(f: Callable[..., Tensor], x: Tensor) -> Tensor:
    return f(x.to(DEVICE)).cpu()


def compiled(f: Callable[..., Tensor], x: Tensor) -> Tensor:
    torch._dynamo.reset()
    return torch.compile(f, backend="pjrt", fullgraph=True)(x)


run = pytest.mark.parametrize("run", [on_device, compiled], ids=["device", "compiled"])


def same(actual: Tensor, expected: Tensor, rtol: float = 1e-6) -> None:
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=0, equal_nan=True)
    numbers = ~expected.isnan()
    assert torch.equal(actual.signbit()[numbers], expected.signbit()[numbers]), (actual, expected)


@pytest.mark.older_xla
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_program_gives_what_its_steps_give(server: Server, dtype: str) -> None:
    (result,) = server.run(Job(SWEEP, (dtype, SHARE), EXACT | {"TORCH_PJRT_CACHE": "0"}))
    counted, *wrong = result.out.splitlines()
    assert int(counted.removeprefix("compared ")) > 100
    assert not wrong, "\n".join(wrong)


def test_the_sweep_sees_rewrites(server: Server) -> None:
    """The sweep finds one with XLA's simplifier."""
    rewritten = {"TORCH_PJRT_XLA_OPTIONS": "xla_cpu_max_isa=AVX,xla_disable_hlo_passes=none", "TORCH_PJRT_CACHE": "0"}
    (result,) = server.run(Job(SWEEP, ("float32", SHARE, "x + 12582912.0", "x - 12582912.0"), rewritten))
    assert "x + 12582912.0 -> x - 12582912.0" in result.out


def rounded_by_a_large_number(x: Tensor) -> Tensor:
    return (x * 8 + 12582912.0) - 12582912.0


def log1p(x: Tensor) -> Tensor:
    u = 1 + x
    return torch.where(u == 1, x, torch.log(u) * x / (u - 1))


LARGE = torch.tensor([89.0, -89.0, 100.0, 3e38, -3e38, 1e-30, 3.0, -3.0, torch.inf, torch.nan])
OVERFLOWING = torch.tensor([89.0, 100.0, 3e38, 3.0, -3.0, torch.inf, torch.nan])
SMALL = torch.tensor([1e-8, 3e-8, 1e-7, 1e-5, 0.1, 2.0])
PROGRAMS: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "rounding by a large number": (rounded_by_a_large_number, torch.linspace(-3, 3, 41)),
    "log1p by hand": (log1p, SMALL),
    "a quotient by a number": (lambda x: x / 127.5, torch.arange(1.0, 257)),
    "quantization": (lambda x: torch.round(x / 127.5 * 127), torch.arange(1.0, 257)),
    "a product of exponentials overflows": (lambda x: x.exp() * (50 - x).exp(), OVERFLOWING),
    "a power of a power": (lambda x: (x**2.0) ** 0.5, LARGE),
    "a quotient by a power": (lambda x: x / (2.0 * x) ** 3.0, LARGE),
    "the logarithm of a quotient": (lambda x: torch.log(x / (-x)), LARGE),
    "the logarithm of an exponential": (lambda x: x.exp().log(), OVERFLOWING),
    "products by two numbers": (lambda x: x * 1e30 * 1e-30, LARGE),
    "no number is above zero": (lambda x: (x.abs() >= 0).float(), LARGE),
    "acosh near 1": (lambda x: (x + 1).acosh(), torch.tensor([1e-8, 3e-8])),
    "logit near 0": (lambda x: (x + 1 - 1).logit(), torch.tensor([1e-8, 3e-8])),
    "a sum with zero": (lambda x: x + 0.0, torch.tensor([-0.0, 0.0])),
    "the inverse of a sum with zero": (lambda x: 1 / (x + 0.0), torch.tensor([-0.0, 0.0])),
    "an angle of a sum with zero": (lambda x: torch.atan2(x + 0.0, -torch.ones_like(x)), torch.tensor([-0.0, 0.0])),
    "a sum with zeros": (lambda x: torch.zeros_like(x) + x, torch.tensor([-0.0, 0.0])),
}


@run
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.cpu_arithmetic
def test_no_step_is_left_out(name: str, run: Run) -> None:
    program, x = PROGRAMS[name]
    exact = name in ("rounding by a large number", "a quotient by a number", "quantization")
    same(run(program, x), program(x), rtol=0 if exact else 2e-5)


@run
def test_the_least_number_that_one_sees(run: Run) -> None:
    def halved(x: Tensor) -> Tensor:
        count = torch.zeros_like(x)
        for _ in range(40):
            count = count + (1 + x != 1)
            x = x / 2
        return count

    same(run(halved, torch.ones(1)), halved(torch.ones(1)))


ZEROS = torch.tensor([0.0, -0.0, 1.0, -1.0, torch.nan]).repeat(64)
OF_ZEROS: dict[str, Callable[[Tensor], Tensor]] = {
    "clamp(min=0.)": lambda x: x.clamp(min=0.0),
    "clamp(min=-0.)": lambda x: x.clamp(min=-0.0),
    "clamp(max=0.)": lambda x: x.clamp(max=0.0),
    "clamp(max=-0.)": lambda x: x.clamp(max=-0.0),
    "clamp of a tensor": lambda x: x.clamp(torch.zeros_like(x), torch.ones_like(x)),
    "relu": torch.relu,
    "relu6": functional.relu6,
    "hardtanh": lambda x: functional.hardtanh(x, 0.0, 1.0),
    "maximum": lambda x: torch.maximum(x, -x),
    "minimum": lambda x: torch.minimum(x, -x),
    "fmax": lambda x: torch.fmax(x, -x),
    "fmin": lambda x: torch.fmin(x, -x),
    "softshrink": functional.softshrink,
    "sqrt": torch.sqrt,
    "x ** 0.5": lambda x: x**0.5,
}


@run
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", OF_ZEROS)
@pytest.mark.cpu_arithmetic
@pytest.mark.sampled(2)
def test_signs_of_zeros(name: str, dtype: torch.dtype, run: Run) -> None:
    """In some ops PyTorch's kernel for single elements differs from that for vectors, and one machine's from
    another's, especially in the short dtypes. Where they agree, their sign must be kept.
    """
    f, x = OF_ZEROS[name], ZEROS.to(dtype)
    actual = run(f, x)
    torch.testing.assert_close(actual, f(x), rtol=0, atol=0, equal_nan=True)
    signs = {tuple(f(t).signbit()[:5].tolist()) for t in (x, x[:5], ZEROS, ZEROS[:5])}
    for i, reported in enumerate(zip(*signs, strict=True)):
        numbers = actual[i::5]
        if not numbers.isnan().all():  # a NaN's sign says nothing
            assert set(numbers.signbit().tolist()) <= set(reported), (i, actual, signs)


def test_an_exponent_that_varies() -> None:
    x = torch.tensor([-0.0, 0.0, 4.0, -torch.inf, torch.inf, torch.nan])
    for exponent in (0.3, 0.5, -0.5, 0.7, 2.0, -1.0):
        same((x.to(DEVICE) ** exponent).cpu(), x**exponent)


PRODUCTS = """
import torch, torch_pjrt
x = torch.rand(1000, generator=torch.Generator().manual_seed(0))
y = x.flip(0)
for f in (lambda a, b: a * b - b * a.square(), lambda a, b: a * 3e38 * 3 - b * 3e38 * 3):
    torch.testing.assert_close(f(x.to("pjrt"), y.to("pjrt")).cpu(), f(x, y), rtol=0, atol=0, equal_nan=True)
"""


@pytest.mark.cpu_arithmetic
@pytest.mark.older_xla
def test_the_option_against_fused_multiply_adds(server: Server) -> None:
    """docs/numerics.md documents the option."""
    server.run(Job(PRODUCTS, (), EXACT))
    with pytest.raises(AssertionError):  # or it has nothing to be against
        server.run(Job(PRODUCTS))


LEFT_OUT = """
import torch, torch_pjrt
(torch.ones(3).to("pjrt") / 3).cpu()
"""


@pytest.mark.cpu_arithmetic
def test_passes_that_the_user_leaves_out_stay_out(server: Server, tmp_path: Path) -> None:
    flags = f"--xla_disable_hlo_passes=cse,dce --xla_dump_to={tmp_path}"
    server.run(Job(LEFT_OUT, (), {"XLA_FLAGS": flags}))
    options = "".join(path.read_text() for path in tmp_path.glob("*debug_options"))
    assert "algsimp" in options
    assert "cse" in options


TURNED = """
import torch, torch_pjrt
x, w, b = (torch.ones(*shape).to("pjrt") for shape in ((4, 256), (512, 256), (512,)))
torch.nn.functional.linear(x, w, b).cpu()
"""


def test_passes_do_not_pile_up_transposes(server: Server, tmp_path: Path) -> None:
    server.run(
        Job(TURNED, (), {"XLA_FLAGS": f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text", "TORCH_PJRT_CACHE": "0"})
    )
    optimized = "".join(path.read_text() for path in tmp_path.glob("*cpu_after_optimizations.txt"))
    assert "dot(" in optimized
    assert optimized.count(" transpose(") <= 2


def test_other_platforms_get_the_plain_op() -> None:
    x = torch.ones(3, device=DEVICE)
    assert "stablehlo.maximum" in torch_pjrt.to_stablehlo(torch.relu, x)
