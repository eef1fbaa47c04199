"""What holds for the tests of libraries."""

import pytest


@pytest.fixture(autouse=True)
def compiled_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of their time would be compiles of steps that run a few times."""
    monkeypatch.setenv("TORCH_PJRT_XLA_OPTIONS", "xla_backend_optimization_level=0")
