"""In interpreted runs, single-op programs read views, and expanded memory is written as in eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.each_way


TABLE = torch.tensor([[0.0, 1, 0], [1, 0, 0]])
IMAGE = torch.arange(12.0).reshape(1, 2, 2, 3).bfloat16()
FIRST_CHANNEL = torch.tensor([1.0, 0, 0]).reshape(1, 3, 1, 1).bfloat16()

# Calls whose results don't depend on the draw.
CALLS: dict[str, Callable[[str], torch.Tensor]] = {
    "normal": lambda d: torch.normal(torch.tensor([0.0, 100], device=d).expand(3, 2), 1e-3).round().abs(),
    "bernoulli": lambda d: torch.bernoulli(TABLE.to(d).t()),
    "multinomial": lambda d: torch.multinomial(torch.eye(3).roll(1, 0).to(d).t(), 1),
    "fmod": lambda d: torch.arange(6.0).reshape(2, 3).to(d).t().fmod(10),
    "fmod of a slice": lambda d: torch.arange(24.0).reshape(4, 6).to(d)[1:, ::2].fmod(10),
    "fmod of an expanded": lambda d: torch.arange(3.0).to(d).expand(2, 3).t().fmod(10),
    "convolution, NHWC": lambda d: F.conv2d(IMAGE.to(d).permute(0, 3, 1, 2), FIRST_CHANNEL.to(d)),
    "embedding_bag": lambda d: F.embedding_bag(
        torch.tensor([[0, 1]], device=d), torch.arange(6.0).reshape(2, 3).to(d).t(), mode="sum"
    ),
}
WRITES: dict[str, Callable[[torch.Tensor], object]] = {
    "fill_": lambda x: x.fill_(2),
    "zero_": lambda x: x.zero_(),
    "nn.init.zeros_": torch.nn.init.zeros_,
    "foreach zero": lambda x: torch._foreach_zero_([x]),
}
EXPANDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all": lambda m: m[:1].expand(3),
    "rows": lambda m: m.expand(2, 6),
    "columns": lambda m: m[2:4].unsqueeze(1).expand(2, 3),
}


@pytest.mark.parametrize("call", CALLS)
def test_views_are_read_in_the_order_of_their_memory(call: str) -> None:
    torch.testing.assert_close(CALLS[call]("pjrt").cpu(), CALLS[call]("cpu"), check_stride=False)


@pytest.mark.parametrize("shape", EXPANDED)
@pytest.mark.parametrize("write", WRITES)
def test_expanded_memory_is_written(write: str, shape: str) -> None:
    memories = []
    for device in ("pjrt", "cpu"):
        memory = torch.arange(1.0, 7, device=device)
        WRITES[write](EXPANDED[shape](memory))
        memories.append(memory.tolist())
    assert memories[0] == memories[1]


def test_a_run_tells_of_one_mistake() -> None:
    """A later read doesn't raise errors that follow from the first."""
    for _ in range(3):
        table, index = torch.arange(4.0).to("pjrt"), torch.tensor([2, 7]).to("pjrt")
        wrong = table[torch.arange(9, device="pjrt")[index]][index]
        with pytest.raises(IndexError, match="index 7 is out of bounds"):
            wrong.cpu()
        assert (table + 1).tolist() == [1, 2, 3, 4]
        torch.pjrt.synchronize()
