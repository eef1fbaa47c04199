"""Too little memory raises ``torch.OutOfMemoryError`` with PyTorch's kind of message, and changes nothing."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import torch_pjrt
from tests.fresh import Job, Server

HUGE = 1 << 50
SIDE = 1 << 21  # the square of floats takes 16 TiB


def here() -> str:
    return rf"{Path(__file__).name}:{sys._getframe(1).f_lineno}"


@pytest.mark.parametrize(
    "ask",
    [
        lambda: torch.empty(HUGE, device="pjrt"),
        lambda: torch.zeros(HUGE, device="pjrt"),
        lambda: torch.empty_strided((2, 2), (HUGE, 1), device="pjrt"),
        lambda: torch.ones(2, device="pjrt").new_full((HUGE,), 3),
        lambda: torch.ones(2, device="pjrt").resize_(HUGE),
        lambda: torch.ones(2, device="pjrt").expand(HUGE // 2, 2).contiguous(),
        lambda: torch.ones(2, device="pjrt").untyped_storage().resize_(HUGE),
    ],
)
def test_an_allocation_beyond_the_devices_memory_raises_at_once(ask: Callable[[], object]) -> None:
    before = torch_pjrt.metrics()["syncs"]
    with pytest.raises(torch.OutOfMemoryError, match=r"^pjrt out of memory\. Tried to allocate [\d.]+ [PT]iB\.") as e:
        ask()
    assert f"Asked for at {__file__}:" in str(e.value)
    (text,) = e.value.args
    assert " out of memory." in text  # libraries search for these words
    assert torch_pjrt.metrics()["syncs"] == before
    assert torch.ones(3, device="pjrt").sum().item() == 3


def test_memory_that_was_asked_for_while_tracing_is_not_allocated() -> None:
    """Intermediate values of a compiled program may have any size, where XLA fuses them."""
    fast = torch.compile(lambda x: x.expand(HUGE >> 8, 2).contiguous()[5] + 1, backend="pjrt")
    assert fast(torch.ones(2, device="pjrt")).tolist() == [2, 2]


def products(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    return (x.reshape(-1, 1) @ x.reshape(1, -1)), here()


@pytest.mark.parametrize("where", ["its result", "its middle"])
def test_a_program_beyond_the_devices_memory_is_not_started(where: str) -> None:
    x = torch.ones(SIDE, device="pjrt")
    kept = torch.zeros(4, device="pjrt")
    torch_pjrt.sync()
    for attempt in (1, 2):  # found, the second time
        kept.add_(1)
        large, line = products(x * attempt + kept[0])
        wanted = large if where == "its result" else large.softmax(0).cumsum(1)[0, :4] + kept
        with pytest.raises(torch.OutOfMemoryError, match=r"^pjrt out of memory\. Tried to allocate [\d.]+ TiB") as e:
            torch_pjrt.sync(wanted)
        text = str(e.value)
        del large, wanted, e  # an exception holds the frames that it passed, and so the large tensors
        for part in ("[aten::mm]", line, "Nothing was changed", "of its memory of"):
            assert part in text
        assert kept.tolist() == [attempt] * 4
    torch.pjrt.synchronize()


def test_a_compiled_call_beyond_the_devices_memory() -> None:
    def f(x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        kept.add_(1)
        return x.reshape(-1, 1) @ x.reshape(1, -1) + kept.sum()

    x, kept = torch.ones(SIDE, device="pjrt"), torch.zeros(4, device="pjrt")
    fast = torch.compile(f, backend="pjrt")
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError, match=r"^pjrt out of memory\. Tried to allocate [\d.]+ TiB"):
            fast(x, kept)
        assert kept.tolist() == [0] * 4
    torch.pjrt.synchronize()


LATE = """
import resource, torch, torch_pjrt; torch_pjrt._C.set_compile_policy("first")
x = torch.ones(11584, dtype=torch.double, device="pjrt")
table, rows = torch.ones(8, 11584, dtype=torch.double, device="pjrt"), torch.tensor([1, 2], device="pjrt")
kept = torch.zeros(4, device="pjrt").add_(1)
torch_pjrt.sync()
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (3 << 28), -1))  # less than the program needs; threads have theirs
large = x.reshape(-1, 1) @ (x + table[rows].sum(0)).reshape(1, -1)  # line 9
few = large.softmax(0).softmax(1)[0, :4]
del large
torch_pjrt.sync()  # starts it
many = few * 2
for value in (few, many):
    try:
        value.cpu()
    except torch.OutOfMemoryError as error:
        print(error)
torch.pjrt.synchronize()  # has been told
torch_pjrt.sync()
print((kept + 1).tolist(), table[rows].sum().item())
try:
    later = (x.reshape(-1, 1) @ x.reshape(1, -1)).softmax(1).softmax(0)[0, :4]
    torch_pjrt.sync()
    torch.pjrt.synchronize()
except torch.OutOfMemoryError as error:
    print("waiting:", error)
torch.pjrt.synchronize()
print((kept + 2).tolist())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS")
def test_what_the_plugin_reports_when_the_program_runs(server: Server) -> None:
    lines = server.run(Job(LATE))[0].out.splitlines()
    first, second, then, waiting, last = lines
    assert first.startswith("pjrt out of memory. Tried to allocate")
    assert "[aten::mm]" in first
    assert "job0.py:9" in first
    assert second.startswith("pjrt out of memory. Tried to allocate")
    assert "an earlier program lacked the memory" in second
    assert then == "[2.0, 2.0, 2.0, 2.0] 23168.0"
    assert waiting.startswith("waiting: pjrt out of memory.")
    assert "job0.py:9" in waiting
    assert last == "[3.0, 3.0, 3.0, 3.0]"
