"""Errors that only data can show: an index out of range is raised when results are read, in the CPU's words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import torch_pjrt

DEVICE = "pjrt"
Case = Callable[[torch.Tensor], torch.Tensor]


def base(index: torch.Tensor) -> torch.Tensor:
    return torch.arange(6.0, device=index.device).view(3, 2)


def ones(index: torch.Tensor, *sizes: int) -> torch.Tensor:
    return torch.ones(sizes, device=index.device)


CASES: dict[str, Case] = {
    "index": lambda i: base(i)[i],
    "index second": lambda i: base(i)[:, i],
    "index_put": lambda i: base(i).index_put((i,), ones(i, 2, 2)),
    "gather": lambda i: base(i).gather(0, i.view(1, 2)),
    "scatter": lambda i: base(i).scatter(0, i.view(1, 2), 1.0),
    "scatter src": lambda i: base(i).scatter(0, i.view(1, 2), ones(i, 1, 2)),
    "scatter_add": lambda i: base(i).scatter_add(0, i.view(1, 2), ones(i, 1, 2)),
    "scatter_reduce": lambda i: base(i).scatter_reduce(0, i.view(1, 2), ones(i, 1, 2), "amax"),
    "index_select": lambda i: base(i).index_select(0, i),
    "index_add": lambda i: base(i).index_add(0, i, ones(i, 2, 2)),
    "index_add of one dimension": lambda i: base(i)[:, 0].index_add(0, i, ones(i, 2)),
    "index_copy": lambda i: base(i).index_copy(0, i, ones(i, 2, 2)),
    "index_fill": lambda i: base(i).index_fill(0, i, 1.0),
    "index_reduce": lambda i: base(i).index_reduce(0, i, ones(i, 2, 2), "amax"),
    "take": lambda i: base(i).take(i * 3),
    "put": lambda i: base(i).put(i * 3, ones(i, 2)),
    "embedding": lambda i: F.embedding(i, base(i)),
    "cross_entropy": lambda i: F.cross_entropy(base(i)[:2], i),
}


@pytest.mark.each_way
@pytest.mark.parametrize("wrong", [3, -1])
@pytest.mark.parametrize("values", [2, 0, None])
def test_a_sorter_out_of_range(wrong: int, values: int | None) -> None:
    """Negative indices don't count from the end, and are an error even if nothing is looked up."""
    sorter = torch.tensor([0, 1, wrong])
    for device in ("cpu", DEVICE):
        sought = 1.0 if values is None else torch.ones(values, device=device)
        with pytest.raises(RuntimeError, match=r"^torch\.searchsorted\(\): sorter index out of range"):
            torch.searchsorted(torch.arange(3.0, device=device), sought, sorter=sorter.to(device)).tolist()


@pytest.mark.each_way
@pytest.mark.parametrize("lengths", [[0, 2, 3], [7, -1, 0]])
def test_segments_that_do_not_fit(lengths: list[int]) -> None:
    words = []
    for device in ("cpu", DEVICE):
        x, segments = torch.arange(6.0, device=device), torch.tensor(lengths, device=device)
        with pytest.raises(RuntimeError) as raised:
            torch.segment_reduce(x, "sum", lengths=segments, unsafe=False).tolist()
        words.append(str(raised.value).partition(" ([aten::")[0])
    assert words[0] == words[1]


DIVISIONS: dict[str, Callable[[torch.Tensor, torch.Tensor | int], torch.Tensor]] = {
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "truncating": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "flooring": lambda a, b: torch.div(a, b, rounding_mode="floor"),
}


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("scalar", [True, False])
def test_integer_division_by_zero(name: str, scalar: bool) -> None:
    divide = DIVISIONS[name]
    a = torch.tensor([[[[7]]], [[[-8]]]], device=DEVICE)  # no other test has this shape, so errors name this line

    def divisor(b: int) -> torch.Tensor | int:
        return b if scalar else torch.tensor([3, b]).view(2, 1, 1, 1)

    def of(b: int) -> torch.Tensor:
        by = divisor(b)
        return divide(a, by.to(DEVICE) if isinstance(by, torch.Tensor) else by)

    for b in (2, 5, -3):  # a scalar that varies is an input of the program
        torch.testing.assert_close(of(b).cpu(), divide(a.cpu(), divisor(b)))
    with pytest.raises(RuntimeError, match=r"^ZeroDivisionError .*test_runtime_assertions.py"):
        of(0).cpu()
    assert of(2).cpu()[1].item() == divide(torch.tensor(-8), 2)
    assert divide(a.double(), 0).cpu().shape == a.shape


@pytest.mark.parametrize("wrong", [5, -5])
@pytest.mark.parametrize("name", CASES)
def test_an_index_out_of_range_is_raised_when_the_result_is_read(name: str, wrong: int) -> None:
    case = CASES[name]
    index = torch.tensor([0, wrong])
    with pytest.raises((IndexError, RuntimeError)) as expected:
        case(index)
    result = case(index.to(DEVICE))
    with pytest.raises(type(expected.value)) as error:
        result.cpu()
    words = str(expected.value).split("\n")[0].removeprefix("index_copy_(): ")
    assert str(error.value).startswith(words)
    assert "test_runtime_assertions.py" in str(error.value) or name == "cross_entropy"
    # The device keeps working.
    right = torch.tensor([0, 1])
    torch.testing.assert_close(case(right.to(DEVICE)).cpu(), case(right))


@pytest.mark.each_way
@pytest.mark.parametrize("wrong", [16, -1])
@pytest.mark.parametrize("dims", [2, 3])
def test_unpooling_by_an_index_out_of_range(dims: int, wrong: int) -> None:
    unpool = getattr(F, f"max_unpool{dims}d")
    x, index = torch.ones(1, 1, *[2] * dims), torch.arange(2**dims).view(1, 1, *[2] * dims)
    torch.testing.assert_close(unpool(x.to(DEVICE), index.to(DEVICE), 2).cpu(), unpool(x, index, 2))
    index.view(-1)[-1] = wrong if wrong < 0 else 4**dims
    with pytest.raises(RuntimeError, match=r"(?i)found an invalid max index"):
        unpool(x, index, 2)
    result = unpool(x.to(DEVICE), index.to(DEVICE), 2)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Found an invalid max index"):
            result.cpu()


def test_negative_indices_wrap_where_torch_lets_them() -> None:
    index = torch.tensor([0, -3])
    for name in ("index", "index_put", "index_fill"):
        torch.testing.assert_close(CASES[name](index.to(DEVICE)).cpu(), CASES[name](index))


@pytest.mark.parametrize(
    "look_up",
    [
        lambda i: torch.zeros(0, 10, device=i.device)[:, i],
        lambda i: torch.zeros(10, 10, device=i.device)[torch.zeros(0, 1, dtype=torch.long, device=i.device), i],
        lambda i: torch.zeros(5, 0, device=i.device).index_put((i,), torch.ones((), device=i.device)),
        lambda i: torch.zeros(5, 0, device=i.device).index_add(0, i, torch.zeros(1, 0, device=i.device)),
        lambda i: torch.zeros(5, 0, device=i.device).index_copy(0, i, torch.zeros(1, 0, device=i.device)),
    ],
    ids=["index", "broadcast to nothing", "index_put", "index_add", "index_copy"],
)
def test_an_index_that_looks_nothing_up_is_not_judged(look_up: Callable[[torch.Tensor], torch.Tensor]) -> None:
    index = torch.tensor([75])
    assert look_up(index.to(DEVICE)).cpu().shape == look_up(index).shape


def test_ignored_targets_are_no_mistake() -> None:
    logits, target = torch.randn(3, 4), torch.tensor([1, -100, 2])
    expected = F.cross_entropy(logits, target)
    torch.testing.assert_close(F.cross_entropy(logits.to(DEVICE), target.to(DEVICE)).cpu(), expected)


def test_the_error_comes_with_any_read_after_the_program() -> None:
    x = torch.zeros(3, device=DEVICE)
    y = x[torch.tensor([7], device=DEVICE)]
    torch_pjrt.sync()
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 3"):
        torch.pjrt.synchronize()
    assert y.shape == (1,)
    assert x.tolist() == [0.0, 0.0, 0.0]


def test_compiled_functions_raise_too() -> None:
    @torch.compile(backend="pjrt")
    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i] + 1

    x = torch.arange(3.0)
    assert f(x, torch.tensor([2, 0])).tolist() == [3.0, 1.0]
    with pytest.raises(IndexError, match="index 3 is out of bounds"):
        f(x, torch.tensor([3, 0]))
    assert f(x, torch.tensor([1, 0])).tolist() == [2.0, 1.0]


def test_what_a_mask_selects_must_be_as_many_as_the_values() -> None:
    mask = torch.tensor([True, False, True])
    for values in (torch.ones(2), torch.ones(1)):
        x = torch.zeros(3, device=DEVICE)
        x[mask.to(DEVICE)] = values.to(DEVICE)
        assert x.tolist() == [1.0, 0.0, 1.0]
    x = torch.zeros(3, device=DEVICE)
    x[mask.to(DEVICE)] = torch.ones(3, device=DEVICE)
    with pytest.raises(RuntimeError, match=r"shape mismatch: value tensor of shape \[3\] .* of shape \[2\]"):
        x.cpu()
    y = torch.zeros(3, device=DEVICE).masked_scatter_(mask.to(DEVICE), torch.ones(1, device=DEVICE))
    with pytest.raises(RuntimeError, match="Number of elements of source < number of ones in mask"):
        y.cpu()


def test_an_exported_function_has_its_own_results_only() -> None:
    text = torch_pjrt.to_stablehlo(lambda x, i: x[i], torch.zeros(3), torch.tensor([0, 1]))
    assert "-> tensor<2xf32>" in text.replace("(tensor<2xf32>)", "tensor<2xf32>")
    assert text.count("return") == 1
    assert "reduce" not in text


def test_an_index_into_nothing_is_a_mistake() -> None:
    empty = torch.empty(4, 0, device=DEVICE)
    index = torch.tensor([0, 1], device=DEVICE)
    with pytest.raises(IndexError, match="for dimension with size 0"):
        empty[:, index]
    with pytest.raises((IndexError, RuntimeError)):
        empty.index_select(1, index)
    with pytest.raises((IndexError, RuntimeError)):
        empty.gather(1, index.view(1, 2))
