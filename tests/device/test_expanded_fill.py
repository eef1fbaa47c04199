"""Fills of expanded tensors, whose elements share memory: done as on the CPU, with its warning."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import torch_pjrt
from tests.warned import warned

pytestmark = pytest.mark.each_way

DEVICE = "pjrt"
MASK = [[True, False, False], [False, False, True]]


def mask(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(MASK, device=x.device)


def ints(x: torch.Tensor, *values: int) -> torch.Tensor:
    return torch.tensor(values, device=x.device)


FILLS: dict[str, Callable[[torch.Tensor], object]] = {
    "masked_fill_": lambda x: x.masked_fill_(mask(x), 7),
    "masked_fill_ of a row": lambda x: x.masked_fill_(mask(x)[:1], 7),
    "masked_fill_ by a tensor": lambda x: x.masked_fill_(mask(x), torch.tensor(7.0, device=x.device)),
    "masked_fill_ of nothing": lambda x: x.masked_fill_(x != x, 7),
    "x[mask] =": lambda x: x.__setitem__(mask(x), 7),
    "x[:, mask] =": lambda x: x.__setitem__((slice(None), mask(x)[0]), 7),
    "x[[i]] =": lambda x: x.__setitem__([1], 7),
    "x[[i], [j]] =": lambda x: x.__setitem__(([0, 1], [1, 1]), 7),
    "index_put_": lambda x: x.index_put_((ints(x, 0), ints(x, 2)), torch.tensor([7.0], device=x.device)),
    "index_put_ of several": lambda x: x.index_put_((ints(x, 0, 1), ints(x, 1, 1)), torch.arange(2.0, device=x.device)),
    "index_put_ of rows": lambda x: x.index_put_((ints(x, 1, 0),), torch.arange(6.0, device=x.device).view(2, 3)),
    "x[:, [j, k]] =": lambda x: x.__setitem__((slice(None), [0, 2]), torch.arange(4.0, device=x.device).view(2, 2)),
    "x[mask] = several": lambda x: x.__setitem__(mask(x), torch.tensor([8.0, 9], device=x.device)),
    "index_fill_ of rows": lambda x: x.index_fill_(0, ints(x, 1), 7),
    "index_fill_ of columns": lambda x: x.index_fill_(1, ints(x, 0, 2), 7),
    "index_fill_ by a tensor": lambda x: x.index_fill_(1, ints(x, 2), torch.tensor(7.0, device=x.device)),
}
# Additions to the elements of one place in memory add up.
SUMS: dict[str, Callable[[torch.Tensor], object]] = {
    "one value": lambda x: x.index_put_((ints(x, 0), ints(x, 1)), torch.ones(1, device=x.device), accumulate=True),
    "two of a column": lambda x: x.index_put_(
        (ints(x, 0, 1), ints(x, 1, 1)), torch.tensor([10.0, 100], device=x.device), accumulate=True
    ),
    "rows": lambda x: x.index_put_((ints(x, 1, 0, 1),), torch.arange(3.0, device=x.device), accumulate=True),
    "a mask": lambda x: x.index_put_((mask(x),), torch.tensor([3.0, 4], device=x.device), accumulate=True),
    "a number to a column": lambda x: torch.ops.aten.index_put_(
        x, [None, ints(x, 2)], torch.tensor(5.0, device=x.device), True
    ),
    "_index_put_impl_": lambda x: torch.ops.aten._index_put_impl_(
        x, [ints(x, 1)], torch.tensor(5.0, device=x.device), True, False
    ),
}
SHAPES = {"rows": (3,), "columns": (2, 1), "everything": (), "nothing": (2, 3)}


@pytest.mark.filterwarnings("ignore:Use of")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fill", FILLS)
def test_memory_is_filled_if_an_element_of_it_is(fill: str, shape: str) -> None:
    shown = []
    for device in (DEVICE, "cpu"):
        memory = torch.arange(6.0, device=device)[: torch.Size(SHAPES[shape]).numel()]
        x = memory.view(SHAPES[shape]).expand(2, 3)
        result = FILLS[fill](x)
        assert result is None or result is x
        shown.append((x.tolist(), memory.tolist(), x.stride()))
    assert shown[0] == shown[1]


@pytest.mark.filterwarnings("ignore:Use of")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("add", SUMS)
@pytest.mark.sampled(4)
def test_what_is_added_to_the_elements_of_a_place_adds_up(add: str, shape: str, dtype: torch.dtype) -> None:
    class Typed(torch.overrides.TorchFunctionMode):
        """Gives values the tensor's dtype."""

        def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = function(*args, **(kwargs or {}))
            made = function in (torch.ones, torch.arange, torch.tensor) and result.dtype == torch.float32
            return result.to(dtype) if made else result

    shown = []
    for device in (DEVICE, "cpu"):
        with Typed():
            memory = torch.arange(6.0, device=device)[: torch.Size(SHAPES[shape]).numel()]
            x = memory.view(SHAPES[shape]).expand(2, 3)
            assert SUMS[add](x) is x
        shown.append((x.tolist(), memory.tolist(), x.stride()))
    assert shown[0] == shown[1]
    assert torch_pjrt.metrics()["host_fallbacks"] in ({}, {"aten::nonzero": 1})  # for a mask


def test_two_rows_of_one_memory() -> None:
    memory = torch.tensor([0.0, 1, 2], device=DEVICE)
    with pytest.warns(UserWarning, match="Use of index_put_ on expanded tensors is deprecated"):
        SUMS["two of a column"](memory.expand(2, 3))
    assert memory.tolist() == [0, 111, 2]


@pytest.mark.filterwarnings("ignore:Use of")
def test_an_index_out_of_range_of_a_shared_dimension() -> None:
    for device in ("cpu", DEVICE):
        x = torch.zeros(3, device=device).expand(2, 3)
        with pytest.raises(IndexError, match="index 2 is out of bounds for dimension 0 with size 2"):
            x.index_put_((ints(x, 2),), torch.ones(3, device=device), accumulate=True).tolist()


@pytest.mark.parametrize("fill", ["masked_fill_", "index_fill_ of rows", "index_put_", "one value", "rows"])
def test_that_it_is_deprecated_is_said_as_on_the_cpu(fill: str) -> None:
    does = (FILLS | SUMS)[fill]
    said = [warned(lambda d=d: does(torch.zeros(3, device=d).expand(2, 3))) for d in (DEVICE, "cpu")]
    assert len(said[1]) == 1
    assert said[0] == said[1]


OTHER_WRITES: dict[str, Callable[[torch.Tensor], object]] = {
    "add_": lambda x: x.add_(1),
    "copy_": lambda x: x.copy_(torch.ones(2, 3, device=x.device)),
}


@pytest.mark.parametrize("write", OTHER_WRITES)
def test_other_writes_are_refused(write: str) -> None:
    x = torch.zeros(3, device=DEVICE).expand(2, 3)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory"):
        OTHER_WRITES[write](x)
    assert x.tolist() == [[0.0] * 3] * 2


def test_filling_all_of_it() -> None:
    for device in ("cpu", DEVICE):
        x = torch.zeros(2, 1, device=device).expand(2, 3).fill_(3)
        assert x.tolist() == [[3.0] * 3] * 2
        y = torch.empty_strided((10,), (0,), device=device).zero_()
        assert y.tolist() == [0.0] * 10
