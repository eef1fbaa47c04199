"""Measures units: reads a line of JSON, (op, dtype, size), and writes a line, in seconds of one processor."""

from __future__ import annotations

import functools
import gc
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parents[2])]

import torch  # noqa: E402

import torch_pjrt  # noqa: E402
from measure import interleaved  # noqa: E402
from ops.distributions import Method, listed  # noqa: E402
from ops.samples import LeftOut, chosen_sample, tensors  # noqa: E402
from tests.ops.opinfo import OPS, UNPREDICTABLE, to_device  # noqa: E402
from torch_pjrt import _C  # noqa: E402

MOST = 0.5  # seconds of eager; slower ops are left out
ROUNDS = 5
WAYS = {"default": "auto", "compiled": "first"}  # each with its compile policy
BEHIND = 1.5  # Inductor is measured where torch.compile takes more times eager's time than this
ALL = OPS | listed()
Call = Callable[..., Any]
INDUCTOR = functools.partial(torch.compile, backend="inductor", dynamic=False)
PJRT = functools.partial(torch.compile, backend="pjrt", dynamic=False)


def calls(op: Call, made: tuple[Any, Any, Any], backward: bool) -> Callable[[], list[torch.Tensor]] | None:
    """Returns a call of the op on these, or of its backward."""
    leaves = [x for x in tensors(made) if x.requires_grad]
    device = any(x.device.type == "pjrt" for x in tensors(made))

    def awaited(values: list[torch.Tensor]) -> list[torch.Tensor]:
        if device:
            torch_pjrt.sync([x for x in values if x.device.type == "pjrt"])
            torch.pjrt.synchronize()
        return values

    if not backward:

        def forward() -> list[torch.Tensor]:
            with torch.no_grad():
                return awaited(tensors(op(made[0], *made[1], **made[2])))

        return forward
    given = [x for x in tensors(op(made[0], *made[1], **made[2])) if x.requires_grad]
    if not given or not leaves:
        return None
    ones = [torch.ones_like(x) for x in given]
    awaited([*given, *ones])

    def run() -> list[torch.Tensor]:
        found = torch.autograd.grad(given, leaves, ones, retain_graph=True, allow_unused=True)
        return awaited([x for x in found if x is not None])

    return run


def warm_up(call: Callable[[], object]) -> None:
    """Calls until no other thread of the process works, such as the background compile of the default policy."""
    call()
    ends = time.monotonic() + 10
    while time.monotonic() < ends:
        until = time.monotonic() + 0.02
        while time.monotonic() < until:
            call()
        before = time.process_time()
        time.sleep(0.01)
        if time.process_time() - before < 0.002:
            break


def far_off(ours: list[torch.Tensor], eager: list[torch.Tensor]) -> bool:
    """Returns whether results differ from eager's in type or shape, or one in a hundred by more than a tenth."""
    for x, y in zip(ours, eager, strict=True):
        if x.dtype != y.dtype or x.shape != y.shape:
            return True
        a, b = (t.detach().cpu().to(torch.complex128 if t.is_complex() else torch.float64) for t in (x, y))
        if (~torch.isclose(a, b, 0.1, 1e-3, equal_nan=True)).double().mean() > 0.01:
            return True
    return False


def timed(name: str, dtype: str, size: int, failed: list[str]) -> Iterator[tuple[str, str, float, float]]:
    """Yields (direction, way, seconds of eager, of the way). `failed` gets the reasons why a way has no times."""
    op, kind = ALL[name], getattr(torch, dtype)
    has_gradient = kind.is_floating_point and op.supports_autograd and kind in op.supported_backward_dtypes("cpu")
    is_drawn = isinstance(op, Method)
    made = op.sample(size) if is_drawn else chosen_sample(op, kind, size, has_gradient)
    moved = to_device(made)
    plain: Call = lambda *args, **kwargs: op.op(*args, **kwargs)  # noqa: E731
    draws = is_drawn or name in UNPREDICTABLE
    for direction in ("forward", "backward") if has_gradient else ("forward",):
        eager = calls(plain, made, direction == "backward")
        if eager is None:
            continue
        start = time.process_time()
        expected = eager()
        if time.process_time() - start > MOST:
            raise LeftOut(f"eager takes more than {MOST:g} s")
        behind = False
        for way in (*WAYS, "torch.compile", "Inductor"):
            if way == "Inductor" and not behind:
                continue
            try:
                if way in WAYS:
                    _C.set_compile_policy(WAYS[way])
                    ours = calls(plain, moved, direction == "backward")
                else:
                    torch._dynamo.reset()
                    ours = calls((PJRT if way == "torch.compile" else INDUCTOR)(plain), made, direction == "backward")
                if ours is None:
                    continue
                if far_off(ours(), expected) and not draws and way != "Inductor":
                    failed.append(f"{direction}, {way}: other values than eager's")
                warm_up(ours)
            except Exception as error:
                failed.append(f"{direction}, {way}: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
                continue
            taken = interleaved(
                {"eager": eager, "ours": ours}, rounds=ROUNDS, batch_seconds=0.005, clock=time.process_time
            )
            best = {side: min(seconds) for side, seconds in taken.items()}
            behind = way == "torch.compile" and best["ours"] > BEHIND * best["eager"]
            yield direction, way, best["eager"], best["ours"]


def answer(unit: list[Any]) -> dict[str, Any]:
    torch.manual_seed(0)
    found: list[tuple[str, str, float, float]] = []
    failed: list[str] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for one in timed(*unit, failed):
                found.append(one)
    except LeftOut as reason:
        return {"timed": found, "left_out": str(reason)}
    except Exception as error:
        return {"timed": found, "left_out": f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"}
    return {"timed": found, **({"left_out": "; ".join(failed)} if failed else {})}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # for output of ops
    torch._functorch.config.donated_buffer = False  # a backward runs many times
    gc.freeze()  # interleaved() collects garbage each time, and would traverse all modules
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
