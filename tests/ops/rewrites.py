"""Compares compositions of ops as one program with the same ops one by one, bit for bit.
 It runs as a job (tests/ops/test_rewrites.py): XLA without fused multiply-adds, so that any difference is a rewrite.
A number that was seen to vary is an input of later programs, in which XLA sees no constant. Therefore each program
has a size of its own, and so has each op that runs alone.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

import torch_pjrt

Unary = Callable[[Tensor], Tensor]
Binary = Callable[[Tensor, Tensor], Tensor]
# By name: a function that computes a value in a program, and one that computes it in steps.
Results = dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]]

# Transcendental functions differ by a unit in the last place between vectors and single elements.
TOLERANCE = 8


def with_number(c: float) -> dict[str, Unary]:
    return {
        f"x + {c}": lambda x: x + c,
        f"x - {c}": lambda x: x - c,
        f"{c} - x": lambda x: c - x,
        f"x * {c}": lambda x: x * c,
        f"x / {c}": lambda x: x / c,
        f"{c} / x": lambda x: c / x,
        f"x ** {c}": lambda x: x**c,
        f"clamp(min={c})": lambda x: x.clamp(min=c),
        f"clamp(max={c})": lambda x: x.clamp(max=c),
        f"x < {c}": lambda x: (x < c).to(x.dtype),
        f"x >= {c}": lambda x: (x >= c).to(x.dtype),
        f"x == {c}": lambda x: (x == c).to(x.dtype),
        f"where(x > {c})": lambda x: torch.where(x > c, x, c),
    }


def named(name: str) -> Unary:
    function = getattr(torch, name, None) or getattr(functional, name)
    return lambda x: function(x).to(x.dtype)


# 0x1.8p23 rounds float32 to whole numbers.
NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -0.5, 3.0, 0.1, 127.5, 12582912.0, torch.inf, -torch.inf, torch.nan)
FUNCTIONS = """
    exp log sqrt rsqrt abs neg sign floor ceil round trunc sin cos tan tanh sigmoid reciprocal log1p expm1
    exp2 log2 log10 asin acos atan sinh cosh asinh acosh atanh erf erfc square relu isnan isinf isfinite logit
    frac sgn signbit deg2rad nan_to_num erfinv lgamma digamma logical_not sinc relu6 hardtanh gelu silu
    softplus elu celu selu mish hardswish hardsigmoid logsigmoid softsign tanhshrink hardshrink softshrink
    leaky_relu
"""
UNARY: dict[str, Unary] = {name: f for c in NUMBERS for name, f in with_number(c).items()}
UNARY |= {name: named(name) for name in FUNCTIONS.split()}
UNARY |= {"to float64": lambda x: x.double().to(x.dtype), "to float16": lambda x: x.half().to(x.dtype)}
BINARY: dict[str, Binary] = {
    "a + b": torch.add,
    "a - b": torch.sub,
    "a * b": torch.mul,
    "a / b": torch.div,
    "a ** b": torch.pow,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "a < b": lambda a, b: (a < b).to(a.dtype),
    "a <= b": lambda a, b: (a <= b).to(a.dtype),
    "a == b": lambda a, b: (a == b).to(a.dtype),
    "where": lambda a, b: torch.where(a > 0, a, b),
    "mask": lambda a, b: (a > 0) * b,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "copysign": torch.copysign,
    "xlogy": torch.xlogy,
    "logaddexp": torch.logaddexp,
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "addcmul": lambda a, b: torch.addcmul(a, a, b),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b),
}
# Both operands of a binary op take these.
OPERANDS = """
    x + 0.0; x * 3.0; x / 3.0; x + 1.0; x * 0.0; x * -1.0; x * 2.0; exp; log; sqrt; rsqrt; abs; neg; x ** 3.0; x ** 0.5;
    x ** 2.0; x ** 0.1; 1.0 / x; tanh; sigmoid; floor; x >= 0.0
""".replace("\n", "").split(";")
OPERANDS = [name.strip() for name in OPERANDS]


def special(dtype: torch.dtype) -> Tensor:
    limits = torch.finfo(dtype)
    most, least = limits.max, limits.tiny * 4
    values = [0.0, 1.0, 0.5, 0.3, 2.5, 3.0, 7.0, 0.1, 17.3, 88.5, torch.inf, most, least, most / 3, 1e-3, 1e-4, 1234.5]
    return torch.tensor([*values, *(-x for x in values), torch.nan], dtype=dtype)


def resized(x: Tensor, size: int) -> Tensor:
    return x.repeat(-(-size // x.numel()))[:size].contiguous()


class Sweep:
    def __init__(self, dtype: torch.dtype) -> None:
        self.x = special(dtype)
        grid = torch.meshgrid(self.x, self.x, indexing="ij")
        self.a, self.b = (t.reshape(-1).contiguous() for t in grid)
        self.tolerance = TOLERANCE * torch.finfo(dtype).eps
        self.sizes: dict[int, int] = {}  # by the ops that run alone
        self.programs = self.compared = 0
        self.wrong: list[str] = []

    def alone(self, op: Callable[..., Tensor], *operands: Tensor) -> Tensor:
        size = self.sizes.setdefault(id(op), self.a.numel() + len(self.sizes))
        with torch_pjrt.eager_mode():
            return op(*(resized(t, size).to("pjrt") for t in operands))[: operands[0].numel()].cpu()

    def both(self, op: Binary, left: Tensor, f: Unary, right: Tensor) -> Tensor:
        return self.alone(op, left, self.alone(f, right))

    def compare(self, label: str, operands: tuple[Tensor, ...], results: Callable[..., Results]) -> None:
        """Compares one program (the lazy device would start recorded calls in parts) of a size that none had before."""
        self.programs += 1

        def program(*tensors: Tensor) -> list[Tensor]:
            return [value() for value, _ in results(*tensors).values()]

        given = [resized(t, 3000 + self.programs).to("pjrt") for t in operands]
        values = torch_pjrt.jit(program, given)(*given)
        for (name, (_, in_steps)), value in zip(results(*operands).items(), values, strict=True):
            wanted = in_steps()
            got = value.cpu()[: wanted.numel()]
            close = torch.isclose(got, wanted, rtol=self.tolerance, atol=0) & (got.signbit() == wanted.signbit())
            close |= got.isnan() & wanted.isnan()
            self.compared += 1
            for i in (~close).nonzero().flatten().tolist()[:1]:
                at = ", ".join(str(t[i].item()) for t in operands)
                self.wrong.append(f"{label.format(name)} of ({at}): {got[i].item()}, in steps {wanted[i].item()}")

    def after(self, first: list[str], second: str = "") -> None:
        """Compares each op, or one, applied to the result of a row of ops."""
        steps = self.x
        for name in first:
            steps = self.alone(UNARY[name], steps)

        def results(x: Tensor) -> Results:
            for name in first:
                x = UNARY[name](x)
            chosen = {second: UNARY[second]} if second else UNARY
            return {name: (partial(op, x), partial(self.alone, op, steps)) for name, op in chosen.items()}

        self.compare(" -> ".join([*first, "{}"]), (self.x,), results)

    def after_binary(self, name: str) -> None:
        """Compares each op applied to the result of a binary one, and binary ones of that and an operand."""
        op = BINARY[name]
        steps = self.alone(op, self.a, self.b)

        def results(a: Tensor, b: Tensor) -> Results:
            x = op(a, b)
            table: Results = {other: (partial(f, x), partial(self.alone, f, steps)) for other, f in UNARY.items()}
            for other, g in BINARY.items():
                table[f"{other} with a"] = partial(g, x, a), partial(self.alone, g, steps, self.a)
                table[f"{other} with b before"] = partial(g, b, x), partial(self.alone, g, self.b, steps)
            return table

        self.compare(name + " -> {}", (self.a, self.b), results)

    def operands(self, name: str, left: str) -> None:
        """Compares a binary op of f(a) and each g(b), and of f(a) and each g(a)."""
        op = BINARY[name]
        steps = self.alone(UNARY[left], self.a)

        def results(a: Tensor, b: Tensor) -> Results:
            x = UNARY[left](a)
            table: Results = {}
            for right in OPERANDS:
                f = UNARY[right]
                for which, y, t in (("a", a, self.a), ("b", b, self.b)):
                    table[f"{right} of {which}"] = (
                        lambda f=f, y=y: op(x, f(y)),
                        partial(self.both, op, steps, f, t),
                    )
            return table

        self.compare(f"{name} of {left} and {{}}", (self.a, self.b), results)


def main(dtype: str, share: float, first: str = "", second: str = "") -> None:
    """Tries `share` of all compositions, always the same ones, or one of two ops, and prints those that differ."""
    sweep, chosen = Sweep(getattr(torch, dtype)), random.Random(0)
    names = list(UNARY)
    if first:
        sweep.after([first], second)
        print(f"compared {sweep.compared}", *sweep.wrong, sep="\n")
        return
    for name in chosen.sample(names, max(1, round(len(names) * share))):
        sweep.after([name])
    for name in chosen.sample(list(BINARY), max(1, round(len(BINARY) * share))):
        sweep.after_binary(name)
    both = [(name, left) for name in BINARY for left in OPERANDS]
    for name, left in chosen.sample(both, max(1, round(len(both) * share))):
        sweep.operands(name, left)
    for _ in range(max(1, round(100 * share))):
        sweep.after(chosen.sample(names, 2))
    print(f"compared {sweep.compared}", *sweep.wrong, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), *sys.argv[3:])
