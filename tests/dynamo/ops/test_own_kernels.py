"""A compiled function has the formulas of the device's rules where PyTorch's own decompositions have others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_compiler
from torch._functorch.aot_autograd import aot_module_simplified

import torch_pjrt
from torch_pjrt.dynamo.own_kernels import own_kernels

ENTRIES = torch.ops.aten.multilabel_margin_loss_forward.default.py_kernels


def gradients(function: Callable[..., torch.Tensor], *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    leaves = [value.detach().clone().requires_grad_() for value in values]
    result = function(*leaves)
    weights = torch.linspace(0.5, 1.5, result.numel(), device=result.device).reshape(result.shape)
    return result.detach(), *torch.autograd.grad((result * weights).sum(), leaves)


def test_multilabel_margin_loss_whose_rows_end_early() -> None:
    before = dict(ENTRIES)
    x = torch.tensor([[0.1, 0.2, 0.4, 0.8], [0.5, -0.5, 0.25, 0.0]])
    target = torch.tensor([[3, 0, -1, 1], [-1, 2, 1, 0]])

    def loss(x: torch.Tensor) -> torch.Tensor:
        return F.multilabel_margin_loss(x, target, reduction="none")

    torch.testing.assert_close(gradients(torch.compile(loss, backend="pjrt"), x), gradients(loss, x))
    assert before == ENTRIES  # PyTorch's are back, for other backends


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 3, 3)])
@pytest.mark.filterwarnings("ignore:.*linalg_pinv.* is not compiled")
def test_pinv_of_a_complex_matrix(shape: tuple[int, ...]) -> None:
    """The first call is right as well, which AOTAutograd watches by a mode."""
    x = torch.randn(shape, dtype=torch.complex64)
    result = torch.compile(torch.linalg.pinv, backend="pjrt")(x.clone().requires_grad_())
    torch.testing.assert_close(result.detach(), torch.linalg.pinv(x), rtol=1e-3, atol=1e-4)


MODES = {"nearest": 2, "nearest-exact": 3, "linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.sampled(3)
def test_resampling(mode: str, dynamic: bool) -> None:
    """Sizes and factors are one program each, with the rule's op in the graph."""
    x = torch.randn(2, 3, *(5, 6, 7)[: MODES[mode]])
    ways = [{"size": 4}, {"scale_factor": 1.7}, {"scale_factor": 0.6, "recompute_scale_factor": True}]
    for options in ways[:: 2 if dynamic else 1]:

        def resample(x: torch.Tensor, options: Any = options) -> torch.Tensor:
            return F.interpolate(x, mode=mode, **options)

        torch._dynamo.reset()
        torch_pjrt.reset_metrics()
        fast = torch.compile(resample, backend="pjrt", dynamic=dynamic)
        torch.testing.assert_close(gradients(fast, x), gradients(resample, x), rtol=1e-4, atol=1e-5)
        assert not torch_pjrt.metrics()["host_fallbacks"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("antialias", [False, True])
def test_resampling_is_an_op_of_its_own(mode: str, antialias: bool) -> None:
    """PyTorch's decompositions compute positions in the program, and gather element by element."""
    if antialias and mode not in ("bilinear", "bicubic"):
        return
    graphs: list[str] = []

    def compiler(module: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(module.print_readable(print_output=False))
        return module

    def backend(module: torch.fx.GraphModule, inputs: Any) -> Any:
        with own_kernels():
            return aot_module_simplified(module, inputs, fw_compiler=make_boxed_compiler(compiler))

    x = torch.randn(2, 3, *(5, 6, 7)[: MODES[mode]], requires_grad=True)
    torch._dynamo.reset()
    torch.compile(lambda x: F.interpolate(x, scale_factor=2, mode=mode, antialias=antialias), backend=backend)(x)
    assert [text.count("upsample") for text in graphs].count(0) == 0
    assert not any("aten._unsafe_index" in text or "aten.index" in text for text in graphs)


def test_gradient_of_a_long_line_that_was_resampled() -> None:
    x = torch.randn(2, 3, 1200)

    def resample(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=1.7, mode="linear")

    torch.testing.assert_close(gradients(torch.compile(resample, backend="pjrt"), x), gradients(resample, x))


@pytest.mark.parametrize("rows", [1, 3])
def test_attention_with_rows_that_are_masked_by_a_large_number(rows: int) -> None:
    """Such a row attends to all keys equally. Eager's kernel for the CPU multiplies its gradient by the number of keys;
    its math doesn't."""
    query, key, value = (torch.randn(1, 2, n, 8) for n in (4, 5, 5))
    mask = torch.zeros(4, 5)
    mask[:rows] = torch.finfo(torch.float32).min

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask.to(query.device))

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = gradients(attention, query, key, value)
    compiled = gradients(torch.compile(attention, backend="pjrt"), query, key, value)
    on_device = gradients(attention, *(x.to("pjrt") for x in (query, key, value)))
    torch.testing.assert_close(compiled, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(tuple(x.cpu() for x in on_device), expected, rtol=1e-4, atol=1e-5)
