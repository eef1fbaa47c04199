"""Building blocks of mixtures of experts: products by group, and counts of the tokens of each expert."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt

pytestmark = pytest.mark.each_way

DEVICE = "pjrt"
ENDS = [3, 3, 7, 10]


@pytest.fixture(autouse=True)
def _strictly() -> Iterator[None]:
    with torch_pjrt.strict_mode():
        yield


def groups() -> list[slice]:
    return [slice(begin, end) for begin, end in zip([0, *ENDS], ENDS, strict=False)]


@pytest.mark.parametrize("width", [5, 16])
@pytest.mark.parametrize("rows", [10, 12])  # the last two are in no group
def test_rows_by_group(width: int, rows: int) -> None:
    x, w = torch.randn(rows, 8, requires_grad=True), torch.randn(4, 8, width, requires_grad=True)
    expected = torch.cat([*(x[g] @ w[i] for i, g in enumerate(groups())), torch.zeros(rows - 10, width)])
    gradients = torch.autograd.grad(expected.square().sum(), (x, w))
    dx, dw = (t.detach().to(DEVICE).requires_grad_() for t in (x, w))
    result = F.grouped_mm(dx, dw, offs=torch.tensor(ENDS, dtype=torch.int32, device=DEVICE))
    torch.testing.assert_close(result.cpu(), expected)
    for actual, gradient in zip(torch.autograd.grad(result.square().sum(), (dx, dw)), gradients, strict=True):
        torch.testing.assert_close(actual.cpu(), gradient)


@pytest.mark.parametrize("shape", [(6, 10, 3), (3, 10, 6)])
def test_inner_dimension_by_group(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b = torch.randn(m, k), torch.randn(k, n)
    expected = torch.stack([a[:, g] @ b[g] for g in groups()])
    offs = torch.tensor(ENDS, dtype=torch.int32, device=DEVICE)
    torch.testing.assert_close(F.grouped_mm(a.to(DEVICE), b.to(DEVICE), offs=offs).cpu(), expected)


def test_columns_by_group_and_batches() -> None:
    a, b = torch.randn(4, 6, 8), torch.randn(8, 10)
    offs = torch.tensor(ENDS, dtype=torch.int32, device=DEVICE)
    expected = torch.cat([a[i] @ b[:, g] for i, g in enumerate(groups())], 1)
    torch.testing.assert_close(F.grouped_mm(a.to(DEVICE), b.to(DEVICE), offs=offs).cpu(), expected)
    c = torch.randn(4, 8, 5)
    torch.testing.assert_close(F.grouped_mm(a.to(DEVICE), c.to(DEVICE)).cpu(), a @ c)


def test_half_types() -> None:
    x, w = torch.randn(10, 8, dtype=torch.bfloat16), torch.randn(4, 8, 16, dtype=torch.bfloat16)
    offs = torch.tensor(ENDS, dtype=torch.int32)
    result = F.grouped_mm(x.to(DEVICE), w.to(DEVICE), offs=offs.to(DEVICE))
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.cpu(), F.grouped_mm(x, w, offs=offs))


def test_mistakes() -> None:
    x, w = torch.randn(10, 8, device=DEVICE), torch.randn(4, 8, 16, device=DEVICE)
    with pytest.raises(RuntimeError, match="Offsets have to be int32"):
        F.grouped_mm(x, w, offs=torch.tensor(ENDS, device=DEVICE))
    with pytest.raises(RuntimeError, match="contraction dimension of mat_a and mat_b must match"):
        F.grouped_mm(x[:, :4], w, offs=torch.tensor(ENDS, dtype=torch.int32, device=DEVICE))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32])
def test_counts(dtype: torch.dtype) -> None:
    expert = torch.tensor([0, 3, 3, 7, 1, 0, 9, -1])
    counts = torch.histc(expert.to(DEVICE, dtype), bins=8, min=0, max=7)
    assert counts.dtype == dtype
    assert counts.tolist() == [2, 1, 0, 2, 0, 0, 0, 1]


def test_a_range_from_the_data() -> None:
    x = torch.tensor([1.0, 2.0, 2.5, 4.0])
    assert torch.equal(torch.histc(x.to(DEVICE), bins=5).cpu(), torch.histc(x, bins=5))
    same = torch.full((3,), 2.0)
    assert torch.equal(torch.histc(same.to(DEVICE), bins=4).cpu(), torch.histc(same, bins=4))


def test_a_mixture_of_experts_trains() -> None:
    from transformers import MixtralConfig, MixtralModel

    config = MixtralConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, num_local_experts=4,
    )  # fmt: skip
    torch.manual_seed(0)
    model = MixtralModel(config)
    tokens = torch.randint(0, 64, (2, 8))
    model(tokens).last_hidden_state.square().mean().backward()
    gradients = [p.grad for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    model.to(DEVICE)(tokens.to(DEVICE)).last_hidden_state.square().mean().backward()
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(p.grad.cpu(), gradient, rtol=1e-3, atol=1e-5)
