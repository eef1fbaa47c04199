"""A result of float32 arithmetic is right if it is as near to the same computation in float64 as the CPU's own is.

Networks amplify rounding, and gradients that are zero in theory (of a bias before a batch norm, say) consist of it, so
no single tolerance fits them all; the CPU's own error shows what to expect.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

SLACK = 20  # two roundings of the same result differ by this much without either being wrong
LEAST = 2e-5  # of the largest value, the least tolerance


def assert_as_close(
    what: str, actual: Tensor | None, eager: Tensor | None, true: Tensor | None, more: float = 0
) -> None:
    """actual: on the device; eager: the CPU's float32; true: the CPU's float64. `more`: an additional tolerance."""
    if eager is None or true is None:
        assert actual is None
        assert eager is None
        return
    assert actual is not None, f"{what}: nothing on the device"
    host = actual.detach().cpu()
    assert host.dtype == eager.dtype, what
    assert host.shape == eager.shape, what
    if eager.numel() == 0:
        return
    if not eager.is_floating_point():
        assert torch.equal(host, eager), what
        return
    assert torch.equal(host.isfinite(), eager.isfinite()), f"{what}: not finite elsewhere"
    error, own = ((x.detach().double() - true.detach()).abs().max().item() for x in (host, eager))
    allowed = SLACK * own + LEAST * true.detach().abs().max().item() + 1e-7 + more
    assert error <= allowed, f"{what}: {error} from float64, the CPU {own}"


def assert_all_as_close(what: str, actual: Iterable, eager: Iterable, true: Iterable) -> None:
    """Compares (name, tensor) pairs."""
    for (name, a), (_, e), (_, t) in zip(actual, eager, true, strict=True):
        assert_as_close(f"{what} {name}", a, e, t)


def assert_as_close_after_steps(what: str, actual: Iterable, eager: Iterable, other: Iterable, true: Iterable) -> None:
    """Compares tensors whose errors have grown over steps: each may be as far off as the CPU's worst, because rounding
    hits tensors by chance. `other`: the CPU's float32 of inputs that differ in their last bits."""
    tensors = list(zip(actual, eager, other, true, strict=True))
    errors = [
        (own.detach().double() - t.detach()).abs().max().item()
        for _, (_, e), (_, o), (_, t) in tensors
        for own in (e, o)
        if own is not None and own.is_floating_point() and own.numel() > 0
    ]
    for (name, a), (_, e), _, (_, t) in tensors:
        assert_as_close(f"{what} {name}", a, e, t, more=max(errors, default=0))
