"""A process ends as it would, while graphs are compiled in the background."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

THREE = """
import torch, torch_pjrt
x = torch.ones(600, 600).to("pjrt")
for _ in range(8):
    for n in (4, 5, 6):
        y = x
        for i in range(n):
            y = torch.sin(y * 0.9).cumsum(0) @ x
        y.sum().item()
print("over", torch_pjrt.metrics()["graphs_interpreted"], flush=True)
"""


ENDING = """
import ctypes, signal, sys, os, threading, time, torch
libc = ctypes.CDLL(None)
def g(x, n):
    for i in range(n):
        x = torch.softmax(x, -1)
        for _ in range(8): x = (x * 1.01 + i).abs()
    return x
x = torch.ones(900, 900).to("pjrt")
libc.on_exit(libc.sleep, None)  # sleeps as many seconds as the status says
for k in (4, 5):
    for _ in range(8): g(x, k).sum().item()  # its compile begins
"""
ENDS = {
    "sys.exit": ("sys.exit(1)", 1),
    "an exception": ("raise SystemError('meant')", 1),
    "os._exit": ("os._exit(3)", 3),
    "a signal": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -15),
    "with a daemon that compiles": (
        "def work():\n    for k in range(6, 99): [g(x, k).sum().item() for _ in range(8)]\n"
        "threading.Thread(target=work, daemon=True).start(); time.sleep(0.2); sys.exit(2)",
        2,
    ),
    "with a daemon": ("threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); sys.exit(2)", 2),
    "by itself": ("", 0),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.sampled(2)
def test_a_process_has_its_own_status_when_it_ends_under_a_compile(end: str) -> None:
    line, status = ENDS[end]
    environment = {**os.environ, "TORCH_PJRT_COMPILE": "auto", "TORCH_PJRT_CACHE": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ENDING + line],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == status, done.stderr


def test_a_process_may_end_while_three_compiles_run() -> None:
    environment = {
        **os.environ,
        "TORCH_PJRT_COMPILE": "auto",
        "TORCH_PJRT_COMPILE_THREADS": "3",
        "OMP_NUM_THREADS": "1",
        "TORCH_PJRT_CACHE": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", THREE], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "over"), done.stderr
    assert int(done.stdout.split()[1]) >= 6
