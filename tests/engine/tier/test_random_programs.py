"""Random programs from seeds, compared with CPU eager call by call: views, writes through them, draws, loops, mistakes.

The runs are interpreted, compiled, or switch between both at any step. TORCH_PJRT_TEST_PROGRAMS=300 tries more than CI
does.
"""

from __future__ import annotations

import math
import os
import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torch_pjrt
from tests.ops.layouts import place
from torch_pjrt import _C

COUNT = int(os.environ.get("TORCH_PJRT_TEST_PROGRAMS", "6"))
FLOATS = (torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int64, torch.int32, torch.uint8, torch.int16)
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-7, torch.bfloat16: 6e-2, torch.float16: 8e-3}
SHAPES = ((3, 4), (4, 3), (2, 3, 4), (1, 4), (5,), (2, 3, 2, 2), (), (2, 0, 3))

Call = Callable[[torch.Tensor], torch.Tensor]


def tame(x: torch.Tensor) -> torch.Tensor:
    """Bounds the values, so that rounding errors stay small."""
    return x.tanh() if x.is_floating_point() else x.remainder(97)


def may_be_written(x: torch.Tensor) -> bool:
    """Returns true if each element has its own memory, or all of a dimension share one. Other writes have no defined
    result."""
    x = x[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in x.stride())]
    places = torch.arange(x.untyped_storage().nbytes() // x.itemsize).as_strided(
        x.shape, x.stride(), x.storage_offset()
    )
    return places.unique().numel() == x.numel()


class Pair:
    """A tensor on the CPU and one on the device that went through the same calls."""

    def __init__(self, cpu: torch.Tensor, device: torch.Tensor) -> None:
        self.cpu, self.device = cpu, device

    def check(self, done: list[str]) -> None:
        a, e = self.device, self.cpu
        assert (a.dtype, place(a)) == (e.dtype, place(e)), "\n".join(done)
        bound = TOLERANCE.get(e.dtype, 0)
        torch.testing.assert_close(
            a.cpu(), e, rtol=bound, atol=bound, equal_nan=True, msg=lambda text: f"{text}\n{chr(10).join(done)}"
        )


class Drawn:
    def __init__(self, seed: int, switches: bool) -> None:
        self.rng = random.Random(seed)
        self.switches = switches
        self.pairs: list[Pair] = []
        self.done: list[str] = []
        for _ in range(5):
            self.add(self.fresh(self.rng.choice(SHAPES), self.rng.choice(FLOATS + INTEGERS)))

    def fresh(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        count = math.prod(shape)
        numbers = torch.arange(count).mul(self.rng.randrange(1, 7)).add(self.rng.randrange(9)).remainder(11)
        return (numbers.double() / 7 - 0.6 if dtype.is_floating_point else numbers).to(dtype).reshape(shape)

    def add(self, cpu: torch.Tensor) -> Pair:
        self.done.append(f"new {cpu.dtype} {tuple(cpu.shape)}")
        self.pairs.append(Pair(cpu, cpu.to("pjrt")))
        return self.pairs[-1]

    def pick(self, holds: Callable[[torch.Tensor], bool] = lambda _: True) -> Pair:
        """Returns a recent pair for which `holds` is true, otherwise a new one."""
        found = [pair for pair in self.pairs[-12:] if holds(pair.cpu)]
        if found:
            return self.rng.choice(found)
        for _ in range(1000):
            cpu = self.fresh(self.rng.choice(SHAPES), self.rng.choice(FLOATS + INTEGERS))
            if holds(cpu):
                return self.add(cpu)
        raise AssertionError("nothing is so")

    def beside(self, x: Pair, dtype: torch.dtype | None = None) -> Pair:
        """Returns a pair that broadcasts to x."""

        def fits(y: torch.Tensor) -> bool:
            if y.dim() > x.cpu.dim() or (dtype or x.cpu.dtype) != y.dtype:
                return False
            shapes = zip(reversed(y.shape), reversed(x.cpu.shape), strict=False)
            return all(a in (1, b) for a, b in shapes)

        found = [pair for pair in self.pairs[-12:] if fits(pair.cpu)]
        return self.rng.choice(found) if found else self.add(self.fresh((), dtype or x.cpu.dtype))

    def call(self, name: str, function: Callable[..., Any], *operands: Pair) -> None:
        """Makes the call on both devices. Both must fail alike: the device's tensors at the latest when they are read.

        A tensor that a failed call writes to keeps its error and is no longer compared, because the CPU leaves it
        unchanged.
        """
        line = f"{name}({', '.join(f'{p.cpu.dtype} {tuple(p.cpu.shape)}/{p.cpu.stride()}' for p in operands)})"
        self.done.append(line)
        expected = error = None
        try:
            expected = function(*[p.cpu for p in operands])
        except (RuntimeError, IndexError, ValueError) as e:
            error = e
        if error is not None:
            versions = [p.device._version for p in operands]
            try:
                held = function(*[p.device for p in operands])  # otherwise nobody holds the result
                torch_pjrt.sync()
                torch.pjrt.synchronize()
                del held
            except (RuntimeError, IndexError, ValueError):
                written = [p for p, version in zip(operands, versions, strict=True) if p.device._version != version]
                lost = {p.cpu.untyped_storage().data_ptr() for p in written}
                self.pairs = [p for p in self.pairs if p.cpu.untyped_storage().data_ptr() not in lost]
                return
            raise AssertionError(f"only CPU eager says: {error}\n" + "\n".join(self.done))
        given = function(*[p.device for p in operands])
        if any(expected is p.cpu for p in operands):  # written in place
            return
        if isinstance(expected, torch.Tensor):
            self.pairs.append(Pair(expected, given))
        elif isinstance(expected, tuple):
            self.pairs += [Pair(e, g) for e, g in zip(expected, given, strict=True)]

    # --- kinds of calls -----------------------------------------------------------------------------------------------

    def view(self) -> None:
        x = self.pick()
        dims, rng = x.cpu.dim(), self.rng
        d = rng.randrange(dims) if dims else 0
        order = rng.sample(range(dims), dims)
        size = x.cpu.size(d) if dims else 1
        start, step = rng.randrange(max(1, size)), rng.choice((1, 1, 2))
        views: dict[str, Call] = {
            "permute": lambda t: t.permute(order),
            "slice": lambda t: t.narrow(d, min(start, t.size(d)), t.size(d) - min(start, t.size(d))),
            "expand": lambda t: t.unsqueeze(d).expand(*t.shape[:d], 3, *t.shape[d:]),
            "detach": lambda t: t.detach(),
        }
        if dims:
            views["step"] = lambda t: t[(slice(None),) * d + (slice(start, None, step),)]
            views["flat"] = lambda t: t.flatten()
        if dims and size:
            views["select"] = lambda t: t.select(d, start)
            views["unfold"] = lambda t: t.unfold(d, min(2, size), 1)
        if dims >= 2:
            views["diagonal"] = lambda t: t.diagonal(0, 0, 1)
            views["strided"] = lambda t: t.as_strided((2,), (1,)) if t.numel() > 2 else t.view_as(t)
        if dims == 4:
            views["channels last"] = lambda t: t.contiguous(memory_format=torch.channels_last)
        name = rng.choice(sorted(views))
        self.call(f"{name} {d} {order} {start} {step}", views[name], x)

    def pointwise(self) -> None:
        x = self.pick()
        calls: dict[str, Call] = {
            "abs": lambda t: t.long().abs(), "neg": lambda t: t.neg() if t.dtype != torch.uint8 else t + 1,
            "tame": tame,
            "remainder": lambda t: t.remainder(3), "fmod": lambda t: t.fmod(3), "relu": F.relu,
            "clamp": lambda t: t.clamp(-1, 2), "to float": lambda t: t.float(), "to bfloat16": lambda t: t.bfloat16(),
            "to half": lambda t: t.half(), "to double": lambda t: t.double(),
            "to long": lambda t: t.clamp(0, 90).long(),
            "to uint8": lambda t: t.clamp(0, 90).to(torch.uint8), "compare": lambda t: (t > 1).to(t.dtype),
            "where": lambda t: torch.where(t > 0, t, t.new_full((), 2)), "like": lambda t: torch.full_like(t, 3),
            "sqrt": lambda t: t.double().abs().sqrt(), "erf": lambda t: t.float().erf(), "exp": lambda t: tame(t).exp(),
            "nan_to_num": lambda t: t.nan_to_num(), "round": lambda t: (t.double() * 4).round(), "clone": torch.clone,
            "bitwise": lambda t: t if t.is_floating_point() else t ^ 5,
            "copysign": lambda t: t.float().copysign(-t.float()),
        }  # fmt: skip
        name = self.rng.choice(sorted(calls))
        self.call(name, calls[name], x)

    def binary(self) -> None:
        x = self.pick()
        y = self.beside(x)
        calls: dict[str, Callable[..., torch.Tensor]] = {
            "add": lambda a, b: tame(a + b), "mul": lambda a, b: tame(a * b), "sub": lambda a, b: tame(a - b),
            "maximum": torch.maximum, "hypot": lambda a, b: a.double().hypot(b.double()),
            "where": lambda a, b: torch.where(a > b, a, b), "eq": lambda a, b: (a == b).long(),
            "addcmul": lambda a, b: tame(torch.addcmul(a, b, b)),
            "lerp": lambda a, b: a.double().lerp(b.double(), 0.25),
            "stack": lambda a, b: torch.stack(torch.broadcast_tensors(a, b)), "rsub": lambda a, b: tame(1 - a - b),
            "alpha": lambda a, b: tame(torch.add(a, b, alpha=2)), "swapped": lambda a, b: tame(b - a),
        }  # fmt: skip
        name = self.rng.choice(sorted(calls))
        self.call(name, calls[name], x, y)

    def reduction(self) -> None:
        x = self.pick(lambda t: t.dim() > 0)
        d, keep = self.rng.randrange(x.cpu.dim()), self.rng.random() < 0.5
        calls: dict[str, Callable[..., Any]] = {
            "sum": lambda t: tame(t.sum(d, keep)), "mean": lambda t: t.double().mean(d, keep),
            "any": lambda t: t.any(d, keep),
            "amax": lambda t: t.amax(d, keep), "cumsum": lambda t: tame(t.cumsum(d)),
            "cummax": lambda t: t.cummax(d)[0],
            "sort": lambda t: tuple(t.long().sort(dim=d, stable=True)), "flip": lambda t: t.flip(d),
            "roll": lambda t: t.roll(1, d),
            "logsumexp": lambda t: t.double().logsumexp(d, keep), "softmax": lambda t: t.float().softmax(d),
            "prod": lambda t: tame(tame(t).prod(d, keep)), "topk": lambda t: t.topk(min(2, t.size(d)), d)[0],
            "var": lambda t: t.double().var(d, keepdim=keep, correction=0), "all": lambda t: t.all(),
            "argmax": lambda t: t.long().argmax(d),
            "cumprod": lambda t: tame(t).double().cumprod(d), "median": lambda t: (t.long() + 0).median(d, keep)[0],
            "logcumsumexp": lambda t: t.double().logcumsumexp(d), "unbind": lambda t: t.unbind(d),
            "tril": lambda t: t.tril(),
        }  # fmt: skip
        name = self.rng.choice(sorted(calls))
        self.call(f"{name} {d} {keep}", calls[name], x)

    def contraction(self) -> None:
        rng = self.rng
        if rng.random() < 0.4:
            x = self.pick(lambda t: t.dim() == 2 and t.is_floating_point())
            self.call("mm", lambda t: tame(t @ t.t()), x)
            return
        kind = rng.choice(("conv", "attention", "embedding", "bag", "linear"))
        dtype = rng.choice((torch.float32, torch.bfloat16, torch.float16))
        last = rng.random() < 0.5
        if kind == "conv":
            x = self.add(self.fresh((1, 3, 3, 2) if last else (1, 2, 3, 3), dtype))
            w = self.add(self.fresh((2, 2, 2, 2), dtype))
            self.call("conv", lambda t, k: tame(F.conv2d(t.permute(0, 3, 1, 2) if last else t, k)), x, w)
        elif kind == "attention":
            x = self.add(self.fresh((2, 2, 4, 3), torch.float32))
            self.call(
                f"attention {last}",
                lambda t: F.scaled_dot_product_attention(*[t.transpose(2, 3) if last else t] * 3),
                x,
            )
        elif kind == "linear":
            x = self.pick(lambda t: t.dim() == 3 and t.is_floating_point() and t.size(-1) > 0)
            self.call("linear", lambda t: tame(F.linear(t, torch.ones_like(t[0]))), x)
        else:
            table = self.add(self.fresh((6, 4) if last else (4, 6), torch.float32))
            index = self.add(torch.tensor([[0, 3], [2, 1]]))
            lookup = F.embedding if kind == "embedding" else F.embedding_bag
            self.call(f"{kind} {last}", lambda t, i: lookup(i, t if last else t.t()), table, index)

    def draw(self) -> None:
        """Calls a random op whose result doesn't depend on the draw."""
        x = self.pick(lambda t: t.dim() == 2 and t.numel() > 0)
        calls: dict[str, Call] = {
            "bernoulli": lambda t: torch.bernoulli((t > 1).float()),
            "normal": lambda t: torch.normal(tame(t).double().round(), 1e-9).round() + 0.0,
            "multinomial": lambda t: torch.multinomial(torch.eye(t.size(1), device=t.device).roll(1, 0).t(), 1),
            "randint": lambda t: torch.randint_like(t, 4, 5),
            "dropout": lambda t: F.dropout(t.float(), 1.0),
            "full": lambda t: torch.empty_like(t).fill_(2),
        }
        name = self.rng.choice(sorted(calls))
        self.call(name, calls[name], x)

    def write(self) -> None:
        x = self.pick(may_be_written)
        rng = self.rng
        whole = {
            "mul_": lambda t: t.mul_(2).remainder_(13), "add_": lambda t: t.add_(1).remainder_(13),
            "zero_": lambda t: t.zero_(),
            "fill_": lambda t: t.fill_(3), "clamp_": lambda t: t.clamp_(0, 5),
            "foreach": lambda t: torch._foreach_add_([t], 1),
            "set_item": lambda t: t.__setitem__(..., 2),
            "copy_": lambda t: t.copy_(t.flip(0)) if t.dim() else t.copy_(t + 1),
            "diagonal_": lambda t: t.diagonal().fill_(1) if t.dim() > 1 else t.zero_(),
            "foreach zero": lambda t: torch._foreach_zero_([t]),
            "index": lambda t: t.__setitem__(t > 1, 1) if t.dim() else t.zero_(),
            "masked_fill_": lambda t: t.masked_fill_(t > 2, 1),
        }  # fmt: skip
        if rng.random() < 0.6:
            name = rng.choice(sorted(whole))
            self.call(name, lambda t: whole[name](t), x)
            return
        y = self.beside(x)
        pairs = {
            "copy_": lambda a, b: a.copy_(b), "add_": lambda a, b: a.add_(b).remainder_(13),
            "sub_": lambda a, b: a.sub_(b).remainder_(13),
            "where_": lambda a, b: a.copy_(torch.where(a > b, a, b)),
            "foreach": lambda a, b: torch._foreach_copy_([a], [b.expand_as(a) + 0]),
        }  # fmt: skip
        name = rng.choice(sorted(pairs))
        self.call(name, lambda a, b: pairs[name](a, b), x, y)

    def indexed(self) -> None:
        """Reads and writes by index, with some indices out of range."""
        rng = self.rng
        x = self.pick(lambda t: t.dim() > 0 and t.numel() > 0 and may_be_written(t))
        n = x.cpu.size(0)
        is_wrong = rng.random() < 0.2
        places = [n + 3] if is_wrong else [rng.randrange(-n, n) for _ in range(3)]
        forward = [p % n for p in places] if not is_wrong else places
        distinct = [n + 3] if is_wrong else sorted({p % n for p in places})
        i, j, k = (self.add(torch.tensor(p)) for p in (places, forward, distinct))
        calls: dict[str, tuple[Callable[..., Any], Pair]] = {
            "get": (lambda t, p: t[p], i), "index_select": (lambda t, p: t.index_select(0, p), j),
            "take": (lambda t, p: t.take(p), i),
            "gather": (lambda t, p: t.flatten().gather(0, p), j) if x.cpu.numel() == n else (lambda t, p: t[p], i),
            "put": (lambda t, p: t.__setitem__(p, 2), k), "index_fill_": (lambda t, p: t.index_fill_(0, p, 3), k),
            "index_add_": (lambda t, p: t.index_add_(0, p, torch.ones_like(t[:1]).expand(p.numel(), *t.shape[1:])), j),
            "accumulate": (lambda t, p: t.index_put_((p,), torch.ones_like(t[0]), accumulate=True), j),
            "index_copy_": (lambda t, p: t.index_copy_(0, p, t[:1].clone().expand(p.numel(), *t.shape[1:])), k),
        }  # fmt: skip
        name = rng.choice(sorted(calls))
        function, places_of = calls[name]
        self.call(f"{name} {places}", function, x, places_of)

    def read(self) -> None:
        self.done.append("read")
        self.rng.choice(self.pairs[-12:]).check(self.done)

    def switch(self) -> None:
        if self.switches:
            policy = self.rng.choice(("auto", "first"))
            self.done.append(policy)
            _C.set_compile_policy(policy)

    def run(self, steps: int) -> None:
        kinds = [self.view] * 4 + [self.write] * 3 + [self.pointwise] * 2 + [self.binary] * 2
        kinds += [self.reduction, self.contraction, self.draw, self.indexed, self.read, self.switch]
        for _ in range(steps):
            self.rng.choice(kinds)()
        for pair in self.pairs:
            pair.check(self.done)


@pytest.mark.each_way
@pytest.mark.parametrize("seed", range(COUNT))
@pytest.mark.host_memory
def test_in_one_way(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Drawn(seed, switches=False).run(60)


@pytest.mark.parametrize("seed", range(COUNT, 2 * COUNT))
@pytest.mark.host_memory
def test_switched(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Drawn(seed, switches=True).run(60)
