"""Programs that are interrupted by Ctrl-C while they wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

# Work for some seconds on any machine: as many runs of one program as necessary, each so long that the device accepts
# them all (32 at most).
BEGIN = """
import math, os, signal, sys, time, torch, torch_pjrt

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored

def run(x):
    for _ in range(4):
        x = x @ x / 1500
    torch_pjrt.sync(x)
    return x

def work(seconds):
    x = torch.ones(1500, 1500, device="pjrt")
    run(x).cpu()
    start = time.time()
    run(x).cpu()
    for _ in range(math.ceil(seconds / (time.time() - start))):
        x = run(x)
    return x

def interrupted(wait):
    print("waiting", flush=True)
    try:
        wait()
    except KeyboardInterrupt:
        print(time.time(), flush=True)
    else:
        sys.exit("it was not interrupted")
"""


def seconds_to_interrupts(program: str, count: int = 1, before: float = 0.2, **environment: str) -> list[float]:
    """Returns seconds from each signal to the line that caught it. `before`: seconds from "waiting" to the signal."""
    command = [sys.executable, "-c", BEGIN + textwrap.dedent(program)]
    took = []
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TORCH_PJRT_COMPILE_LOG_SECONDS": "0"} | environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(count):
            assert process.stdout.readline() == "waiting\n", process.stderr.read()
            time.sleep(before)
            sent = time.time()
            process.send_signal(signal.SIGINT)
            took.append(float(process.stdout.readline()) - sent)
        rest, error = process.stdout.read(), process.stderr.read()
    assert process.returncode == 0, error[-3000:]
    assert rest == "usable\n"
    assert error == "", error
    return took
