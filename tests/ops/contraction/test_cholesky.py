"""Cholesky reports the first leading minor that shows that a matrix isn't positive-definite."""

from __future__ import annotations

import pytest
import torch

import torch_pjrt

DEVICE = "pjrt"
NAN = float("nan")

pytestmark = pytest.mark.each_way


def eye_with(at: int, value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    matrix = torch.eye(4, dtype=dtype)
    matrix[at, at] = value
    return matrix


BATCH = torch.stack([eye_with(0, 2), eye_with(2, -1), eye_with(0, -1)])
# Matrices, and the orders of their first bad minors.
BAD: dict[str, tuple[torch.Tensor, object]] = {
    "of rank 1": (torch.ones(3, 3), 2),
    "of rank 1, 2x2": (torch.ones(2, 2), 2),
    "zero": (torch.zeros(2, 2), 1),
    "NaN": (eye_with(1, NAN), 2),
    "a batch": (BATCH, [0, 3, 1]),
    "batches": (BATCH.double().view(3, 1, 4, 4).expand(3, 2, 4, 4), [[0, 0], [3, 3], [1, 1]]),
    **{f"negative at {k}": (eye_with(k, -1), k + 1) for k in range(4)},
    **{f"complex, negative at {k}": (eye_with(k, -1, torch.complex64), k + 1) for k in range(4)},
}


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("name", BAD)
def test_the_order_of_the_first_minor_that_is_not_positive(name: str, upper: bool) -> None:
    matrix, order = BAD[name]
    for device in ("cpu", DEVICE):
        assert torch.linalg.cholesky_ex(matrix.to(device), upper=upper).info.tolist() == order
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("upper", [False, True])
def test_the_other_half_is_not_read(upper: bool) -> None:
    matrices = torch.randn(30, 9, 9)
    matrices = matrices @ matrices.mT - 0.1 * torch.eye(9)
    other = torch.ones(9, 9, dtype=torch.bool).tril(-1)
    matrices = matrices.masked_fill(other if upper else other.T, NAN)
    expected = torch.linalg.cholesky_ex(matrices, upper=upper)
    actual = torch.linalg.cholesky_ex(matrices.to(DEVICE), upper=upper)
    assert 5 < expected.info.count_nonzero() < 30
    assert actual.info.tolist() == expected.info.tolist()
    good = expected.info == 0
    torch.testing.assert_close(actual.L.cpu()[good], expected.L[good], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["of rank 1", "a batch", "NaN"])
def test_the_error_names_it(name: str) -> None:
    said = []
    for device in ("cpu", DEVICE):
        with pytest.raises(torch.linalg.LinAlgError) as error:
            torch.linalg.cholesky(BAD[name][0].to(device))
        said.append(str(error.value))
    assert said[0] == said[1]
