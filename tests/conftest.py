"""Fixtures and options for every test."""

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
from tests.emulated_cuda import beside_cuda, cuda_environment, run_beside_cuda, run_interpreted_on_cuda

# Fixtures with one server per worker.
__all__ = ["beside_cuda", "cuda_environment", "run_beside_cuda", "run_interpreted_on_cuda"]

torch.backends.cudnn.allow_tf32 = False  # on a GPU, too, results are compared with the CPU's

# PyTorch stores a seed with a traceback for each backend that is not initialized yet: 4 ms per test and sample.
for backend in (torch.cuda, torch.xpu, torch.mtia):
    if not backend._is_compiled():
        backend.manual_seed_all = lambda seed: None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seconds", type=float, default=math.inf, help="tests that have not begun by then are skipped")
    parser.addoption("--sampled", action="store_true", help="of tests so marked a part of the parameters alone")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() - STARTED > item.config.getoption("--seconds"):
        pytest.skip("the time that --seconds gives is over")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """./dev test --changed passes where no test is named after the ops of a changed file."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.getoption("--seconds") < math.inf:
        session.exitstatus = pytest.ExitCode.OK


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --sampled, keeps of a test marked sampled(n) the parameters whose checksum (its upper half) is `part` modulo
    n.

    The selection is the same in each run. `part` lets two tests share one list. A test that would be left without
    parameters keeps its first ones. Tests marked `thorough` are left out.
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
    """Freezes objects from importing and collecting, so that garbage collection in tests doesn't traverse them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Seeds random numbers, so that a failure of a test doesn't depend on the tests before it."""
    torch.manual_seed(0)


STARTED = time.monotonic()
BY_DEFAULT = os.environ.get("TORCH_PJRT_COMPILE", "auto")
torch_pjrt._C.set_interprets_growing(False)  # which graphs of other sizes earlier tests ran would matter


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("each_way") and not metafunc.definition.get_closest_marker("compiled"):
        metafunc.parametrize("tier", ["auto", "first"], ids=["interpreted", "compiled"], indirect=True)


@pytest.fixture(autouse=True)
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Sets when graphs are compiled, here and in processes that the test starts; marks change the user's default."""
    is_compiled = request.node.get_closest_marker("compiled")
    policy: str = getattr(request, "param", "first" if is_compiled else BY_DEFAULT)
    torch_pjrt._C.set_compile_policy(policy)
    if policy != BY_DEFAULT:
        monkeypatch.setenv("TORCH_PJRT_COMPILE", policy)
    yield policy
    torch_pjrt._C.set_compile_policy(BY_DEFAULT)


@pytest.fixture(autouse=True)
def nothing_counted(tier: str) -> None:
    """Resets the counters, which other tests in this worker have changed.

    Pending work of earlier tests, held by reference cycles, would run and be counted with the first read.
    """
    try:
        torch_pjrt.sync()
    except (RuntimeError, IndexError):  # work that was meant to fail, held by the traceback of its error
        sys.last_value = sys.last_traceback = sys.last_exc = None  # set by pytest for a test that failed
        gc.collect()
        torch_pjrt.sync()
    torch_pjrt._C.end_optimizer_step([])  # ends a step that raised
    torch_pjrt.reset_metrics()


# From a marker to whether the test applies to this device, and the reason why it is skipped on others.
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
    """Yields the text of each program that is made meanwhile, as if the process had made no other."""
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
