"""A long compile shows a line on a terminal and removes it; a step that waited for one is reported afterwards
everywhere."""

from __future__ import annotations

import os
import pty
import re

import pytest

from tests import fresh

pytestmark = pytest.mark.compiled

# Contains enough sorts for a compile of some tenths of a second.
SOURCE = """\
import os, sys
os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_NOCTTY), 2)
import torch, torch_pjrt
x = torch.rand(50, 51).to("pjrt")
for size in range(10, 50):
    x = x[:, :size].sort(dim=1)[0].repeat(1, 6)[:, :51] + 1
x.cpu()
"""


def shown(server: fresh.Server, delay: str) -> str:
    """Returns the output on a terminal that is stderr."""
    ours, theirs = pty.openpty()
    try:
        server.run(
            fresh.Job(SOURCE, (os.ttyname(theirs),), {"TORCH_PJRT_CACHE": "0", "TORCH_PJRT_COMPILE_LOG_SECONDS": delay})
        )
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
    assert "\r\033[Ktorch_pjrt: waited " in text


def test_it_can_be_switched_off(server: fresh.Server) -> None:
    assert shown(server, "0") == ""


def reported(server: fresh.Server, source: str, delay: str | None = "0.01") -> str:
    """Returns the output on a stderr that is no terminal."""
    delays = {} if delay is None else {"TORCH_PJRT_COMPILE_LOG_SECONDS": delay}
    environment = {"TORCH_PJRT_CACHE": "0", "TORCH_PJRT_COMPILE": "first", **delays}
    [result] = server.run(fresh.Job(source, ("/dev/stderr",), environment))
    return result.err


def test_the_wait_is_reported_where_stderr_is_no_terminal(server: fresh.Server) -> None:
    text = reported(server, SOURCE)
    assert re.search(r"^torch_pjrt: waited \d+\.\d s for a graph of 2\d\d ops \([^/]+:7\)$", text, re.MULTILINE)
    assert "compiling" not in text


SHORT = """\
import torch, torch_pjrt
x = torch.ones(3).to("pjrt")
print(x.exp().sum().item())
"""


def test_a_short_wait_is_not_told_of(server: fresh.Server) -> None:
    assert reported(server, SHORT, None) == ""
    assert reported(server, SHORT, "0.0001").endswith(" s for a graph of 2 ops (job0.py:3)\n")


def test_a_program_with_logging_has_the_line_in_its_log(server: fresh.Server) -> None:
    setup = "import logging\nlogging.basicConfig(level={}, format='%(name)s | %(levelname)s | %(message)s')\n"
    text = reported(server, setup.format("logging.INFO") + SHORT, "0.0001")
    assert re.fullmatch(r"torch_pjrt\.program \| INFO \| waited \d+\.\d s for a graph of 2 ops \(.*:5\)\n", text)
    assert reported(server, setup.format("logging.WARNING") + SHORT, "0.0001") == ""


def test_a_compiled_call_is_reported(server: fresh.Server) -> None:
    source = """\
import torch
f = torch.compile(lambda x: x.sort()[0].exp().sum(), backend="pjrt")
f(torch.ones(30))
f(torch.ones(30))
"""
    text = reported(server, source, "0.0001")
    assert re.findall(r"for a graph of \d+ ops \([^/]+:(\d+)\)", text) == ["2"]  # where the graph comes from


# A thread that formats a log record holds its handler's lock and may print a tensor, so no thread may wait for that
# lock while it holds the session's lock.
LOCKED = """\
import faulthandler, logging, threading
faulthandler.dump_traceback_later(100, exit=True)
import torch, torch_pjrt
x = torch.ones(3).to("pjrt")
held, telling = threading.Event(), threading.Event()

class Handler(logging.Handler):
    def handle(self, record):
        telling.set()
        return super().handle(record)
    def emit(self, record):
        print("told", record.getMessage()[:6])

handler = Handler()
logging.getLogger().addHandler(handler)
logging.getLogger().setLevel(logging.INFO)

def formats():
    handler.acquire()
    held.set()
    telling.wait()
    print(x.cos().sum().item() > 0)
    handler.release()

thread = threading.Thread(target=formats)
thread.start()
held.wait()
x.exp().sum().item()
thread.join()
"""


def test_a_log_is_waited_for_without_our_lock(server: fresh.Server) -> None:
    environment = {"TORCH_PJRT_CACHE": "0", "TORCH_PJRT_COMPILE": "first", "TORCH_PJRT_COMPILE_LOG_SECONDS": "0.0001"}
    [result] = server.run(fresh.Job(LOCKED, (), environment))
    assert sorted(set(result.out.splitlines())) == ["True", "told waited"]
