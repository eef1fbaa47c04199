"""The device holds none of PyTorch's quantized tensors; each op that makes one names a replacement."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

DEVICE = "pjrt"
pytestmark = pytest.mark.filterwarnings("ignore")


def quantized() -> Tensor:
    return torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.qint8)


def saved() -> io.BytesIO:
    torch.save(quantized(), file := io.BytesIO())
    file.seek(0)
    return file


@pytest.mark.parametrize(
    ("op", "use"),
    [
        ("quantize_per_tensor", lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)),
        ("quantize_per_tensor", lambda x: torch.quantize_per_tensor(x, x[0, 0], x[0, 1].long(), torch.quint8)),
        ("quantize_per_tensor", lambda x: torch.quantize_per_tensor([x, x], x[0, :2], x[1, :2], torch.quint8)),
        ("quantize_per_tensor_dynamic", lambda x: torch.quantize_per_tensor_dynamic(x, torch.qint8, False)),
        ("quantize_per_channel", lambda x: torch.quantize_per_channel(x, x[0], x[1].long(), 0, torch.qint8)),
        ("quantize_per_tensor", lambda x: torch.ao.nn.quantized.Quantize(0.1, 0, torch.quint8).to(DEVICE)(x)),
        ("_make_per_tensor_quantized_tensor", lambda x: torch._make_per_tensor_quantized_tensor(x.char(), 1.0, 0)),
        ("empty_quantized", lambda x: quantized().to(DEVICE)),
        ("_copy_from", lambda x: x.copy_(quantized())),
        ("empty", lambda x: torch.empty(3, dtype=torch.quint8, device=DEVICE)),
        ("empty_strided", lambda x: x.to(torch.qint32)),
        ("_empty_affine_quantized", lambda x: torch.zeros_like(quantized(), device=DEVICE)),
        ("_empty_affine_quantized", lambda x: torch.load(saved(), map_location=DEVICE)),
        ("int_repr", lambda x: x.int_repr()),
        ("q_scale", lambda x: x.q_scale()),
        ("add", lambda x: torch.ops.quantized.add(quantized(), x, 0.1, 0)),
    ],
)
def test_refused_with_the_alternatives(op: str, use: Callable[[Tensor], object]) -> None:
    words = rf"\[(aten|quantized)::{op}\] .* no quantized tensors .*torchao.*pt2e.*fake_quantize.*dequantize\(\)"
    with pytest.raises(NotImplementedError, match=words):
        use(torch.eye(3, device=DEVICE))


def test_the_alternatives_are_there() -> None:
    import torch.ao.quantization.fx._decomposed

    x = torch.linspace(-2, 2, 12).view(3, 4)
    uses: list[Callable[[Tensor], Tensor]] = [
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127),
        lambda x: torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.1, 0, -128, 127, torch.int8),
    ]
    for use in uses:
        assert torch.equal(use(x.to(DEVICE)).cpu(), use(x))
    assert torch.equal(quantized().dequantize().to(DEVICE).cpu(), quantized().dequantize())
