"""Attention as users call it: the fused operator is chosen where it fits, and gives the CPU's results."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torch_pjrt

pytestmark = pytest.mark.each_way

FUSED = "ScaledDotProductFusedAttentionOverrideableBackward0"


def attend(device: str, tensors: tuple[torch.Tensor, ...], **options: Any) -> tuple[list[torch.Tensor], str]:
    """Returns output and gradients, and the name of autograd's node for the attention."""
    inputs = [t.detach().to(device).requires_grad_() for t in tensors]
    mask = options.pop("attn_mask", None)
    if mask is not None:
        mask = mask.detach().to(device).requires_grad_(mask.is_floating_point())
        inputs += [mask] if mask.requires_grad else []
    with torch_pjrt.strict_mode():
        output = F.scaled_dot_product_attention(*inputs[:3], attn_mask=mask, **options)
        (output * torch.linspace(0.5, 1.5, output.numel()).reshape(output.shape).to(device)).sum().backward()
    made = output.grad_fn
    if type(made).__name__.startswith("Squeeze"):  # three dimensions are made four, since torch 2.14
        made = made.next_functions[0][0]
    return [output.detach().cpu(), *(t.grad.cpu() for t in inputs)], type(made).__name__


Q, K = (2, 4, 6, 8), (2, 4, 5, 8)
torch.manual_seed(0)
MASK = torch.rand(6, 5) > 0.3
MASK[2] = False  # a query that may look at nothing
NUMBERS = torch.where(MASK, torch.randn(6, 5), torch.finfo(torch.float32).min)  # and one that may look at all alike
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], bool]] = {
    "plain": (Q, K, {}, True),
    "causal": (Q, K, {"is_causal": True}, True),
    "scale": (Q, K, {"scale": 0.3}, True),
    "mask": (Q, K, {"attn_mask": MASK}, True),
    "bias": (Q, K, {"attn_mask": torch.randn(2, 1, 6, 5)}, True),
    "mask of numbers": (Q, K, {"attn_mask": NUMBERS}, True),
    "grouped": (Q, (2, 2, 5, 8), {"enable_gqa": True, "is_causal": True}, True),
    "three dimensions": ((4, 6, 8), (4, 5, 8), {}, True),
    "broadcast batch": (Q, (1, 4, 5, 8), {}, False),
    "two dimensions": ((6, 8), (5, 8), {}, False),
}


@pytest.mark.parametrize("name", CASES)
def test_as_on_the_cpu(name: str) -> None:
    q, k, options, fused = CASES[name]
    torch.manual_seed(1)
    tensors = (torch.randn(q), torch.randn(k), torch.randn(k))
    expected, _ = attend("cpu", tensors, **options)
    actual, how = attend("pjrt", tensors, **options)
    assert (how == FUSED) == fused
    for e, a in zip(expected, actual, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", [(3, 5), (2, 4, 6, 4), (3, 1, 6, 5), (6, 1, 1, 1, 1)])
def test_a_mask_of_other_sizes_is_an_error(sizes: tuple[int, ...]) -> None:
    errors = []
    for device in ("cpu", "pjrt"):
        q, k = torch.ones(Q, device=device), torch.ones(K, device=device)
        with pytest.raises(RuntimeError) as raised:
            F.scaled_dot_product_attention(q, k, k, attn_mask=torch.ones(sizes, device=device))
        errors.append(raised)
    assert errors[1].type is errors[0].type
    assert len(sizes) > 4 or str(errors[1].value) in str(errors[0].value)


def test_float64_keeps_its_digits() -> None:
    tensors = tuple(torch.randn(1, 2, 4, 8, dtype=torch.float64) for _ in range(3))
    (expected, _), (actual, _) = (attend(device, tensors) for device in ("cpu", "pjrt"))
    for e, a in zip(expected, actual, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-10, atol=1e-12)


def test_the_user_chooses_the_backend() -> None:
    q = torch.randn(1, 2, 4, 8).to("pjrt").requires_grad_()
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        assert type(F.scaled_dot_product_attention(q, q, q).grad_fn).__name__ != FUSED


@pytest.mark.parametrize("mask", [None, torch.full((16, 16), torch.finfo(torch.float32).min)])
def test_dropout_is_the_same_in_backward(mask: torch.Tensor | None) -> None:
    """With one-hot values the output shows which probabilities were dropped; the values' gradient has to match."""
    torch.manual_seed(0)
    q, k = (torch.randn(1, 1, 16, 4).to("pjrt") for _ in range(2))
    v = torch.eye(16)[None, None].to("pjrt").requires_grad_()
    mask = mask.to("pjrt") if mask is not None else None
    output = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=0.5)
    assert type(output.grad_fn).__name__ == FUSED
    kept = (output != 0).float().mean().item()
    assert 0.3 < kept < 0.7
    output.sum().backward()
    # The gradient of value row j is the sum over queries of its factors, in each column.
    torch.testing.assert_close(v.grad[0, 0, :, 0].cpu(), output[0, 0].sum(0).detach().cpu())


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_in_evaluation(norm_first: bool) -> None:
    """nn.TransformerEncoder's fast path has fused operators of its own. Results at padded positions are unspecified:
    the CPU writes zeros there when it uses nested tensors.
    """
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first).eval()
    device = copy.deepcopy(encoder).to("pjrt")
    x = torch.randn(2, 5, 16)
    padding = torch.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 1, 1]]).bool()
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    for masks in ({}, {"mask": causal}, {"src_key_padding_mask": padding}):
        moved = {name: mask.to("pjrt") for name, mask in masks.items()}
        with torch.no_grad(), torch_pjrt.strict_mode():
            expected, actual = encoder(x, **masks), device(x.to("pjrt"), **moved).cpu()
        seen = ~padding if "src_key_padding_mask" in masks else torch.ones_like(padding)
        torch.testing.assert_close(actual[seen], expected[seen], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weights", [{}, {"average_attn_weights": False}, {"need_weights": False}])
def test_multihead_attention_in_evaluation(weights: dict[str, bool]) -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad(), torch_pjrt.strict_mode():
        expected = attention(x, x, x, **weights)
        y = x.to("pjrt")
        actual = copy.deepcopy(attention).to("pjrt")(y, y, y, **weights)
    torch.testing.assert_close(actual[0].cpu(), expected[0], rtol=1e-4, atol=1e-5)
    if expected[1] is None:
        assert actual[1] is None
    else:
        torch.testing.assert_close(actual[1].cpu(), expected[1], rtol=1e-4, atol=1e-5)


aten = torch.ops.aten


def forward_of(kind: str, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, p: float, causal: bool) -> Any:
    if kind == "efficient":
        return aten._scaled_dot_product_efficient_attention(q, k, v, bias, True, p, causal)
    if kind == "flash":
        return aten._scaled_dot_product_flash_attention(q, k, v, p, causal)
    return aten._scaled_dot_product_cudnn_attention(q, k, v, bias, True, p, causal)


def backward_of(
    kind: str, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, saved: Any, p: float, causal: bool
) -> Any:
    if kind == "efficient":
        mask = [True, True, True, bias is not None]
        return aten._scaled_dot_product_efficient_attention_backward(grad, q, k, v, bias, *saved, p, mask, causal)
    out, logsumexp, *lengths, seed, offset, _ = saved
    if kind == "flash":
        return aten._scaled_dot_product_flash_attention_backward(
            grad, q, k, v, out, logsumexp, *lengths, p, causal, seed, offset
        )
    return aten._scaled_dot_product_cudnn_attention_backward(
        grad, q, k, v, out, logsumexp, seed, offset, bias, *lengths, p, causal
    )


@pytest.mark.parametrize("form", ["plain", "causal", "bias"])
@pytest.mark.parametrize("kind", ["efficient", "flash", "cudnn"])
def test_what_is_captured_from_cuda_tensors(kind: str, form: str) -> None:
    """Each of CUDA's kernels saves its rows in a different form."""
    if kind == "flash" and form == "bias":
        pytest.skip("it takes none")
    torch.manual_seed(0)
    q, k, v, grad = (torch.randn(2, 3, 5, 8) for _ in range(4))
    bias = torch.randn(2, 3, 5, 5) if form == "bias" else None
    inputs = [t.clone().requires_grad_() for t in (q, k, v, bias) if t is not None]
    causal = form == "causal"
    expected = F.scaled_dot_product_attention(*inputs[:3], attn_mask=inputs[3] if bias is not None else None,
                                              is_causal=causal)  # fmt: skip
    wanted = torch.autograd.grad(expected, inputs, grad)
    given = [None if t is None else t.to("pjrt") for t in (q, k, v, bias)]
    with torch_pjrt.strict_mode():
        saved = forward_of(kind, *given, 0.0, causal)
        found = backward_of(kind, grad.to("pjrt"), *given, saved, 0.0, causal)
        torch.testing.assert_close(saved[0].cpu(), expected.detach(), rtol=1e-4, atol=1e-5)
        for f, w in zip(found, wanted, strict=False):  # cuDNN's gives no gradient of the bias
            torch.testing.assert_close(f.cpu(), w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["efficient", "flash", "cudnn"])
def test_dropout_of_cuda_is_the_same_in_backward(kind: str) -> None:
    torch.manual_seed(0)
    q, k, grad = (torch.randn(2, 3, 8, 8).to("pjrt") for _ in range(3))
    v = torch.eye(8).expand(2, 3, 8, 8).contiguous().to("pjrt")  # the output then shows v's factors
    saved = forward_of(kind, q, k, v, None, 0.5, False)
    gradient = backward_of(kind, grad, q, k, v, None, saved, 0.5, False)[2]
    torch.testing.assert_close(gradient.cpu(), (saved[0].transpose(-1, -2) @ grad).cpu(), rtol=1e-4, atol=1e-5)
    assert 0.3 < (saved[0] == 0).float().mean().item() < 0.7
