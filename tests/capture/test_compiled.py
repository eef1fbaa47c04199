"""compile_step and jit over what torch.compile made: one program of it all, and the numbers of eager."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import torch_pjrt
from torch_pjrt import _C
from torch_pjrt.program.tracing_scope import tracing

BACKENDS = ("pjrt", "eager")


def small() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_over_a_compiled_model(backend: str) -> None:
    x, losses = torch.randn(5, 4), []
    model = small()
    for wrap in (lambda step: step, torch_pjrt.compile_step):
        mine = copy.deepcopy(model)
        called = mine if wrap is not torch_pjrt.compile_step else torch.compile(mine, backend=backend)
        optimizer = torch.optim.Adam(mine.parameters(), lr=0.1)

        def step(x: torch.Tensor, called: nn.Module = called, optimizer: torch.optim.Optimizer = optimizer):
            optimizer.zero_grad()
            loss = called(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run = wrap(step)
        losses.append([run(x).item() for _ in range(4)])
        if hasattr(run, "programs"):
            assert run.programs == 1
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_jit_of_what_is_compiled(backend: str) -> None:
    x, linear = torch.randn(5, 4), nn.Linear(4, 2)
    whole = nn.Linear(4, 2)
    whole.load_state_dict(linear.state_dict())
    whole.compile(backend=backend)
    made = [
        torch_pjrt.jit(fn, [x])
        for fn in (
            torch.compile(linear, backend=backend),
            torch.compile(lambda x: linear(x), backend=backend),
            lambda x: torch.compile(linear, backend=backend)(x),
            whole,
        )
    ]
    for factor in (1, 2):
        with torch.no_grad():
            for parameter in (*linear.parameters(), *whole.parameters()):
                parameter.mul_(factor)
            for call in made:
                torch.testing.assert_close(call(x), nn.functional.linear(x, linear.weight, linear.bias))


@pytest.mark.parametrize("note", ["_is_torch_compile", "_compile_kwargs"])
def test_what_compile_notes_on_a_module(monkeypatch: pytest.MonkeyPatch, note: str) -> None:
    """The first attribute is PyTorch's, the second Lightning's."""
    own = torch.compile

    def noting(module: nn.Module, **options: Any) -> Any:
        compiled = own(module, **options)
        setattr(compiled, note, dict(options))
        return compiled

    monkeypatch.setattr(torch, "compile", noting)
    x, linear = torch.randn(5, 4), nn.Linear(4, 2)
    call = torch_pjrt.jit(lambda x: torch.compile(linear, backend="pjrt")(x), [x])
    torch.testing.assert_close(call(x), linear(x))


def test_a_trace_within_a_trace_leaves_the_outer_one_on() -> None:
    with tracing():
        with tracing():
            assert _C.tracing()
        assert _C.tracing()
    assert not _C.tracing()
