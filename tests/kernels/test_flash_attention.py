"""Attention of CPU tensors by PyTorch's flash kernel in compiled functions: when it is used, and its values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

pytestmark = [pytest.mark.compiled, pytest.mark.host_memory]

FORWARD, BACKWARD = (f"aten::_scaled_dot_product_flash_attention_for_cpu{end}(" for end in ("", "_backward"))
LONG, SHORT = (1, 9, 512, 64), (2, 6, 197, 64)  # the backward of the first is the kernel's, too


def results(tensors: list[torch.Tensor], gradient: torch.Tensor, function: Any, **options: Any) -> list[torch.Tensor]:
    leaves = [x.detach().requires_grad_() for x in tensors]
    y = function(*leaves, **options)
    return [y.detach(), *torch.autograd.grad(y, leaves, gradient)]


def near(mine: list[torch.Tensor], exact: list[torch.Tensor], dtype: torch.dtype) -> None:
    relative = 2e-2 if dtype == torch.bfloat16 else 1e-4
    for a, b in zip(mine, exact, strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a.double(), b, rtol=relative, atol=relative * float(b.abs().max()))


def compiled() -> Any:
    torch._dynamo.reset()
    return torch.compile(F.scaled_dot_product_attention, backend="pjrt", dynamic=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [LONG, SHORT], ids=str)
@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "mask of bools"])
@pytest.mark.sampled(2)
def test_values(kind: str, size: tuple[int, ...], dtype: torch.dtype, programs: list[str]) -> None:
    batch, heads, tokens, width = size
    heads += "bools" in kind  # otherwise its gradients would reuse the float mask's program
    tensors = list(torch.randn(3, batch, tokens, heads, width).to(dtype).transpose(2, 3))  # like modules' heads
    gradient = torch.randn(batch, heads, tokens, width).to(dtype)
    options: dict[str, Any] = {"is_causal": kind == "causal"}
    wide = dict(options)
    if "mask" in kind:
        mask = torch.randn(tokens, tokens)
        mask.fill_diagonal_(1)
        options["attn_mask"] = mask > 0 if "bools" in kind else mask.to(dtype)
        wide["attn_mask"] = mask > 0 if "bools" in kind else mask.to(dtype).double()
    exact = results([x.double() for x in tensors], gradient.double(), F.scaled_dot_product_attention, **wide)
    near(results(tensors, gradient, compiled(), **options), exact, dtype)
    text = "".join(programs)
    assert FORWARD in text
    assert (BACKWARD in text) == (size == LONG)


def test_a_row_without_keys() -> None:
    q, k, v = torch.randn(3, *LONG)
    mask = torch.ones(512, 512, dtype=torch.bool).tril()
    mask[7] = False
    expected = F.scaled_dot_product_attention(q, k, v, mask)
    torch.testing.assert_close(compiled()(q, k, v, mask), expected, rtol=1e-4, atol=1e-4)


def test_not_a_number() -> None:
    q, k, v = torch.randn(3, *LONG)
    q[0, 1, 3, 5] = torch.nan
    expected = F.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(compiled()(q, k, v), expected, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("size", [(2, 4, 16, 32), (0, 4, 512, 64), (1, 8, 1, 64)], ids=str)
def test_small_ones_are_xlas(size: tuple[int, ...], programs: list[str]) -> None:
    q, k, v = torch.randn(3, *size)
    with torch.no_grad():
        torch.testing.assert_close(compiled()(q, k, v), F.scaled_dot_product_attention(q, k, v))
    assert FORWARD not in "".join(programs)
