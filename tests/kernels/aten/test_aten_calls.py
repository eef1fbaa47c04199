"""PyTorch's own CPU kernels, called from programs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch

import torch_pjrt
from tests.ops.opinfo import assert_same
from torch_pjrt import _C

pytestmark = pytest.mark.host_memory
Function = Callable[[torch.Tensor], object]

FUNCTIONS: dict[str, Function] = {
    "qr": torch.linalg.qr,
    "svd": lambda x: torch.linalg.svd(x, full_matrices=False),
    "eigh": lambda x: torch.linalg.eigh(x @ x.mH),
    "eig": lambda x: torch.linalg.eigvals(x).abs().sort(-1).values,
    "solve": lambda x: torch.linalg.solve(x, x.mT),
    "lu": torch.linalg.lu,
    "inv": torch.linalg.inv,
    "det": torch.linalg.det,
    "pinv": torch.linalg.pinv,
    "lstsq": lambda x: torch.linalg.lstsq(x, x.mT).solution,
    "matrix_exp": torch.matrix_exp,
    "geqrf": torch.geqrf,
}


def given(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(*shape, dtype=dtype, generator=generator) + 2 * torch.eye(shape[-1], dtype=dtype)


@pytest.mark.each_way
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.sampled(2)
def test_values(name: str, dtype: torch.dtype) -> None:
    f = FUNCTIONS[name]
    for x in (given(dtype, 4, 4), given(dtype, 2, 3, 5, 5), given(dtype, 2, 4, 4).mT, given(dtype, 0, 3, 3)):
        if name == "lstsq" and not x.numel():
            continue
        assert_same(f(x.to("pjrt")), f(x), strides=True)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.each_way
@pytest.mark.parametrize("name", ["qr", "solve", "inv", "det", "pinv", "matrix_exp", "lstsq"])
def test_gradients(name: str) -> None:
    def gradient(x: torch.Tensor) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        result = FUNCTIONS[name](leaf)
        first = result[0] if isinstance(result, tuple) else result
        assert isinstance(first, torch.Tensor)
        (first * torch.arange(1, first.numel() + 1, device=x.device).reshape(first.shape)).sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    x = given(torch.float64, 3, 4, 4)
    assert_same(gradient(x.to("pjrt")), gradient(x))
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.each_way
def test_errors_are_the_cpus() -> None:
    nan = torch.full((3, 3), torch.nan)
    for f in (torch.linalg.svdvals, torch.linalg.eigvalsh):
        with pytest.raises(torch.linalg.LinAlgError) as expected:
            f(nan)
        result = f(nan.to("pjrt"))
        with pytest.raises(torch.linalg.LinAlgError) as caught:
            result.cpu()
        assert str(caught.value) == str(expected.value)
    singular = torch.zeros(2, 2)
    with pytest.raises(torch.linalg.LinAlgError, match=r"the input matrix is singular"):
        torch.linalg.inv(singular.to("pjrt"))
    assert torch.linalg.inv_ex(singular.to("pjrt")).info.item() == 1
    with pytest.raises(NotImplementedError, match="not implemented for 'Half'"):
        torch.linalg.qr(torch.eye(2).half().to("pjrt"))  # raises at the call
    x = torch.ones(3).to("pjrt")
    assert (x + 1).tolist() == [2, 2, 2]  # the device still works


@pytest.mark.compiled
def test_it_is_part_of_the_program() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svdvals(x @ x.mT).log().sum() + torch.linalg.qr(x).R.abs().sum()

    x = given(torch.float64, 5, 5)
    torch_pjrt.reset_metrics()
    assert_same(f(x.to("pjrt")), f(x))
    metrics = torch_pjrt.metrics()
    assert (metrics["graphs_compiled"] + metrics["graphs_loaded_from_disk"], metrics["executions"]) == (1, 1)
    fast = torch.compile(f, backend="pjrt", fullgraph=True)
    assert_same(fast(x), f(x))


@pytest.mark.compiled
def test_a_number_is_an_input() -> None:
    """Another value of a Scalar uses the same program and the same call."""
    x = torch.linspace(0.1, 2, 8).reshape(2, 4).to("pjrt")
    for value in (0.5, 1.5, 2.5, 3.5):
        torch.special.chebyshev_polynomial_t(x, value)
        result = torch.ops.aten._segment_reduce_backward(
            x[:1], x[:1], x, "sum", lengths=torch.tensor([2]).to("pjrt"), initial=value
        )
        assert_same(result, x[:1].cpu().expand(2, 4).contiguous())


SLOW_BY_XLA: dict[str, Function] = {
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(0),
    "cummax": lambda x: torch.cummax(x, 1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "topk": lambda x: x.topk(3, 1),
    "kthvalue": lambda x: x.kthvalue(3, 1),
    "median": lambda x: (x.median(), x.median(1), x.nanmedian(1)),
    "mode": lambda x: x.round().mode(1),
    "scatter_add": lambda x: x.scatter_add(1, x.argsort(1), x),
    "index_add": lambda x: x.index_add(0, backwards(x), x),
    "index_copy": lambda x: x.index_copy(1, backwards(x), x),
    "index_select": lambda x: x.index_select(1, backwards(x)),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x),
    "sort": lambda x: (x.sort(1), x.sort(dim=0, descending=True, stable=True), x.argsort(1)),
    "digamma": lambda x: x.digamma(),
    "lgamma": lambda x: x.lgamma(),
    "bessel": lambda x: [getattr(torch.special, f"bessel_{kind}")(x) for kind in ("j0", "j1", "y0", "y1")],
    "exp2": lambda x: x.exp2(),
    "zeta": lambda x: torch.special.zeta(x.abs() + 1.5, x.abs() + 0.5),
    "solve_triangular": lambda x: torch.linalg.solve_triangular(x.nan_to_num(0, 1, -1) / 99 + 1, x, upper=True),
    "polygamma": lambda x: (x.polygamma(1), x.polygamma(3)),
    "erfinv": lambda x: x.tanh().erfinv(),
    "ndtri": lambda x: torch.special.ndtri(x.sigmoid()),
    "igamma": lambda x: (torch.igamma(x.abs(), x.abs().sqrt()), torch.igammac(x.abs(), x.abs().sqrt())),
    "chebyshev_polynomial_u": lambda x: torch.special.chebyshev_polynomial_u(x, 5),
    "segment_reduce": lambda x: torch.segment_reduce(x, "sum", lengths=torch.tensor([1, len(x) - 1], device=x.device)),
}


def backwards(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(len(x), device=x.device).flip(0)


INTEGERS_SLOW_BY_XLA: dict[str, Function] = {
    "mm": lambda x: x @ x.t(),
    "bmm": lambda x: x.expand(2, -1, -1) @ x,
    "addmm": lambda x: torch.addmm(x, x, x, alpha=2, beta=3),
    "mv": lambda x: x @ x[0],
    "pow": lambda x: x.abs().pow(x.abs() % 5),
    "gcd": lambda x: (torch.gcd(x, x.t()), torch.lcm(x, x.t())),
    "sort": lambda x: x.sort(dim=1, stable=True),
    "conv2d": lambda x: torch.nn.functional.conv2d(x[None, None], x[None, None, :3, :3]),
}


@pytest.mark.each_way
@pytest.mark.parametrize("name", SLOW_BY_XLA)
def test_what_xla_is_slow_at(name: str) -> None:
    f = SLOW_BY_XLA[name]
    for x in (given(torch.float32, 4, 4), given(torch.float32, 80, 80), given(torch.float32, 80, 80).t()):
        assert_same(f(x.to("pjrt")), f(x), strides=True)
    x = given(torch.float32, 80, 80)
    x[3, 5], x[4, 4], x[7] = torch.nan, torch.inf, 0
    assert_same(f(x.to("pjrt")), f(x))


BFLOAT16_SLOW_BY_XLA: dict[str, Function] = {
    "cat": lambda x: (torch.cat([x, x[:3], x[:0]]), torch.cat([x[:, :5], x.t()], 1)),
    "stack": lambda x: (torch.stack([x, x], -1), torch.stack([x, x.t()])),
    "put": lambda x: (x.put(backwards(x), x[0]), x.put(backwards(x) // 2, x[0], accumulate=True)),
    "index_put": lambda x: (
        x.index_put((backwards(x),), x),
        x.index_put((backwards(x) // 2,), x, accumulate=True),
    ),
    "upsample_backward": lambda x: torch.ops.aten.upsample_bilinear2d_backward(
        x.nan_to_num(0, 1, -1)[None, None], [len(x), len(x)], [1, 1, len(x) // 2, len(x) // 2], False
    ),
}


@pytest.mark.each_way
@pytest.mark.parametrize("name", BFLOAT16_SLOW_BY_XLA)
def test_what_xla_is_slow_at_of_bfloat16(name: str) -> None:
    f = BFLOAT16_SLOW_BY_XLA[name]
    for dtype in (torch.bfloat16, torch.float32):
        for size in (8, 200):
            x = given(dtype, size, size)
            x[3, 5], x[4, 4], x[7] = torch.nan, torch.inf, -0.0
            assert_same(f(x.to("pjrt")), f(x))


def is_by_aten(f: Function, x: torch.Tensor) -> bool:
    programs: list[str] = []
    _C.set_program_listener(lambda graph, text: programs.append(text))
    try:
        torch.pjrt.synchronize()
        torch_pjrt.sync(torch.utils._pytree.tree_leaves(f(x.to("pjrt"))))
    finally:
        _C.set_program_listener(None)
    return any("torch_pjrt.aten" in text for text in programs)


@pytest.mark.compiled
@pytest.mark.parametrize("name", BFLOAT16_SLOW_BY_XLA)
def test_only_of_bfloat16(name: str) -> None:
    f = BFLOAT16_SLOW_BY_XLA[name]
    assert is_by_aten(f, given(torch.bfloat16, 256, 256))
    assert not is_by_aten(f, given(torch.bfloat16, 16, 16))
    assert not is_by_aten(f, given(torch.float32, 256, 256))


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["bessel", "lgamma", "cumsum"])
def test_only_of_many_elements(name: str) -> None:
    assert is_by_aten(SLOW_BY_XLA[name], given(torch.float32, 90, 90))
    assert not is_by_aten(SLOW_BY_XLA[name], given(torch.float32, 20, 20))


@pytest.mark.each_way
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("name", INTEGERS_SLOW_BY_XLA)
def test_what_xla_is_slow_at_of_integers(name: str, dtype: torch.dtype) -> None:
    for size in (4, 80):
        x = torch.randint(-9, 9, (size, size), generator=torch.Generator().manual_seed(0)).to(dtype)
        assert_same(INTEGERS_SLOW_BY_XLA[name](x.to("pjrt")), INTEGERS_SLOW_BY_XLA[name](x), strides=True)


@pytest.mark.each_way
def test_gradients_of_what_xla_is_slow_at() -> None:
    """Gradients of pools and of sampled volumes are kernels, too."""

    def gradient(x: torch.Tensor, name: str) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        if name == "group_norm":
            result = functional.group_norm(leaf.flatten(2), 3, leaf[0, :, 0, 0, 0].detach(), None)
        elif name == "grid":
            grid = torch.nn.functional.affine_grid(torch.eye(3, 4, device=x.device)[None] * 0.9, (1, 1, 20, 20, 20))
            result = torch.nn.functional.grid_sample(leaf[:1, :1], grid, align_corners=False)
        else:
            result = POOLS[name](leaf)
        (result * torch.arange(1, result.numel() + 1, device=x.device).reshape(result.shape).div(1e3)).sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    functional = torch.nn.functional
    POOLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "max": lambda x: functional.max_pool3d(x, 3, 2, 1),
        "planes": lambda x: functional.max_pool2d(x[0], 3, 2, 1),
        "average": lambda x: functional.adaptive_avg_pool3d(x, 3),
        "adaptive": lambda x: functional.adaptive_max_pool2d(x[0], (5, 7)),
    }
    torch.manual_seed(0)
    x = torch.randn(2, 3, 12, 13, 14)
    for given_x in (x, x.to(memory_format=torch.channels_last_3d), x.bfloat16()):
        for name in (*POOLS, "group_norm", "grid") if given_x.dtype == torch.float32 else POOLS:
            assert_same(gradient(given_x.to("pjrt"), name), gradient(given_x, name))


@pytest.mark.each_way
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients_of_group_norms_whose_weights_have_another_dtype(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 8, 20, 30).to(dtype), torch.randn(8)
    grads = []
    for device in ("cpu", "pjrt"):
        given_x, scale = (t.clone().to(device).requires_grad_() for t in (x, weight))
        result = torch.nn.functional.group_norm(given_x, 4, scale, torch.zeros(8, device=device))
        (result.float() * torch.arange(30, device=device)).mean().backward()
        grads.append((given_x.grad, scale.grad))
    for there, here in zip(grads[1], grads[0], strict=True):
        assert there.dtype == here.dtype
        torch.testing.assert_close(there.cpu(), here, rtol=2e-2, atol=2e-2)


@pytest.mark.compiled
def test_a_mistake_that_data_makes() -> None:
    """The error is raised when results are read, with the kernel's message."""
    x, index = torch.zeros(80, 80), torch.full((80,), 80)
    with pytest.raises(Exception, match="out of") as expected:
        x.index_add(0, index, x)
    result = x.to("pjrt").index_add(0, index.to("pjrt"), x.to("pjrt"))
    with pytest.raises(type(expected.value)) as caught:
        result.cpu()
    assert str(caught.value) == str(expected.value)


def test_two_threads_at_once() -> None:
    matrices = [given(torch.float32, 24, 24) + i for i in range(8)]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(20):
            values = torch.linalg.svdvals(matrices[i].to("pjrt")).cpu()
            if not torch.allclose(values, torch.linalg.svdvals(matrices[i]), rtol=1e-4, atol=1e-4):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.compiled
def test_shown_for_another_platform() -> None:
    with pytest.raises(NotImplementedError, match=r"\[aten::linalg_eig\] is a kernel of the CPU's here"):
        torch_pjrt.to_stablehlo(lambda x: torch.linalg.eig(x).eigenvalues, torch.eye(3))


def test_without_kernels_it_is_a_rule_or_the_host() -> None:
    program = """
import torch, torch_pjrt
torch.linalg.qr(torch.eye(3, device="pjrt"))
torch.linalg.eigvals(torch.eye(3, device="pjrt"))
print(torch_pjrt.metrics()["host_fallbacks"])
"""
    reported = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "TORCH_PJRT_LIBRARY_KERNELS": "0"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert reported.stdout.strip() == "{'aten::_linalg_eigvals': 1}"


@pytest.mark.compiled
def test_the_users_thread_keeps_its_threads() -> None:
    """XLA calls the kernel of a small program in the thread that runs the program, which then has one thread."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        x = given(torch.float32, 4, 4)
        assert_same(torch.linalg.inv(x.to("pjrt")), torch.linalg.inv(x))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
