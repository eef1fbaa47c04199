"""Measures units: reads a line of JSON, (op, dtype, size), and writes a line, in seconds of one processor."""

from __future__ import annotations

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
from ops.samples import LeftOut, chosen_sample, tensors  # noqa: E402
from tests.ops.opinfo import OPS, to_device  # noqa: E402
from torch_pjrt import _C  # noqa: E402

MOST = 0.5  # seconds of eager; slower ops are left out
ROUNDS = 5
WAYS = (("interpreted", "never"), ("compiled", "first"))


def calls(op: Any, made: tuple[Any, Any, Any], backward: bool) -> Callable[[], None] | None:
    """Returns a call of the op on these, or of its backward."""
    leaves = [x for x in tensors(made) if x.requires_grad]
    device = any(x.device.type == "pjrt" for x in tensors(made))

    def await_all(values: list[torch.Tensor]) -> None:
        if device:
            torch_pjrt.sync([x for x in values if x.device.type == "pjrt"])
            torch.pjrt.synchronize()

    if not backward:

        def forward() -> None:
            with torch.no_grad():
                await_all(tensors(op.op(made[0], *made[1], **made[2])))

        return forward
    given = [x for x in tensors(op.op(made[0], *made[1], **made[2])) if x.requires_grad]
    if not given or not leaves:
        return None
    ones = [torch.ones_like(x) for x in given]
    await_all([*given, *ones])

    def run() -> None:
        found = torch.autograd.grad(given, leaves, ones, retain_graph=True, allow_unused=True)
        await_all([x for x in found if x is not None])

    return run


def timed(name: str, dtype: str, size: int) -> Iterator[tuple[str, str, float, float]]:
    """Yields (direction, way, seconds of eager, ours)."""
    op, kind = OPS[name], getattr(torch, dtype)
    has_gradient = kind.is_floating_point and op.supports_autograd and kind in op.supported_backward_dtypes("cpu")
    made = chosen_sample(op, kind, size, has_gradient)
    moved = to_device(made)
    for direction in ("forward", "backward") if has_gradient else ("forward",):
        eager = calls(op, made, direction == "backward")
        if eager is None:
            continue
        start = time.process_time()
        eager()
        if time.process_time() - start > MOST:
            raise LeftOut(f"eager takes more than {MOST:g} s")
        for way, policy in WAYS:
            _C.set_compile_policy(policy)
            ours = calls(op, moved, direction == "backward")
            if ours is None:
                continue
            ours()
            taken = interleaved(
                {"eager": eager, "ours": ours}, rounds=ROUNDS, batch_seconds=0.005, clock=time.process_time
            )
            yield direction, way, min(taken["eager"]), min(taken["ours"])


def answer(unit: list[Any]) -> dict[str, Any]:
    torch.manual_seed(0)
    found: list[tuple[str, str, float, float]] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for one in timed(*unit):
                found.append(one)
    except LeftOut as reason:
        return {"timed": found, "left_out": str(reason)}
    except Exception as error:
        return {"timed": found, "left_out": f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"}
    return {"timed": found}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # for output of ops
    gc.freeze()  # interleaved() collects garbage each time, and would traverse all modules
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
