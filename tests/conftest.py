"""What holds for every test."""

import gc
import math
import os
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

os.environ["TORCH_PJRT_CHECK_MEMORY"] = "1"

import torch_pjrt
from tests import fresh
from tests.emulated_cuda import beside_cuda, cuda_environment, run_beside_cuda, run_by_calls_on_cuda

# Fixtures: one server a worker.
__all__ = ["beside_cuda", "cuda_environment", "run_beside_cuda", "run_by_calls_on_cuda"]

torch.backends.cudnn.allow_tf32 = False  # on a GPU, too, results are compared with the CPU's

# A seed is kept with a traceback for each of PyTorch's own backends, which may begin later: 4 ms a test and a sample.
for backend in (torch.cuda, torch.xpu, torch.mtia):
    if not backend._is_compiled():
        backend.manual_seed_all = lambda seed: None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seconds", type=float, default=math.inf, help="tests that have not begun by then are skipped")
    parser.addoption("--sampled", action="store_true", help="of tests so marked a part of the parameters alone")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() - STARTED > item.config.getoption("--seconds"):
        pytest.skip("the time that --seconds gives is over")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --sampled: of a test marked sampled(n) the parameters whose checksum (its upper half) is `part` modulo n.

    These are the same each time. `part` lets two tests of the same list share it. A test of which nothing would be left
    keeps its first parameters. Without what is marked `thorough`.
    """
    if not config.getoption("--sampled"):
        return
    left_out: dict[str, list[pytest.Item]] = defaultdict(list)
    kept: set[str] = set()
    for item in items:
        if item.get_closest_marker("thorough"):
            kept.add(item.nodeid)
            left_out[item.nodeid].append(item)
        elif mark := item.get_closest_marker("sampled"):
            test, _, parameters = item.nodeid.partition("[")
            one_in, part = mark.args[0], mark.kwargs.get("part", 0)
            if (zlib.crc32(parameters.encode()) >> 16) % one_in == part:
                kept.add(test)
            else:
                left_out[test].append(item)
    deselected = [item for test, rest in left_out.items() for item in (rest if test in kept else rest[1:])]
    if deselected:
        gone = set(map(id, deselected))
        items[:] = [item for item in items if id(item) not in gone]
        config.hook.pytest_deselected(items=deselected)


def pytest_collection_finish() -> None:
    """What importing and collecting made stays; a collection of garbage need not go through it in each test."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """A test that fails does so in each run: what it draws does not depend on the tests before it."""
    torch.manual_seed(0)


STARTED = time.monotonic()
BY_DEFAULT = os.environ.get("TORCH_PJRT_COMPILE", "auto")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("each_way") and not metafunc.definition.get_closest_marker("compiled"):
        metafunc.parametrize("tier", ["auto", "every"], ids=["by calls", "compiled"], indirect=True)


@pytest.fixture(autouse=True)
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """When graphs are compiled, here and in processes that the test starts: as users have it, unless it is marked."""
    is_compiled = request.node.get_closest_marker("compiled")
    policy: str = getattr(request, "param", "every" if is_compiled else BY_DEFAULT)
    torch_pjrt._C.set_compile_policy(policy)
    if policy != BY_DEFAULT:
        monkeypatch.setenv("TORCH_PJRT_COMPILE", policy)
    yield policy
    torch_pjrt._C.set_compile_policy(BY_DEFAULT)


@pytest.fixture(autouse=True)
def nothing_counted(tier: str) -> None:
    """A test reads its own counts, whichever tests ran before it in the same worker.

    What they left in cycles may still be pending: a large graph would be run, and counted, beside the first read.
    """
    try:
        torch_pjrt.sync()
    except (RuntimeError, IndexError):  # meant to fail, and held by the traceback that told of it
        sys.last_value = sys.last_traceback = sys.last_exc = None  # pytest's, of a test that failed
        gc.collect()
        torch_pjrt.sync()
    torch_pjrt._C.end_optimizer_step([])  # of one whose step raised
    torch_pjrt.reset_metrics()


# A marker -> whether this device is one that the test is about, and why it is skipped on others.
OF_SOME_DEVICES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "host_memory": (lambda device: device.is_host_memory, "the device has a memory of its own"),
    "cpu_arithmetic": (lambda device: device.platform == "cpu", "the device is no CPU"),
    "older_xla": (lambda device: device.plugin == "xla_cpu_pjrt", "newer builds of XLA:CPU lack the option"),
}


@pytest.fixture(autouse=True)
def is_of_this_device(request: pytest.FixtureRequest) -> None:
    for marker, (holds, reason) in OF_SOME_DEVICES.items():
        if request.node.get_closest_marker(marker) and not holds(torch.pjrt.get_device_properties()):
            pytest.skip(reason)


@pytest.fixture
def programs() -> Iterator[list[str]]:
    """The text of each program that is made meanwhile, as in a process that has met no other."""
    torch_pjrt._C.forget_programs()
    texts: list[str] = []
    torch_pjrt._C.set_program_listener(lambda _, text: texts.append(text))
    yield texts
    torch_pjrt._C.set_program_listener(None)


@pytest.fixture(scope="session")
def server() -> Iterator[fresh.Server]:
    server = fresh.Server()
    yield server
    server.close()
