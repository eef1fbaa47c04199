"""Writes by index into the flattened tensor."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch

pytestmark = pytest.mark.each_way


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("put", [torch.Tensor.put, torch.Tensor.put_])
@pytest.mark.usefixtures("deterministic")
def test_which_value_stays_is_not_determined(put: Callable[..., torch.Tensor]) -> None:
    x = torch.zeros(3, device="pjrt")
    index, values = torch.tensor([0, 0], device="pjrt"), torch.tensor([1.0, 2.0], device="pjrt")
    with pytest.raises(RuntimeError, match="put_ does not have a deterministic implementation"):
        put(x, index, values)
    torch.use_deterministic_algorithms(True, warn_only=True)
    for _ in range(2):
        with warnings.catch_warnings(record=True) as reported:
            warnings.simplefilter("always")
            put(x, index, values)
        assert any("put_ does not have a deterministic implementation" in str(w.message) for w in reported)
    assert put(x, index, values, accumulate=True)[0].item() in (3, 4, 5)
