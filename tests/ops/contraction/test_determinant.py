"""Gradients of determinants are made of factors, of the matrix or of its transpose, depending on its layout."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

DEVICE = "pjrt"

pytestmark = pytest.mark.each_way

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "det": torch.linalg.det,
    "slogdet": lambda a: torch.linalg.slogdet(a)[1],
    "logdet": lambda a: torch.logdet(a.mT @ a),
    "both": lambda a: torch.linalg.det(a) * torch.linalg.slogdet(a)[1],
}
SEEN: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": lambda x: x,
    "transposed": lambda x: x.mT,
    "transposed, of a result": lambda x: (x + 1).mT,
    "expanded": lambda x: x.expand(2, 2, 4, 4),
    "with gaps": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "a batch that is moved": lambda x: x.transpose(0, 1),
    "contiguous again": lambda x: x.mT.contiguous(),
}


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.sampled(4)
def test_gradients_of_matrices_of_any_layout(name: str, seen: str, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    given = torch.randn(2, 4, 4, dtype=dtype)
    if seen == "a batch that is moved":
        given = torch.randn(4, 2, 4, dtype=dtype)
    results = []
    for device in ("cpu", DEVICE):
        x = given.to(device).requires_grad_()
        result = FUNCTIONS[name](SEEN[seen](x))
        (gradient,) = torch.autograd.grad(result.abs().sum(), x)
        results.append((result.detach().cpu(), gradient.cpu()))
    torch.testing.assert_close(results[1], results[0])
