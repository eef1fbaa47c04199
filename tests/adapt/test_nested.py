"""Jagged nested tensors on the device."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torch_pjrt

DEVICE = "pjrt"
HEADS, SIZE = 4, 8
LENGTHS = (3, 5, 2)


def jagged(rows: list[Tensor]) -> Tensor:
    return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, SIZE)).transpose(-3, -2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("others", [LENGTHS, (4, 1, 6)])
def test_attention(causal: bool, others: tuple[int, ...]) -> None:
    """Results and gradients equal those of each sequence by itself."""
    torch.manual_seed(0)
    project = nn.Linear(HEADS * SIZE, HEADS * SIZE)
    queries, keys = ([torch.randn(n, HEADS * SIZE) for n in lengths] for lengths in (LENGTHS, others))
    attended = [
        F.scaled_dot_product_attention(heads(project(q)), heads(project(k)), heads(k), is_causal=causal)
        for q, k in zip(queries, keys, strict=True)
    ]
    sum(a.square().sum() for a in attended).backward()
    expected, gradient = torch.cat([a.transpose(0, 1).flatten(1) for a in attended]), project.weight.grad
    project.zero_grad()

    project.to(DEVICE)
    query, key = jagged([q.to(DEVICE) for q in queries]), jagged([k.to(DEVICE) for k in keys])
    torch_pjrt.reset_metrics()
    result = F.scaled_dot_product_attention(heads(project(query)), heads(project(key)), heads(key), is_causal=causal)
    result = result.transpose(1, 2).flatten(-2)
    result.values().square().sum().backward()
    torch.testing.assert_close(result.values().cpu(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(project.weight.grad.cpu(), gradient, rtol=1e-4, atol=1e-4)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("length", [7, 9])
def test_padded_and_jagged(dtype: torch.dtype, length: int) -> None:
    values, offsets = torch.arange(24).view(12, 2).to(dtype), torch.tensor([0, 3, 3, 10, 12])
    padded = torch.ops.aten._jagged_to_padded_dense_forward
    unpadded = torch.ops.aten._padded_dense_to_jagged_forward
    there = values.to(DEVICE), [offsets.to(DEVICE)]
    torch_pjrt.reset_metrics()
    result = padded(*there, [length], -1.0)
    torch.testing.assert_close(result.cpu(), padded(values.float(), [offsets], [length], -1.0).to(dtype))
    assert torch.equal(unpadded(result, there[1], 12).cpu(), values)
    torch.testing.assert_close(padded(*there, [4], -1.0).cpu(), padded(values.float(), [offsets], [4], -1.0).to(dtype))
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
    with pytest.raises(RuntimeError, match="final offset should match total_L value"):
        unpadded(result, there[1], 11).cpu()
    with pytest.raises(RuntimeError, match="found batch item longer than max length 4"):
        unpadded(result[:, :4], there[1], 12).cpu()


def test_an_encoder_that_insists_on_nested_tensors() -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2, mask_check=False).eval().to("pjrt")
    padding = torch.tensor([[False, True], [False, False]], device="pjrt")
    with torch.no_grad(), pytest.raises(NotImplementedError, match="enable_nested_tensor=False"):
        encoder(torch.randn(2, 2, 16, device="pjrt"), src_key_padding_mask=padding)
