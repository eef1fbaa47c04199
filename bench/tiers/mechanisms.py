"""A loop for each mechanism of device/services/mechanisms.h, with and without it, each in a process
of its own with a cold cache and one thread. Times are processor times, background compiles included, and memory is the
peak of the process beyond what it had before the first step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from tiers.loops import LOOPS, Step, training
from torch import Tensor, nn
from torch.nn import functional as F

from measure import Result

BENCH = Path(__file__).resolve().parent.parent


def classifier(width: int = 256) -> nn.Module:
    return nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, 10)).to("pjrt")


def evaluation() -> Step:
    """Counts right answers, and reads the count at the end."""
    net = classifier()
    x, y = torch.randn(1024, 256), torch.randint(0, 10, (1024,))

    @torch.no_grad()
    def step() -> float:
        right = torch.zeros((), device="pjrt")
        for _ in range(200):
            right += (net(x.to("pjrt")).argmax(1) == y.to("pjrt")).sum()
        return right.item()

    return step


def averaging() -> Step:
    """Trains beside a moving average of the parameters, which nobody reads."""
    net, average = classifier(4096), classifier(4096)
    x, y = torch.randn(128, 256).to("pjrt"), torch.randint(0, 10, (128,)).to("pjrt")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step() -> None:
        for _ in range(50):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
            with torch.no_grad():
                for mean, now in zip(average.parameters(), net.parameters(), strict=True):
                    mean.lerp_(now, 0.01)
        torch.pjrt.synchronize()

    return step


def cells() -> Step:
    """An LSTM cell that is called for each of 200 elements."""
    cell, head = nn.LSTMCell(32, 64).to("pjrt"), nn.Linear(64, 10).to("pjrt")
    x, y = torch.randn(200, 16, 32).to("pjrt"), torch.randint(0, 10, (16,)).to("pjrt")

    def loss() -> Tensor:
        state = None
        for element in x:
            state = cell(element, state)
        assert state is not None
        return F.cross_entropy(head(state[0]), y)

    return training(nn.ModuleList([cell, head]), loss)


# The mechanism, its loop, and how many steps.
ROWS = {
    "loop_iterations": (evaluation, 10),
    "steps_beside_optimizers": (averaging, 10),
    "eager_fast_path": (lambda: LOOPS["Newton's method"]("pjrt"), 3000),
    "loop_rerolling": (cells, 1000),
}


def peak(what: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return int(line.split()[1]) / 1024


def run(name: str) -> None:
    """Prints the processor time in seconds, and the memory in MiB."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    make, steps = ROWS[name]
    step = make()
    (torch.ones(2).to("pjrt") + 1).cpu()
    before, start = peak("VmRSS"), time.process_time()
    for _ in range(steps):
        step()
    print(json.dumps([time.process_time() - start, peak("VmHWM") - before]))


def measured(name: str, without: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "TORCH_PJRT_CACHE": "1", "TORCH_PJRT_CACHE_DIR": cache,
            "TORCH_PJRT_COMPILE": "auto", "TORCH_PJRT_WITHOUT": without,
        }  # fmt: skip
        command = [sys.executable, "-W", "ignore", "-m", "tiers.mechanisms", name]
        done = subprocess.run(command, cwd=BENCH, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} without '{without}': {done.stderr[-2000:]}")
    seconds, memory = json.loads(done.stdout.splitlines()[-1])
    return seconds, memory


def measure() -> list[Result]:
    results = []
    for name in ROWS:
        (ours, memory), (other, more) = measured(name, ""), measured(name, name)
        results.append(Result(f"{name}, time", ours, other, ours / other, None, against="without it"))
        results.append(Result(f"{name}, MiB", memory, more, memory / more, None, unit="", against="without it"))
    return results


if __name__ == "__main__":
    run(*sys.argv[1:])
