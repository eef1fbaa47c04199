"""Small programs, and the comparison of their results with CPU eager: lazily on "pjrt", and compiled on CUDA tensors
or, in a rehearsal, on CPU tensors."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from worker import Setting, Values

import torch_pjrt
from torch_pjrt import _C

_C.set_interprets_growing(False)  # each size is compiled, where a program is "lazily"
PROGRAMS: dict[str, Callable[[Setting], Values]] = {}


def program(function: Callable[[Setting], Values]) -> Callable[[Setting], Values]:
    PROGRAMS[function.__name__.replace("_", " ")] = function
    return function


def exact(work: Callable[[Setting], Values], setting: Setting) -> Values:
    """Runs convolutions and products in full float32, independent of earlier settings."""
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(0)
    torch_pjrt.reset_metrics()
    values = work(setting)
    on_host = torch_pjrt.metrics()["host_fallbacks"]
    return {**values, "on the host": on_host} if on_host else values


def difference(got: Any, wanted: Any, tolerance: float) -> float:
    """Returns the largest difference, relative to the largest number; raises if it exceeds the tolerance."""
    worst = 0.0
    for g, w in zip(got, wanted, strict=True) if isinstance(got, list | tuple) else [(got, wanted)]:
        g, w = g.detach().cpu().double(), w.detach().cpu().double()
        largest = max([1.0, *w.abs().flatten().tolist()])
        torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance * largest)
        worst = max([worst, *((g - w).abs().flatten() / largest).tolist()])
    return worst


def must(condition: bool, words: object) -> None:
    if not condition:
        raise AssertionError(str(words))


Ways = dict[str, Callable[[], float]]


def ways(
    setting: Setting,
    call: Callable[..., Any],
    *tensors: Tensor,
    tolerance: float = 1e-5,
    wanted: Any = None,
    of: str = "",
    done: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda call: call,
) -> Ways:
    """Returns the ways (interpreted, lazily, compiled), each of which computes its difference from CPU eager or from
    `wanted`. `done` wraps the call."""
    wanted = done(call)(*tensors) if wanted is None else wanted

    def lazily() -> float:
        return difference(done(call)(*(t.to("pjrt") for t in tensors)), wanted, tolerance)

    def interpreted() -> float:
        """Runs by PyTorch's kernels on the device's memory, as before there is a program."""
        before = torch_pjrt.metrics()["graphs_interpreted"]
        _C.set_compile_policy("never")
        try:
            found = lazily()
        finally:
            _C.set_compile_policy(os.environ.get("TORCH_PJRT_COMPILE", "auto"))
        must(torch_pjrt.metrics()["graphs_interpreted"] > before, "nothing was interpreted")
        return found

    def compiled() -> float:
        fast = done(torch.compile(call, backend="pjrt", dynamic=False))
        return difference(fast(*(t.to(setting.device) for t in tensors)), wanted, tolerance)

    return {f"{of}interpreted": interpreted, f"{of}lazily": lazily, f"{of}compiled": compiled}


def tried(setting: Setting, ways: Ways) -> Values:
    """Runs all ways, also after one has failed."""
    found, wrong = {}, []
    for name, work in ways.items():
        try:
            found[name] = work()
        except Exception as error:
            traceback.print_exc()
            wrong.append(f"{name}: {type(error).__name__}: {error}"[:600])
        setting.report(found)
    if wrong:
        raise AssertionError("; ".join(wrong))
    return found


def both(setting: Setting, call: Callable[..., Any], *tensors: Tensor, **options: Any) -> Values:
    return tried(setting, ways(setting, call, *tensors, **options))


def gradients(call: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
    """Wraps a call to return its result and its gradients."""

    def work(*tensors: Tensor) -> list[Tensor]:
        inputs = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors]
        result = call(*inputs)
        result.float().square().mean().backward()
        return [result, *(i.grad for i in inputs if i.grad is not None)]

    return work


def both_with_gradients(setting: Setting, call: Callable[..., Tensor], *tensors: Tensor, tolerance: float) -> Values:
    return both(setting, call, *tensors, tolerance=tolerance, done=gradients)
