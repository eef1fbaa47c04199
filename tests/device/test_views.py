"""Views, aliases and storages: everything that a user can see of a tensor's memory is as on the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.device.beside_cpu import DEVICE, both, same

pytestmark = pytest.mark.each_way

EXAMPLES = int(os.environ.get("TORCH_PJRT_TEST_EXAMPLES", "60"))


# --- random programs --------------------------------------------------------------------------------------------------

Pair = tuple[torch.Tensor, torch.Tensor]  # device, host


def view_of(data: st.DataObject, t: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns a function that returns a random view of a tensor with t's metadata."""
    draw = data.draw
    dim = st.integers(0, max(t.dim() - 1, 0))
    kinds = ["unsqueeze", "squeeze", "view_dtype", "as_strided", "flatten", "detach", "alias"]
    if t.dim() > 0:
        kinds += [
            "slice",
            "slice",
            "select",
            "transpose",
            "narrow",
            "unfold",
            "reshape",
            "expand",
            "movedim",
            "split",
            "diff",
        ]
    if t.dim() > 1:
        kinds += ["diagonal", "permute"]
    if t.is_complex():
        kinds += ["view_as_real", "real", "imag"]
    elif t.dim() > 0 and t.dtype == torch.float32:
        kinds += ["view_as_complex"]
    kind = draw(st.sampled_from(kinds))
    d = draw(dim)
    n = t.shape[d] if t.dim() else 1
    if kind == "slice":
        start, stop = draw(st.integers(0, n)), draw(st.integers(0, n))
        step = draw(st.integers(1, 3))
        index = (slice(None),) * d + (slice(start, stop, step),)
        return lambda x: x[index]
    if kind == "select":
        i = draw(st.integers(-n, n))  # sometimes out of range
        return lambda x: x.select(d, i)
    if kind == "transpose":
        e = draw(dim)
        return lambda x: x.transpose(d, e)
    if kind == "movedim":
        e = draw(dim)
        return lambda x: x.movedim(d, e)
    if kind == "permute":
        order = draw(st.permutations(range(t.dim())))
        return lambda x: x.permute(*order)
    if kind == "narrow":
        start = draw(st.integers(0, n))
        length = draw(st.integers(0, n - start))
        return lambda x: x.narrow(d, start, length)
    if kind == "split":
        size = draw(st.integers(1, max(n, 1)))
        return lambda x: x.split(size, d)[-1]
    if kind == "unfold":
        size, step = draw(st.integers(1, max(n, 1))), draw(st.integers(1, 3))
        return lambda x: x.unfold(d, size, step)
    if kind == "diagonal":
        e, offset = draw(dim), draw(st.integers(-2, 2))
        return lambda x: x.diagonal(offset, d, e)
    if kind == "expand":
        k = draw(st.integers(1, 3))
        return lambda x: x.expand(k, *x.shape) if x.numel() < 500 else x
    if kind == "unsqueeze":
        return lambda x: x.unsqueeze(d) if x.dim() < 6 else x
    if kind == "squeeze":
        return lambda x: x.squeeze()
    if kind == "flatten":
        return lambda x: x.view(-1)
    if kind == "reshape":
        shape = draw(st.sampled_from([(-1, 1), (1, -1), (2, -1), (-1, 2), (-1, 3)]))
        return lambda x: x.reshape(shape)
    if kind == "view_dtype":
        dtype = draw(st.sampled_from([torch.int16, torch.int32, torch.uint8, torch.int64]))
        plain = not t.dtype.is_floating_point and not t.dtype.is_complex
        # Such a view of bools could write other bytes than 0 and 1, which XLA's predicates can't hold.
        return lambda x: x.view(dtype if plain and t.dtype != torch.bool else x.dtype)
    if kind == "as_strided":
        sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
        strides = draw(st.lists(st.integers(0, 5), min_size=len(sizes), max_size=len(sizes)))
        offset = draw(st.integers(0, 4))
        return lambda x: x.as_strided(sizes, strides, offset)
    simple: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "detach": lambda x: x.detach(),
        "alias": lambda x: x.data,
        "diff": lambda x: x[..., :-1],
        "view_as_real": torch.view_as_real,
        "view_as_complex": torch.view_as_complex,
        "real": lambda x: x.real,
        "imag": lambda x: x.imag,
    }
    return simple[kind]


def write_to(data: st.DataObject, t: torch.Tensor, other: int) -> Callable[[torch.Tensor, list[torch.Tensor]], Any]:
    """Returns a random write to a tensor with t's metadata; `other` is the index of a second operand."""
    draw = data.draw
    kinds = [
        "add",
        "mul",
        "fill",
        "zero",
        "copy",
        "copy_other",
        "add_other",
        "out",
        "mask",
        "setitem",
        "where_out",
        "copy_cpu",
    ]
    if t.dim() > 0 and t.numel() > 0:  # the device does not notice an index out of range
        kinds += ["index_put", "index_fill", "setitem_slice", "cumsum_", "accumulate"]
    if t.dtype == torch.bool and "cumsum_" in kinds:
        kinds.remove("cumsum_")  # the CPU has no such kernel
    k = draw(st.integers(1, 3))
    n = t.shape[0] if t.dim() else 1
    i = draw(st.integers(0, max(n - 1, 0)))
    if t.dtype == torch.bool:
        k = 1
        kinds.remove("mul")  # the Meta kernel of mul_ takes an int for a bool where the CPU's raises
    kind = draw(st.sampled_from(kinds))
    writes: dict[str, Callable[[torch.Tensor, list[torch.Tensor]], Any]] = {
        "add": lambda x, _: x.add_(k),
        "mul": lambda x, _: x.mul_(k),
        "fill": lambda x, _: x.fill_(k),
        "zero": lambda x, _: x.zero_(),
        "copy": lambda x, _: x.copy_(x.clone() + 1),
        "copy_other": lambda x, all: x.copy_(all[other]),
        "copy_cpu": lambda x, _: x.copy_(torch.arange(x.numel()).view(x.shape)),
        "add_other": lambda x, all: x.add_(all[other].clone()),
        "out": lambda x, _: torch.add(x, k, out=x),
        "where_out": lambda x, _: torch.mul(x.clone(), k, out=x),
        "mask": lambda x, _: x.masked_fill_(x.abs() > 2 if x.dtype != torch.bool else x, k),
        "setitem": lambda x, _: x.__setitem__(Ellipsis, k),
        "setitem_slice": lambda x, _: x.__setitem__(slice(None, None, 2), k),
        "index_put": lambda x, _: x.index_put_(
            (torch.tensor([i], device=x.device),), torch.tensor(k, device=x.device).to(x.dtype)
        ),
        "accumulate": lambda x, _: x.index_put_(
            (torch.tensor([i, i], device=x.device),), torch.tensor(k, device=x.device).to(x.dtype), accumulate=True
        ),
        "index_fill": lambda x, _: x.index_fill_(-1, torch.tensor([0], device=x.device), k),
        "cumsum_": lambda x, _: x.cumsum_(0),
    }
    return writes[kind]


def attempt(action: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return action(), None
    except (RuntimeError, IndexError, NotImplementedError) as error:
        return None, error


@settings(max_examples=EXAMPLES, deadline=None, derandomize="TORCH_PJRT_TEST_EXAMPLES" not in os.environ, database=None,
          suppress_health_check=list(HealthCheck), print_blob=True)  # fmt: skip
@given(st.data())
def test_random_programs(data: st.DataObject) -> None:
    dtype = data.draw(
        st.sampled_from([torch.float32, torch.int32, torch.int64, torch.complex64, torch.bool, torch.uint8])
    )
    shape = data.draw(st.sampled_from([(6,), (4, 3), (2, 3, 4), (), (3, 1, 2), (5, 4), (2, 0)]))
    host = torch.arange(torch.Size(shape).numel()).reshape(shape).sub(3).to(dtype)
    pairs: list[Pair] = [(host.to(DEVICE), host.clone())]
    for _ in range(data.draw(st.integers(2, 10))):
        at = data.draw(st.integers(0, len(pairs) - 1))
        d, h = pairs[at]
        what = data.draw(st.sampled_from(["view", "view", "write", "write", "read", "clone"]))
        if what == "view":
            f = view_of(data, h)
            made_h, error_h = attempt(lambda f=f, h=h: f(h))
            made_d, error_d = attempt(lambda f=f, d=d: f(d))
            assert type(error_d) is type(error_h), f"{error_d!r} on the device, {error_h!r} on the CPU"
            if error_h is None and made_h.numel() < 1000:
                pairs.append((made_d, made_h))
        elif what == "write" and torch._debug_has_internal_overlap(h) == 0:  # type: ignore[attr-defined]
            other = data.draw(st.integers(0, len(pairs) - 1))
            w = write_to(data, h, other)
            _, error_h = attempt(lambda w=w, h=h: w(h, [p[1] for p in pairs]))
            _, error_d = attempt(lambda w=w, d=d: w(d, [p[0] for p in pairs]))
            assert type(error_d) is type(error_h), f"{error_d!r} on the device, {error_h!r} on the CPU"
        elif what == "clone":
            pairs.append((d.clone(), h.clone()))
        elif what == "read":
            same(d, h)
    for d, h in pairs:
        same(d, h)
    for d, h in pairs:
        assert d.is_set_to(pairs[0][0]) == h.is_set_to(pairs[0][1])
        assert (d.data_ptr() == pairs[0][0].data_ptr()) == (h.data_ptr() == pairs[0][1].data_ptr())


# --- metadata ---------------------------------------------------------------------------------------------------------


def test_views_share_memory_and_version() -> None:
    def program(device: str) -> list[Any]:
        x = torch.arange(12.0, device=device).view(3, 4)
        y = x.t()[1:, 0]
        y += 100
        z = x.detach()
        z[0, 0] = 7
        w = x.data
        w.mul_(2)
        facts = [
            x._version,
            y._version,
            z._version,
            w._version,
            y._base is x._base,
            x.is_set_to(x.view(3, 4)),
            x.is_set_to(y),
        ]
        return [x, y, z, w, *facts]

    both(program)


@pytest.mark.parametrize("sizes", [2, [1, 3]])
def test_unsafe_split_gives_views(sizes: int | list[int]) -> None:
    """Autograd doesn't know that the results are views."""
    split = torch.unsafe_split if isinstance(sizes, int) else torch.unsafe_split_with_sizes
    for device in ("cpu", DEVICE):
        x = torch.arange(4.0, device=device, requires_grad=True)
        y = x * 1
        first, second = split(y, sizes)
        first.mul_(3)
        assert y.tolist()[:2] == [0.0, 3.0 if sizes == 2 else 1.0]
        (first.sum() + second.sum()).backward()
        assert x.grad is not None
        assert x.grad.tolist() == ([3.0, 3.0, 1.0, 1.0] if sizes == 2 else [3.0, 1.0, 1.0, 1.0])


def test_memory_formats() -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = torch.arange(2.0 * 3 * 4 * 5, device=device).view(2, 3, 4, 5)
        last = x.to(memory_format=torch.channels_last)
        assert last.is_contiguous(memory_format=torch.channels_last)
        results = [last, last.clone(), last.contiguous(), last + 1, last[1:], torch.empty_like(last).copy_(x),
                   x.transpose(1, 2).clone(), x.transpose(1, 2).contiguous(), torch.zeros_like(last),
                   x.permute(3, 1, 0, 2).clone(memory_format=torch.preserve_format),
                   x[..., ::2].clone(), x.expand(2, 2, 3, 4, 5).clone(),
                   torch.empty((2, 3, 4, 5), device=device, memory_format=torch.channels_last).fill_(3)]  # fmt: skip
        last.add_(1)
        last[0, 1].mul_(2)
        return results

    both(program)


def test_dtype_views() -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = torch.arange(8, dtype=torch.int32, device=device)
        x.view(torch.int16)[::4] = 5
        x.view(torch.uint8)[3] = 1
        f = torch.arange(8.0, device=device)
        f.view(torch.int32)[2] = 0x3F800000
        c = torch.view_as_complex(f.view(4, 2))
        c.mul_(1j)
        torch.view_as_real(c)[1, 1] = 42
        c.imag[2] = -3
        d = torch.arange(4.0, dtype=torch.float64, device=device)
        d.view(torch.float32)[1] = 2.5
        b = torch.tensor([True, False, True, True], device=device)
        b.view(torch.uint8)[1] = 1
        h = torch.arange(4, dtype=torch.float16, device=device)
        h.view(torch.int32)[1] = 0x3C003C00
        z = torch.arange(4, device=device).to(torch.complex128)
        z.view(torch.float64)[3] = 8
        return [x, x.view(torch.int64), f, f.view(torch.uint8), c, d, b, h, z]

    both(program)


def test_conjugate_and_negative_views() -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = torch.complex(torch.arange(4.0), torch.arange(4.0) - 2).to(device)
        y = x.conj()
        assert y.is_conj()
        z = y.imag
        y.mul_(2j)
        y[1] = 3 + 4j
        z.add_(1)
        return [x, y.resolve_conj(), z.resolve_neg(), y @ x, torch.stack([y, x]), y.clone().resolve_conj()]

    both(program)


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
     torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2],
)  # fmt: skip
def test_an_element_of_each_dtype(dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, 0.0, 2.5, 3.0]).to(dtype)
    for place in range(4):
        given, expected = x.to(DEVICE)[place].item(), x[place].item()
        assert given == expected
        assert type(given) is type(expected)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_an_element_of_a_conjugate_and_of_a_negative_view(dtype: torch.dtype) -> None:
    x = torch.tensor([1.5 + 2j, -3 - 0.25j]).to(dtype).to(DEVICE)
    assert [x[i].item() for i in range(2)] == [1.5 + 2j, -3 - 0.25j]
    assert [x.conj()[i].item() for i in range(2)] == [1.5 - 2j, -3 + 0.25j]
    negative = x.conj().imag
    assert negative.is_neg()
    assert [negative[i].item() for i in range(2)] == [-2.0, 0.25]


def test_overlap_is_refused_as_on_the_cpu() -> None:
    for device in (DEVICE, "cpu"):
        x = torch.zeros(6, device=device)
        with pytest.raises(
            RuntimeError, match="more than one element of the written-to tensor refers to a single memory"
        ):
            x[:1].expand(4).add_(1)
        with pytest.raises(
            RuntimeError, match="more than one element of the written-to tensor refers to a single memory"
        ):
            x[:1].expand(4).copy_(torch.ones(4, device=device))
        with pytest.raises(
            RuntimeError, match="more than one element of the written-to tensor refers to a single memory"
        ):
            torch._foreach_add_([x[:1].expand(4)], 1)  # type: ignore[attr-defined]
        with pytest.raises(
            RuntimeError, match="some elements of the input tensor and the written-to tensor refer to a single"
        ):
            x[1:].add_(x[:-1])
        assert x.cpu().tolist() == [0] * 6


def test_out_resizes_and_writes_through() -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = torch.arange(6.0, device=device)
        out = torch.empty(0, device=device)
        torch.mul(x, 2, out=out)
        buffer = torch.zeros(4, 6, device=device)
        torch.sub(x, 1, out=buffer[2])
        columns = torch.zeros(6, 4, device=device)
        torch.exp(x, out=columns[:, 1])
        values, indices = torch.empty(2, device=device), torch.empty(2, dtype=torch.int64, device=device)
        torch.topk(x, 2, out=(values, indices))
        torch.cat([x, x], out=out)
        strided = torch.empty(3, 2, device=device).t()
        torch.add(x.view(2, 3), 1, out=strided)
        return [out, buffer, columns, values, indices, strided]

    both(program)


# --- copies, files, pickles -------------------------------------------------------------------------------------------


def test_the_sum_of_constant_bools_is_or() -> None:
    x = torch.ones(6, dtype=torch.bool, device=DEVICE)
    assert (x + x).tolist() == [True] * 6
    assert x.add_(x.clone()).tolist() == [True] * 6


SHARING = {
    "expanded": lambda x: x.expand(2, 3, 4),
    "part": lambda x: x[0].expand(3, 5),
    "transposed": lambda x: x[1].t().expand(2, 1, 3),
    "windows": lambda x: x.flatten().unfold(0, 3, 1)[1:3],
}


@pytest.mark.parametrize(
    "write",
    [lambda x: x.fill_(2.0), lambda x: x.zero_(), lambda x: torch.threshold_(x, 2.0, 5.0)],
    ids=["fill", "zero", "threshold"],
)
@pytest.mark.parametrize("view", SHARING)
def test_one_value_may_be_written_to_memory_that_elements_share(view: str, write: Any) -> None:
    """One value is allowed as on the CPU, whose other ops refuse such memory."""
    results = []
    for device in ("cpu", DEVICE):
        base = torch.arange(6.0).reshape(2, 3, 1).to(device)
        write(SHARING[view](base))
        results.append(base.cpu())
        if view != "windows":  # torch sees only strides of 0
            with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
                SHARING[view](base).fill_(torch.tensor(1.0).to(device))
    assert torch.equal(*results)


def test_results_written_to_conjugate_and_negative_views() -> None:
    def written(device: str) -> list[torch.Tensor]:
        a = torch.tensor([[1 + 2j, 2], [0, 3j]], device=device)
        out, other = torch.zeros(2, 2, dtype=torch.complex64, device=device), torch.ones(4, device=device) * (1 + 1j)
        result = torch.mm(a, a, out=out.conj())
        assert result.is_conj()
        seen = [result.clone().cpu(), out.clone().cpu()]
        torch.linalg.solve_triangular(a, a, upper=True, out=out.conj())
        torch.mm(a.imag, a.imag, out=other.view(2, 2).conj().imag)
        return [*seen, out.cpu(), other.cpu()]

    torch.testing.assert_close(written(DEVICE), written("cpu"))
