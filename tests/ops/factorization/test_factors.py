"""Where programs can't call LAPACK, its family is made of loops. factors.py has the checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fresh

PROGRAM = Path(__file__).with_name("factors.py")
DTYPES = ("float32", "float64", "complex64", "complex128")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("part", ["usual", "special"])
def test_factors(server: fresh.Server, part: str, dtype: str) -> None:
    run(server, f"{part} {dtype}")


@pytest.mark.parametrize("part", ["gradients", "not finite"])
def test_factors_of(server: fresh.Server, part: str) -> None:
    run(server, part)


def run(server: fresh.Server, part: str) -> None:
    environment = {"TORCH_PJRT_LIBRARY_KERNELS": "0", "TORCH_PJRT_COMPILE": "first"}
    (reported,) = server.run(fresh.Job(PROGRAM.read_text(), (part,), environment, str(PROGRAM)))
    assert reported.out.split() == ["right"]
