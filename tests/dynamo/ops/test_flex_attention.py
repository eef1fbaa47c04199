"""flex_attention: its scores, masks and gradients are part of the program."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import torch_pjrt

SIZE = 32


def causal(batch: object, head: object, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return query >= key


def mask(device: str) -> BlockMask:
    return create_block_mask(causal, None, None, SIZE, SIZE, device=device)


def tensors(device: str, heads: int = 2, grad: bool = True) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = ((2, 4, SIZE, 8), (2, heads, SIZE, 8), (2, heads, SIZE, 8), (4, SIZE))
    return [torch.randn(shape).to(device).requires_grad_(grad) for shape in shapes]


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    def score(score: torch.Tensor, batch: object, head: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return score + bias[head, k] + 0.1 * (k - q)

    blocks = mask(query.device.type)
    return flex_attention(query, key, value, score_mod=score, block_mask=blocks, enable_gqa=key.shape[1] != 4)


def expected(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    places = torch.arange(SIZE)
    scores = bias[:, None, :] + 0.1 * (places[None, :] - places[:, None])
    scores = scores.masked_fill(places[None, :] > places[:, None], -float("inf"))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=scores, enable_gqa=True)


@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("device", ["cpu", "pjrt"])
def test_compiled(device: str, heads: int) -> None:
    given = tensors(device, heads, grad=False)
    torch._dynamo.reset()
    torch_pjrt.reset_metrics()
    found = torch.compile(attention, backend="pjrt", fullgraph=True)(*given)
    torch.testing.assert_close(found.cpu(), expected(*tensors("cpu", heads, grad=False)))
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


def compiled(*given: torch.Tensor) -> torch.Tensor:
    return torch.compile(attention, backend="pjrt")(*given)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("call", [compiled, attention])
def test_gradients(call: Callable[..., torch.Tensor]) -> None:
    """Tensors that score_mod captures have gradients, too."""
    torch._dynamo.reset()
    given, reference = tensors("pjrt"), tensors("cpu")
    torch_pjrt.reset_metrics()
    call(*given).square().sum().backward()
    expected(*reference).square().sum().backward()
    for found, wanted in zip(given, reference, strict=True):
        assert found.grad is not None
        assert wanted.grad is not None
        torch.testing.assert_close(found.grad.cpu(), wanted.grad, rtol=1e-4, atol=1e-4)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("call", [compiled, attention])
def test_under_autocast(call: Callable[..., torch.Tensor]) -> None:
    torch._dynamo.reset()
    given, reference = tensors("pjrt"), tensors("cpu")
    with torch.autocast("pjrt", torch.bfloat16):
        found = call(*given)
    assert found.dtype == torch.bfloat16
    wanted = expected(*reference)
    torch.testing.assert_close(found.float().cpu(), wanted, rtol=5e-2, atol=5e-2)
    for x, y in zip(
        torch.autograd.grad(found.float().square().sum(), given),
        torch.autograd.grad(wanted.square().sum(), reference),
        strict=True,
    ):
        assert x.dtype == torch.float32
        torch.testing.assert_close(x.cpu(), y, rtol=0.1, atol=0.1)


def test_other_devices_are_judged_as_before() -> None:
    query, key, value, _ = tensors("cpu")
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        flex_attention(query, key, value)
    with pytest.raises(ValueError, match="only supported on CUDA, CPU"):
        flex_attention(*(x.detach().to("meta") for x in (query, key, value)))
