"""Memory: the peak of a training step, against eager and Inductor, and the growth over many steps and calls.

Each number is from a process of its own: resident memory, as the system counts it, including libraries and memory that
compilation leaves with the allocator.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from measure import Result

STEPS = 10_000
BATCH = 8
COMPILED, BACKENDS = ("resnet18", "bert", "gpt2"), ("compile_step", "compile:pjrt", "compile:inductor")
NOISE = 4  # MiB of variation of the allocator and the interpreter


def resident(field: str = "VmRSS") -> float:
    """Returns resident memory in MiB; "VmHWM" is the peak since reset_peak()."""
    return int(re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024  # type: ignore[index]


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def step_of(name: str, backend: str) -> Callable[[], object]:
    """Returns a training step. backend: "eager", "pjrt" (the device), "compile_step" (there, in one program),
    "compile:NAME" (torch.compile on the CPU)."""
    import torch

    from models.catalogue import Case, case

    torch.manual_seed(0)
    device = "pjrt" if backend in ("pjrt", "compile_step") else "cpu"
    made = case(name, batch=BATCH)
    model, inputs, target = made.model.train().to(device), [x.to(device) for x in made.inputs], made.target.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    forward = torch.compile(model, backend=backend.split(":")[1]) if ":" in backend else model

    def step() -> None:
        optimizer.zero_grad()
        made.loss(Case.output(forward, inputs), target).backward()  # type: ignore[arg-type]
        optimizer.step()

    if device == "cpu":
        return step
    import torch_pjrt

    run = torch_pjrt.compile_step(step) if backend == "compile_step" else step

    def complete() -> None:
        run()
        torch.pjrt.synchronize()

    return complete


def peak(name: str, backend: str) -> float:
    step = step_of(name, backend)
    for _ in range(4):
        step()
    reset_peak()
    for _ in range(2):
        step()
    return resident("VmHWM")


def growth(work: Callable[[], object]) -> float:
    for _ in range(STEPS // 4):
        work()
    before = resident()
    for _ in range(STEPS):
        work()
    return resident() - before


def growth_of_digits() -> float:
    import torch

    from examples.digits import DigitNet, train_step

    model = DigitNet().to("pjrt")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images, labels = torch.rand(64, 1, 8, 8), torch.randint(0, 10, (64,))
    return growth(lambda: train_step(model, optimizer, images.to("pjrt"), labels.to("pjrt")).item())


def growth_of_calls() -> float:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    fast = torch.compile(model, backend="pjrt")

    def call() -> None:
        fast(torch.rand(32, 64)).sum().backward()

    return growth(call)


def process(expression: str) -> float:
    """Evaluates the expression in a process of its own."""
    here = Path(__file__).resolve().parent
    command = f"import sys; sys.path[:0] = {[str(here), *sys.path]!r}; from memory import *; print({expression})"
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", command], env=os.environ, stdout=subprocess.PIPE, text=True, check=True
    )
    return float(ran.stdout.split()[-1])


def measure() -> list[Result]:
    from tqdm import tqdm

    questions = {
        "pjrt50": "peak('resnet50', 'pjrt')",
        "eager50": "peak('resnet50', 'eager')",
        **{f"{backend} {name}": f"peak('{name}', '{backend}')" for name in COMPILED for backend in BACKENDS},
        "digits": "growth_of_digits()",
        "calls": "growth_of_calls()",
    }
    answers = {name: process(question) for name, question in tqdm(questions.items(), unit="process")}

    def line(name: str, ours: str, reference: str, target: float, against: str) -> Result:
        a, b = answers[ours], answers[reference]
        return Result(name, round(a), round(b), a / b, target, unit="MiB", against=against)

    def grown(name: str, key: str) -> Result:
        return Result(name, round(answers[key], 1), NOISE, answers[key], NOISE, unit="MiB more", against="allowed")

    return [
        line(f"ResNet-50, batch {BATCH}, training step on the device: peak", "pjrt50", "eager50", 1.2, "eager CPU"),
        *(
            line(f"{name}, batch {BATCH}, step by {way}: peak", f"{way} {name}", f"{inductor} {name}", 1.05, "Inductor")
            for name in COMPILED
            for *ways, inductor in [BACKENDS]
            for way in ways
        ),
        grown(f"{STEPS} steps of the digits: growth", "digits"),
        grown(f"{STEPS} compiled forwards and backwards: growth", "calls"),
    ]
