"""Networks of convolutions, batch 4, compiled with the convolution kernel and without, beside Inductor and eager.

All four are timed in turns, so that a busy machine meets all of them: each ratio is the median of the rounds' ratios.
TORCH_PJRT_BENCH_MODELS names some of the networks, TORCH_PJRT_BENCH_ROUNDS says how many rounds there are.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable

import torch
from tqdm import tqdm

from measure import Result, seconds
from models.catalogue import Case, case
from torch_pjrt.kernels import convolution

MODELS = ("squeezenet", "mnasnet", "resnet18", "resnet50")
KERNEL, PLAIN, INDUCTOR, EAGER = "with the kernel", "without", "Inductor", "eager"

Run = Callable[[], object]


def inference(made: Case, compiled: Callable[..., object]) -> Run:
    def run() -> None:
        with torch.no_grad():
            Case.output(compiled, made.inputs)  # type: ignore[arg-type]

    return run


def step(made: Case, compiled: Callable[..., object]) -> Run:
    optimizer = torch.optim.SGD(made.model.parameters(), lr=1e-3, momentum=0.9)

    def run() -> None:
        optimizer.zero_grad()
        made.loss(Case.output(compiled, made.inputs), made.target).backward()  # type: ignore[arg-type]
        optimizer.step()

    return run


def runs(name: str, of: Callable[[Case, Callable[..., object]], Run], *, train: bool) -> dict[str, Run]:
    """Each has a model of its own, and has run."""
    found: dict[str, Run] = {}
    for way, backend in ((EAGER, None), (INDUCTOR, "inductor"), (PLAIN, "pjrt"), (KERNEL, "pjrt")):
        torch.manual_seed(0)
        torch._dynamo.reset()
        made = case(name, batch=4)
        made.model.train(train)
        kernels = convolution.register(channels_last=not train) if way == KERNEL else []
        compiled = torch.compile(made.model, backend=backend, dynamic=False) if backend else made.model
        found[way] = of(made, compiled)
        found[way]()
        for kernel in kernels:
            kernel.remove()
    return found


def of_model(name: str, rounds: int, *, train: bool) -> list[Result]:
    times: dict[str, list[float]] = {}
    ways = runs(name, step if train else inference, train=train)
    for count in range(rounds + 1):
        for way, run in ways.items():
            spent = seconds(run, 1)
            if count:  # the first is to warm up
                times.setdefault(way, []).append(spent)
    what = f"{name}, {'training step' if train else 'inference'}"
    pairs = ((KERNEL, PLAIN), (KERNEL, INDUCTOR), (PLAIN, INDUCTOR), (KERNEL, EAGER), (PLAIN, EAGER))
    targets = {(KERNEL, EAGER if train else INDUCTOR): 1.0}
    return [
        Result(
            f"{what}, {ours}",
            statistics.median(times[ours]),
            statistics.median(times[reference]),
            statistics.median(a / b for a, b in zip(times[ours], times[reference], strict=True)),
            targets.get((ours, reference)),
            against=reference,
            ratio_of_best=min(times[ours]) / min(times[reference]),
        )
        for ours, reference in pairs
    ]


def measure() -> list[Result]:
    chosen = os.environ.get("TORCH_PJRT_BENCH_MODELS", ",".join(MODELS)).split(",")
    rounds = int(os.environ.get("TORCH_PJRT_BENCH_ROUNDS", "10"))
    every = [(name, train) for name in chosen for train in (False, True)]
    return [result for name, train in tqdm(every) for result in of_model(name, rounds, train=train)]
