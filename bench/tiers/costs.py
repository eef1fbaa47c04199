"""Measures the prices by which interpreted graphs buy their compiles (Note [Tiers], src/engine/tier/policy.h),
reports how far predicted compiles are off, and writes them to bench/out/prices_<instruction set>.inc.

Chains of small, large and many tensors give the prices of calls, bytes and tensors: each runs interpreted and as a
program. Prices of a compile are fitted to the compiles of every network of models/ at its small size, forward and
training, of the loops of loops.py, and of single graphs below. Times are of the processor, because other work affects
wall time.
"""

from __future__ import annotations

import functools
import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from tiers.loops import LOOPS, Step, training
from torch import nn
from torch.nn import functional as F

import torch_pjrt
from measure import Result
from models.catalogue import CATALOGUE, Case, case
from models.resnet import resnet18
from torch_pjrt import _C

MEDIAN, NINE_OF_TEN = 1.5, 3.0


def synced(graph: Callable[[], list[torch.Tensor]]) -> Step:
    return lambda: torch_pjrt.sync(graph())


def trained(net: nn.Module, *shape: int) -> Step:
    """Returns a step of forward and backward that leaves gradients pending."""
    net, x = net.to("pjrt"), torch.rand(shape).to("pjrt")

    def gradients() -> list[torch.Tensor]:
        result = net(x)
        loss = (result[0] if isinstance(result, tuple) else result).square().mean()
        return list(torch.autograd.grad(loss, [*net.parameters()]))

    return synced(gradients)


def adam(count: int, size: int) -> Step:
    values, gradients, first, second = ([torch.rand(size).to("pjrt") for _ in range(count)] for _ in range(4))

    def step() -> list[torch.Tensor]:
        m = torch._foreach_lerp(first, gradients, 0.1)
        v = torch._foreach_addcmul(torch._foreach_mul(second, 0.999), gradients, gradients, 0.001)
        root = torch._foreach_add(torch._foreach_sqrt(v), 1e-8)
        return [*torch._foreach_addcdiv(values, m, root, -0.001), *m, *v]

    return synced(step)


def on(shape: tuple[int, ...], function: Callable[[torch.Tensor], torch.Tensor]) -> Step:
    x = torch.rand(shape).to("pjrt")
    return synced(lambda: [function(x)])


def chained(times: int, function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def run(x: torch.Tensor) -> torch.Tensor:
        for i in range(times):
            x = function(x) + i % 7  # prevents a loop with a period
        return x

    return run


def graphs() -> dict[str, Callable[[], Step]]:
    mlp = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10))
    convolutions = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU()
    )
    attention = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)
    return {
        "one addition": lambda: on((100,), lambda x: x + 1),
        "notebook": lambda: on((1000, 20), lambda x: (x.softmax(1) - x.std(0)).sort(1)[0][:3]),
        "elementwise": lambda: on((200, 200), chained(10, torch.sin)),
        "elementwise, large": lambda: on((4000, 1000), chained(5, torch.tanh)),
        "products": lambda: on((300, 300), chained(8, lambda x: x @ x)),
        "products, large": lambda: on((700, 700), chained(2, lambda x: x @ x)),
        "sorts": lambda: on((500, 100), lambda x: x.sort(0)[0].cumsum(1).topk(5)[0]),
        "MLP": lambda: trained(mlp, 32, 64),
        "convolutions": lambda: trained(convolutions, 8, 3, 64, 64),
        "LSTM": lambda: trained(nn.LSTM(32, 64, batch_first=True), 8, 12, 32),
        "transformer": lambda: trained(attention, 8, 32, 64),
        "Adam": lambda: adam(20, 10_000),
        "ResNet-18": lambda: trained(resnet18(), 4, 3, 96, 96),
        "cross entropy": lambda: on((64, 500), lambda x: F.cross_entropy(x, torch.arange(64, device=x.device))),
    }


def forward(name: str) -> Step:
    made = case(name, small=True)
    net, inputs = made.model.to("pjrt").eval(), tuple(t.to("pjrt") for t in made.inputs)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return Case.output(net, inputs).cpu()

    return step


def learning(name: str) -> Step:
    made = case(name, small=True)
    net, inputs = made.model.to("pjrt").train(), tuple(t.to("pjrt") for t in made.inputs)
    target = made.target.to("pjrt")
    return training(net, lambda: made.loss(Case.output(net, inputs), target))


def all_of_them() -> Iterator[tuple[str, Callable[[], Step]]]:
    yield from graphs().items()
    for name, make in LOOPS.items():
        yield name, lambda make=make: make("pjrt")
    for name in CATALOGUE:
        yield f"{name}, forward", lambda name=name: forward(name)
        yield f"{name}, training", lambda name=name: learning(name)


def best(run: Callable[[], object], *, times: int = 60) -> float:
    """Returns the least processor time of a run, in ns."""
    taken = []
    for _ in range(times):
        start = time.process_time_ns()
        run()
        torch.pjrt.synchronize()
        taken.append(time.process_time_ns() - start)
    return min(taken[2:])


def saved(make: Callable[[], Step]) -> float:
    """Returns the ns by which a program's run is faster than an interpreted one."""
    times = []
    for policy in ("never", "first"):
        _C.set_compile_policy(policy)
        times.append(best(make()))
    return times[0] - times[1]


def alternating(x: torch.Tensor, times: int = 100) -> torch.Tensor:
    for i in range(times):
        x = (x + 1.5, x * 0.5, x.neg(), x.relu())[i * i % 7 % 4]  # prevents a loop with a period
    return x


def joined(count: int) -> Step:
    all_of_them = [torch.rand(8).to("pjrt") for _ in range(count + 1)]
    return synced(lambda: [functools.reduce(torch.maximum, all_of_them)])


def added(count: int) -> Step:
    lists = [[torch.rand(4).to("pjrt") for _ in range(count)] for _ in range(2)]
    return synced(lambda: [*torch._foreach_add(*lists)])


def rents() -> dict[str, float]:
    """Returns the prices of interpreted runs, and of a program's run."""
    large = 1 << 20
    few, many = (saved(lambda n=n: on((8,), lambda x: alternating(x, n))) for n in (10, 100))
    call = (many - few) / 90
    byte = (saved(lambda: on((large,), alternating)) - many) / 100 / (2 * 4 * large)
    argument = max(0.0, call - (saved(lambda: joined(101)) - saved(lambda: joined(1))) / 100)
    tensor = (saved(lambda: added(101)) - saved(lambda: added(1))) / 100 + 3 * argument  # two operands and a result
    return {
        "call": call, "tensor": max(0.0, tensor), "byte": byte,
        "launch": max(0.0, 10 * call - 2 * argument - few), "argument": argument,
    }  # fmt: skip


def compiles(make: Callable[[], Step]) -> tuple[list[float], float]:
    """Returns how many graphs, distinct ops and repeated ops three steps have, and the ns that XLA takes for them."""
    _C.set_compile_policy("first")
    step = make()
    _C.take_log()
    for _ in range(3):
        step()
        torch_pjrt.sync()
    made = [entry for entry in _C.take_log() if "compile_cpu_seconds" in entry and "work" in entry]
    work = [entry["work"] for entry in made]
    counts = [float(len(made)), sum(w["ops"] for w in work), sum(w["repeated"] for w in work)]
    return counts, 1e9 * sum(entry["compile_cpu_seconds"] for entry in made)


def fitted(rows: list[tuple[list[float], float]]) -> list[float]:
    """Returns positive prices of the counts with the least squares of logarithmic errors."""
    counts = torch.tensor([row for row, _ in rows], dtype=torch.float64)
    taken = torch.tensor([ns for _, ns in rows], dtype=torch.float64)
    prices = torch.full((counts.shape[1],), 15.0, dtype=torch.float64, requires_grad=True)  # logarithms
    fit = torch.optim.LBFGS([prices], max_iter=200, line_search_fn="strong_wolfe")

    def error() -> torch.Tensor:
        fit.zero_grad()
        off = ((counts @ prices.exp()).log() - taken.log()).square().mean()
        off.backward()
        return off

    fit.step(error)
    return prices.detach().exp().tolist()


def summary(off: list[float]) -> list[Result]:
    """Returns by which factor compiles are off, in either direction: for the median, and the 90th percentile."""
    off = sorted(max(f, 1 / f) for f in off)
    of_ten = off[min(len(off) - 1, int(0.9 * len(off)))]
    return [
        Result(f"compile: {which} of {len(off)}", value, target, value, target, unit="times off", against="allowed")
        for which, value, target in (
            ("the median", statistics.median(off), MEDIAN),
            ("nine of ten", of_ten, NINE_OF_TEN),
        )
    ]


def measure() -> list[Result]:
    results: list[Result] = []
    rows: dict[str, tuple[list[float], float]] = {}
    before = os.environ.get("TORCH_PJRT_COMPILE", "auto")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the prices are for one processor
    prices = rents()
    _C.start_log()
    try:
        for name, make in all_of_them():
            torch.manual_seed(0)
            counts, took = compiles(make)
            gc.collect()
            if took:  # otherwise an earlier graph compiled the same programs
                rows[name] = counts, took
    finally:
        _C.stop_log()
        _C.set_compile_policy(before)
        torch.set_num_threads(threads)
    of_compile = fitted([*rows.values()])
    prices |= zip(("graph", "op", "repeated_op"), of_compile, strict=True)
    prices |= {"copy": 10_000, "copied_byte": 1}  # PCIe, not measured here
    text = "".join(f"    .{name} = {price:.4g},\n" for name, price in prices.items())
    sets = torch.backends.cpu.get_cpu_capability().lower()
    (Path(__file__).parents[1] / "out" / f"prices_{sets}.inc").write_text(text)
    factors = []
    for name, (counts, took) in rows.items():
        said = sum(count * price for count, price in zip(counts, of_compile, strict=True))
        factors.append(said / took)
        results.append(Result(f"{name}: compile", said * 1e-9, took * 1e-9, said / took, None, against="measured"))
    results += [Result(f"price: {name}", price, 1, price, None, unit="ns") for name, price in prices.items()]
    return results + summary(factors)
