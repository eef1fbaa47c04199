"""Costs of compiling graphs, and of recording and interpreting steps, against the predictions of
src/engine/tier/cost.cpp.

The graphs are those of every network of models/ at its small size, forward and training, of the loops of loops.py, and
single graphs below. Times are of the processor, because other work affects wall time. The time of a step, including
recording, is the minimum of several; compile time is the sum over all graphs.

Only the ratios between predictions are judged, so a machine that is slower in everything, or whose caches others use,
gives the same result. The common factor of all measurements is reported, and the deviations from it are judged.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from tiers.loops import LOOPS, Step, training
from torch import nn
from torch.nn import functional as F

import torch_pjrt
from measure import Result
from models.catalogue import CATALOGUE, Case, case
from models.resnet import resnet18
from torch_pjrt import _C

STEPS = 6  # the first two include one-time work
MEDIAN, NINE_OF_TEN = 1.3, 2.0


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


def logged(step: Step) -> tuple[float, list[dict]]:
    """Returns processor seconds of one step, and the core's log of its graphs."""
    torch_pjrt.sync()
    torch.pjrt.synchronize()
    start = time.process_time()
    step()
    torch_pjrt.sync()
    spent = time.process_time() - start
    return spent, [entry for entry in _C.take_log() if "predicted" in entry]


def predicted(entries: list[dict], *parts: str) -> float:
    return sum(entry["predicted"][part] for entry in entries for part in parts) * 1e-9


def step_interpreted(make: Callable[[], Step]) -> tuple[float, float]:
    _C.set_compile_policy("never")
    step = make()
    steps = [logged(step) for _ in range(STEPS)][2:]
    spent, entries = min(steps, key=lambda one: one[0])
    return predicted(entries, "record", "calls"), spent


def compiles(make: Callable[[], Step]) -> tuple[float, float]:
    """Returns the predicted and the measured compile time of all graphs of three steps."""
    _C.set_compile_policy("first")
    step = make()
    made = [entry for _ in range(3) for entry in logged(step)[1] if "compile_cpu_seconds" in entry]
    return predicted(made, "compile"), sum(entry["compile_cpu_seconds"] for entry in made)


def summary(what: str, factors: list[float], common: float) -> list[Result]:
    """Returns by which factor predictions are off, in either direction: for the median, and the 90th percentile."""
    off = sorted(max(f / common, common / f) for f in factors)
    of_ten = off[min(len(off) - 1, int(0.9 * len(off)))]
    return [
        Result(f"{what}: {which} of {len(off)}", value, target, value, target, unit="times off", against="allowed")
        for which, value, target in (
            ("the median", statistics.median(off), MEDIAN),
            ("nine of ten", of_ten, NINE_OF_TEN),
        )
    ]


def measure() -> list[Result]:
    results: list[Result] = []
    factors: dict[str, list[float]] = {"compile": [], "an interpreted step": []}
    before = os.environ.get("TORCH_PJRT_COMPILE", "auto")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the predictions are for one processor
    _C.start_log()
    try:
        for name, make in all_of_them():
            for what, measured in (("an interpreted step", step_interpreted), ("compile", compiles)):
                torch.manual_seed(0)
                said, took = measured(make)
                gc.collect()
                if not took:  # an earlier graph compiled the same programs
                    continue
                factors[what].append(said / took)
                results.append(Result(f"{name}: {what}", said, took, said / took, None, against="measured"))
    finally:
        _C.stop_log()
        _C.set_compile_policy(before)
        torch.set_num_threads(threads)
    common = statistics.median(factor for of_one in factors.values() for factor in of_one)
    slower = 1 / common
    results.append(
        Result("this machine, now, beside the table's", slower, 1, slower, None, unit="times as slow", against="table")
    )
    for what, off in factors.items():
        results += summary(what, off, common)
    return results
