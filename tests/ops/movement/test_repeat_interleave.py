"""torch.repeat_interleave by a tensor: on the device where the result's size is given."""

from __future__ import annotations

import pytest
import torch

import torch_pjrt

pytestmark = pytest.mark.each_way

DEVICE = "pjrt"


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("repeats", [[1, 0, 2, 3], [0, 0, 0, 1], [2, 2, 2, 2]])
def test_a_given_size(repeats: list[int], dtype: torch.dtype) -> None:
    x, times, size = torch.randn(4, 3), torch.tensor(repeats, dtype=dtype), sum(repeats)

    def repeat(x: torch.Tensor, times: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.repeat_interleave(x, times, 0, output_size=size), times.repeat_interleave(times, output_size=size)

    expected, leaf = repeat(x, times), x.to(DEVICE).requires_grad_()
    on_device = repeat(leaf, times.to(DEVICE))
    on_device[0].sum().backward()
    assert leaf.grad is not None
    assert leaf.grad[:, 0].tolist() == repeats
    for got in (on_device, torch.compile(repeat, backend="pjrt", fullgraph=True)(x, times)):
        for a, b in zip(got, expected, strict=True):
            assert a.dtype == b.dtype
            assert torch.equal(a.detach().cpu(), b)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize(("repeats", "size"), [([1, 2], 5), ([2, -1], 1)])
def test_a_wrong_size(repeats: list[int], size: int) -> None:
    result = torch.repeat_interleave(torch.tensor(repeats, device=DEVICE), output_size=size)
    with pytest.raises(RuntimeError, match="allocated size does not match required size"):
        result.cpu()


def test_its_size_is_read() -> None:
    assert torch.repeat_interleave(torch.tensor([1, 2], device=DEVICE)).tolist() == [0, 1, 1]
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
    with pytest.raises(NotImplementedError, match="not implemented for 'Float'"):
        torch.repeat_interleave(torch.ones(2, device=DEVICE), output_size=2)
