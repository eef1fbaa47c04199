"""Fixtures for the tests of libraries."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import fresh, ranks

TrainsInTwo = Callable[..., None]


@pytest.fixture(autouse=True)
def compiled_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles without optimization: steps run only a few times."""
    monkeypatch.setenv("TORCH_PJRT_XLA_OPTIONS", "xla_backend_optimization_level=0")


def check(reported: list[Any]) -> None:
    """Checks that each process has the parameters of whole batches, and reduced the gradients of three steps."""
    for each in reported:
        assert each["reductions"] >= 3
        for found, wanted in zip(each["found"], each["alone"], strict=True):
            assert found == pytest.approx(wanted, rel=1e-4, abs=1e-5)


@pytest.fixture
def trains_in_two(server: fresh.Server, tmp_path: Path) -> TrainsInTwo:
    """Returns a check that a library trains in two processes under torchrun, with variables of its environment."""
    script = Path(__file__).with_name("of_processes.py")
    return lambda library, **environment: check(ranks.run(server, script, 2, library, tmp_path, **environment))
