"""Tensor subclasses among the arguments and the results of a compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

Function = Callable[[Any], Any]

BUILT: dict[str, Function] = {
    "one": lambda x: (TwoTensor(x * 2, x * 3), x + 1),
    "last": lambda x: (x + 1, TwoTensor(x * 2, x * 3)),
    "nested": lambda x: (TwoTensor(TwoTensor(x * 2, x * 3), TwoTensor(x * 4, x * 5)), x + 1),
    "of views": lambda x: (TwoTensor(x.view(-1), x.view(-1)), x * 2),
    "of a written argument": lambda x: (TwoTensor(x.add_(1), x * 3), x * 2),
    "with numbers": lambda x: (3, TwoTensor(x * 2, x * 3), None, x.shape[0]),
    "a parameter": lambda x: (torch.nn.Parameter(x * 2), x * 3),
}
GIVEN: dict[str, Function] = {
    "computed": lambda t: (t * 2, t.a + 1),
    "written": lambda t: (t.mul_(2), t + 1),
    "viewed": lambda t: (t.view(-1), t[0]),
    "taken apart": lambda t: (t.a * 2, t.b * 3),
}


def described(value: Any) -> Any:
    if isinstance(value, TwoTensor):
        return "TwoTensor", described(value.a), described(value.b)
    if isinstance(value, torch.Tensor):
        return type(value).__name__, value.tolist(), value.stride()
    return [described(v) for v in value] if isinstance(value, (tuple, list)) else value


def check(f: Function, make: Callable[[], Any], training: bool) -> None:
    with torch.set_grad_enabled(training):
        compiled = torch.compile(f, backend="pjrt")
        for _ in range(2):
            expected, given = make(), make()
            assert described(compiled(given)) == described(f(expected))
            assert described(given) == described(expected)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", BUILT)
def test_built(name: str, training: bool) -> None:
    writes = name == "of a written argument"
    check(BUILT[name], lambda: torch.arange(3.0).requires_grad_(training and not writes), training)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", GIVEN)
def test_given(name: str, training: bool) -> None:
    def make() -> TwoTensor:
        made = TwoTensor(torch.arange(3.0), torch.full((3,), 4.0))
        return made.requires_grad_(training and name != "written")

    check(GIVEN[name], make, training)
