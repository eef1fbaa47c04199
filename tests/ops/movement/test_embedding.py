"""Embedding bags, whose sizes are data: values and gradients are the CPU's."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import nn

import torch_pjrt
from tests.ops.opinfo import assert_same, compute

pytestmark = pytest.mark.each_way

INDICES = torch.tensor([1, 3, 3, 0, 7, 2, 3, 9, 1])


def check(bag: nn.EmbeddingBag, *arguments: torch.Tensor, weights: torch.Tensor | None = None) -> None:
    results = []
    for device in ("cpu", "pjrt"):
        module = copy.deepcopy(bag).to(device)
        weight = None if weights is None else weights.detach().clone().to(device).requires_grad_()
        with torch_pjrt.strict_mode():
            output = module(*(a.to(device) for a in arguments), per_sample_weights=weight)
            (output * torch.linspace(0.5, 1.5, output.numel()).reshape(output.shape).to(device)).sum().backward()
        results.append([output.detach().cpu(), module.weight.grad.cpu()])
        if weight is not None:
            results[-1].append(weight.grad.cpu())
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_offsets(mode: str, padding: int | None) -> None:
    torch.manual_seed(0)
    bag = nn.EmbeddingBag(10, 4, mode=mode, padding_idx=padding)
    check(bag, INDICES, torch.tensor([0, 3, 3, 7]))  # the second bag is empty
    check(bag, INDICES.reshape(3, 3))


def test_last_offset_included() -> None:
    bag = nn.EmbeddingBag(10, 4, mode="sum", include_last_offset=True)
    check(bag, INDICES.int(), torch.tensor([0, 4, 4, 9]).int())


def test_weights_of_samples() -> None:
    bag = nn.EmbeddingBag(10, 4, mode="sum", padding_idx=3)
    check(bag, INDICES, torch.tensor([0, 4, 6]), weights=torch.randn(9))


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_scaled_by_frequency(mode: str) -> None:
    """A row's gradient is divided by the number of its look-ups. The CPU divides by another row's number (torch
    2.13), so the test compares with the documented meaning.
    """
    bag = nn.EmbeddingBag(10, 4, mode=mode, scale_grad_by_freq=True).to("pjrt")
    bag(INDICES.to("pjrt"), torch.tensor([0, 4, 6]).to("pjrt")).sum().backward()
    each = 1 / torch.bincount(INDICES)[INDICES]
    if mode == "mean":
        each = each / torch.tensor([4, 4, 4, 4, 2, 2, 3, 3, 3])
    expected = torch.zeros(10).index_add(0, INDICES, each)
    torch.testing.assert_close(bag.weight.grad.cpu(), expected[:, None].expand(10, 4))


def test_all_results_are_those_of_a_program() -> None:
    """Each index's bag, the bags' sizes and the maxima, which the CPU omits where it doesn't need them."""
    torch.manual_seed(0)
    weight, given = torch.randn(10, 4, device="pjrt"), []
    for mode, padding, last in itertools.product(range(3), (-1, 3), (False, True)):
        offsets = torch.tensor([0, 4, 4, 9] if last else [0, 4, 4])
        given.append((INDICES.to("pjrt"), offsets.to("pjrt"), False, mode, False, None, last, padding))
    results = []
    for policy in ("auto", "first"):
        torch_pjrt._C.set_compile_policy(policy)
        looked_up = [torch.ops.aten._embedding_bag(weight, *arguments) for arguments in given]
        compute(looked_up)
        results.append([result.cpu() for bags in looked_up for result in bags])
    assert_same(*results)


def test_no_gradient_no_indices() -> None:
    bag = nn.EmbeddingBag(10, 4, mode="max").to("pjrt")
    with torch.no_grad(), torch_pjrt.strict_mode():
        output = bag(torch.zeros(0, dtype=torch.long).to("pjrt"), torch.tensor([0, 0]).to("pjrt"))
    assert torch.equal(output.cpu(), torch.zeros(2, 4))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize(
    ("indices", "offsets", "message"),
    [
        ([0, 10], [0], "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be 10"),
        ([-1, 2], [0], "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be -1"),
        ([1, 2], [1], r"offsets\[0\] has to be 0.*However, got 1"),
        ([1, 2], [0, 3], r"offsets\[-1\] can not be greater than input's length 2 but got offsets\[-1\] of 3"),
    ],
)
def test_wrong_bags(mode: str, indices: list[int], offsets: list[int], message: str) -> None:
    bag = nn.EmbeddingBag(10, 4, mode=mode)
    with pytest.raises(RuntimeError):
        bag(torch.tensor(indices), torch.tensor(offsets))
    bag.to("pjrt")
    with pytest.raises(RuntimeError, match=message):
        bag(torch.tensor(indices).to("pjrt"), torch.tensor(offsets).to("pjrt")).cpu()


def test_wrong_shapes_and_dtypes_of_bags() -> None:
    weight, one = torch.zeros(2, 2, device="pjrt"), torch.ones(2, dtype=torch.int64, device="pjrt")
    with pytest.raises(RuntimeError, match="input has to be a 1D or 2D Tensor"):
        torch.embedding_bag(weight, one.expand(2, 2, 2), one)
    with pytest.raises(RuntimeError, match="offsets has to be a 1D Tensor"):
        torch.embedding_bag(weight, one, one.expand(2, 2))
    with pytest.raises(RuntimeError, match="weight has to be a 2D Tensor"):
        torch.embedding_bag(weight.expand(2, 2, 2), one, one)
    with pytest.raises(RuntimeError, match="have the same type as"):
        torch.nn.functional.embedding_bag(
            one, weight, one * 0, mode="sum", per_sample_weights=torch.ones(2, dtype=torch.float64, device="pjrt")
        )
