"""Errors of torch code in a JAX function while JAX traces, for two things that it can't do.

It can't read a value, which only a run of the program has, and it can't write to an older tensor, which would happen
once, during tracing."""

from __future__ import annotations

import dis
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import torch

from torch_pjrt import _C
from torch_pjrt.errors import CaptureError
from torch_pjrt.jax import _compat
from torch_pjrt.program import stack

LIBRARIES = (*stack.LIBRARIES, str(Path(str(jax.__file__)).parent))
CURES = {
    "ConcretizationTypeError": "use torch.where, or jax.lax.cond around the torch code",
    "TracerBoolConversionError": "use torch.where, or jax.lax.cond around the torch code",
    "NonConcreteBooleanIndexError": "use torch.where, or a size that is known",
    "UnexpectedTracerError": "return jax_view(tensor) from the function that JAX traces",
}


def as_jax_says(kind: str) -> str:
    return f". JAX's name for it is {kind}: {CURES[kind]}"


def _user_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(LIBRARIES):
        frame = frame.f_back
    return frame


def _place(frame: FrameType | None) -> str:
    return "" if frame is None else f" (at {frame.f_code.co_filename}:{frame.f_lineno})"


# --- values -----------------------------------------------------------------------------------------------------------


def value_needed(array: Any, cause: str) -> str:
    """Returns the text of the error for a value that depends on the view of an array."""
    frame, tracer = _user_frame(), f"a torch_view of a tracer ({array.dtype}{list(array.shape)})"
    if not _compat.is_tracing():
        kind, what = "UnexpectedTracerError", "a tensor's value is needed"
        return f"{what}{_place(frame)}, and it rests on {tracer} of a transformation that is over{as_jax_says(kind)}"
    op = cause.removesuffix(" on the host")
    if op == cause:
        kind = "TracerBoolConversionError" if _is_condition(frame) else "ConcretizationTypeError"
        what, reported = "a tensor's value is needed", as_jax_says(kind)
    elif _has_shape_of_data(op):
        what, reported = f"[{op}] has a result whose shape depends on data", as_jax_says("NonConcreteBooleanIndexError")
    else:
        what, reported = f"[{op}] would run on the host", ". In JAX that is a jax.pure_callback: call one, beside torch"
    return f"{what}{_place(frame)}, and it rests on {tracer}, which has no values while JAX traces{reported}"


def _is_condition(frame: FrameType | None) -> bool:
    """Whether the frame evaluates a truth value."""
    if frame is None:
        return False
    found = (each.opname for each in dis.get_instructions(frame.f_code) if each.offset == frame.f_lasti)
    name = next(found, "")
    return "JUMP" in name or name in ("UNARY_NOT", "TO_BOOL", "COMPARE_OP")  # the last two since Python 3.13


def _has_shape_of_data(op: str) -> bool:
    namespace, _, name = op.partition("::")
    packet, _, overload = name.partition(".")
    found = getattr(getattr(torch.ops, namespace), packet, None)
    tags = getattr(found, overload or "default").tags if found is not None else ()
    return torch.Tag.dynamic_output_shape in tags


# --- writes -----------------------------------------------------------------------------------------------------------

DEEPEST = 64  # nested traces


class _Seals(threading.local):
    def __init__(self) -> None:
        self.of: list[tuple[Any, Any]] = []  # a trace with the seal made before its first view, from the outermost


_seals = _Seals()


def _seal_of(trace: Any) -> Any:
    for i in reversed(range(len(_seals.of))):
        if _seals.of[i][0] == trace:
            del _seals.of[i + 1 :]  # inner traces have ended
            return _seals.of[i][1]
    return None


def seal() -> None:
    """Called when a view is made: seals tensors from before the first view of this trace, which it can't write."""
    trace = _compat.trace_state()
    held = _seal_of(trace)
    if held is None:
        held = _C.Seal()
        _seals.of = [*_seals.of[1 - DEEPEST :], (trace, held)]
    _C.set_seal(held)


def before_write(tensor: torch.Tensor, op: str) -> None:
    """Called before a tensor is written.

    Raises:
        CaptureError: JAX traces, and the tensor is older than the trace's first view.
    """
    if not _compat.is_tracing():
        _seals.of.clear()
        _C.set_seal(None)
        return
    held = _seal_of(_compat.trace_state()) or (_seals.of[-1][1] if _seals.of else None)
    _C.set_seal(held)
    if held is None or not held.covers(tensor):
        return
    raise CaptureError(
        f"[{op}] writes{_place(_user_frame())} to a tensor ({str(tensor.dtype).removeprefix('torch.')}"
        f"{list(tensor.shape)}) that was there before JAX began to trace: that would happen once, while the program is "
        "made, and never in its runs. Write to a tensor.clone() that is made after the first torch_view, and return "
        "jax_view of it; f, params, state = as_jax(module) gives a module's buffers back as new_state"
    )
