"""A long compile shows a line on a terminal, and removes it."""

from __future__ import annotations

import os
import pty

from tests import fresh

# Enough sorts for a compile of some tenths of a second.
SOURCE = """\
import os, sys
os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_NOCTTY), 2)
import torch, torch_pjrt

import pytest

pytestmark = pytest.mark.compiled
x = torch.rand(50, 51).to("pjrt")
for size in range(10, 50):
    x = x[:, :size].sort(dim=1)[0].repeat(1, 6)[:, :51] + 1
x.cpu()
"""


def shown(server: fresh.Server, delay: str) -> str:
    """What a terminal is shown when it is stderr."""
    ours, theirs = pty.openpty()
    try:
        server.run(fresh.Job(SOURCE, (os.ttyname(theirs),), {"TORCH_PJRT_CACHE": "0", "TORCH_PJRT_PROGRESS": delay}))
        os.write(theirs, b"<end>")
        text = b""
        while not text.endswith(b"<end>"):
            text += os.read(ours, 10_000)
    finally:
        os.close(ours)
        os.close(theirs)
    return text.decode().removesuffix("<end>")


def test_the_line_is_shown_and_removed(server: fresh.Server) -> None:
    text = shown(server, "0.01")
    assert "torch_pjrt: compiling a graph of " in text
    assert " ops, 0 s" in text
    assert text.endswith("\r\033[K")


def test_it_can_be_switched_off(server: fresh.Server) -> None:
    assert shown(server, "0") == ""


def test_nothing_is_shown_where_stderr_is_no_terminal(server: fresh.Server) -> None:
    job = fresh.Job(SOURCE, ("/dev/stderr",), {"TORCH_PJRT_CACHE": "0", "TORCH_PJRT_PROGRESS": "0.01"})
    [result] = server.run(job)
    assert "compiling" not in result.err
