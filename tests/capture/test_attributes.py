"""compile_step, jit and as_jax see attributes and hooks of modules that changed since the capture."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torch_pjrt


class Attributed(nn.Module):
    """Reads numbers, a function and a list of numbers, and modules of PyTorch that read numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.act, self.shifts, self.unread = 2.0, torch.relu, [1.0, 2.0], 0
        self.norm, self.dropout = nn.BatchNorm1d(3), nn.Dropout(0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.act(self.norm(x)) * self.scale + self.shifts[0])


CHANGES: dict[str, Callable[[Attributed], object]] = {
    "number": lambda m: setattr(m, "scale", 3.0),
    "sign of zero": lambda m: setattr(m, "scale", -0.0),
    "function": lambda m: setattr(m, "act", torch.tanh),
    "list": lambda m: m.shifts.__setitem__(0, 5.0),
    "p": lambda m: setattr(m.dropout, "p", 1.0),
    "momentum": lambda m: setattr(m.norm, "momentum", 0.5),
    "eps": lambda m: setattr(m.norm, "eps", 0.5),
}


@pytest.mark.parametrize("entry", ["jit", "jit of a structure", "step", "jax"])
def test_attributes_that_change_after_the_capture(entry: str) -> None:
    """Values that a function read are constants of its program, so other values need another program."""
    module, x = Attributed(), torch.randn(4, 3)
    module.scale = 0.0
    fn: Callable[..., Any] = module if entry != "jit of a structure" else lambda x: {"y": [module(x)]}
    if entry == "jax":
        jax_torch = pytest.importorskip("torch_pjrt.jax")
        module.norm.eval()  # as_jax returns what it writes
        f, params, state = jax_torch.as_jax(module)
        call: Callable[..., Any] = lambda x: torch.from_dlpack(f(params, state, jax_torch.jax_view(x))[0])  # noqa: E731
    else:
        call = torch_pjrt.compile_step(fn) if "step" in entry else torch_pjrt.jit(fn, (x,))

    def check() -> None:
        expected_module = copy.deepcopy(module)
        expected = expected_module(x)
        result = call(x)
        result = result["y"][0] if isinstance(result, dict) else result
        torch.testing.assert_close(result, expected.detach())
        assert torch.equal(result.signbit(), expected.signbit())
        torch.testing.assert_close(module.norm.running_mean, expected_module.norm.running_mean)

    check()
    for change in CHANGES.values():
        before = copy.deepcopy(module.__dict__), copy.deepcopy([vars(module.norm), vars(module.dropout)])
        change(module)
        check()
        module.scale, module.act, module.shifts[0] = before[0]["scale"], before[0]["act"], before[0]["shifts"][0]
        module.norm.momentum, module.norm.eps = before[1][0]["momentum"], before[1][0]["eps"]
        module.dropout.p = before[1][1]["p"]
        check()
    if entry == "step":
        captures = call.captures  # type: ignore[attr-defined]
        assert captures == 1 + len(CHANGES)
        module.unread = 1
        check()
        assert call.captures == captures  # type: ignore[attr-defined]


HOOK_KINDS: dict[str, Callable[[nn.Module], Any]] = {
    "forward": lambda m: m.register_forward_hook(lambda module, given, result: result * 2),
    "before forward": lambda m: m.register_forward_pre_hook(lambda module, given: (given[0] + 1,)),
    "backward": lambda m: m.register_full_backward_hook(lambda module, grads, given: (grads[0] * 3,)),
    "before backward": lambda m: m.register_full_backward_pre_hook(lambda module, given: (given[0] * 5,)),
}


@pytest.mark.parametrize("entry", ["jit", "step"])
def test_hooks_that_are_added_and_removed_after_the_capture(entry: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    def gradient(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            result = model(x)
            return result.detach(), torch.autograd.grad(result.sum(), x)[0]

    x = torch.randn(2, 3)
    call = torch_pjrt.compile_step(gradient) if entry == "step" else torch_pjrt.jit(gradient, (x,))
    for add in HOOK_KINDS.values():
        torch.testing.assert_close(call(x), gradient(x))
        handle = add(model[1])
        torch.testing.assert_close(call(x), gradient(x))
        handle.remove()
    torch.testing.assert_close(call(x), gradient(x))


def test_an_attribute_that_changes_all_the_time_is_warned_of() -> None:
    module = Attributed()
    step = torch_pjrt.compile_step(module.eval())
    for i in range(8):
        module.scale = float(i)
        step(torch.ones(2, 3))
    module.scale = 8.0
    with pytest.warns(UserWarning, match="reads 'scale' of module 'Attributed', which has had 9 values"):
        step(torch.ones(2, 3))
    assert step(torch.ones(2, 3)).max() == 8 / (1 + module.norm.eps) ** 0.5 + 1
