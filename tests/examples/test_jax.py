"""The examples with JAX, as a user starts them; each checks its result itself."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["jax_optax", pytest.param("jax_mixed", marks=pytest.mark.thorough)])
def test_example(name: str) -> None:
    result = subprocess.run([sys.executable, ROOT / f"examples/{name}.py"], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
