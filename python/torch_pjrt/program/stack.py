"""Finds the user's line of a call in the stack that Dynamo and FX record."""

from __future__ import annotations

import os
import re
import sys
import traceback
from types import FrameType
from typing import NamedTuple

import torch

FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
# The folders of PyTorch and of this package.
TORCH = os.path.dirname(torch.__file__) + os.sep
OPTIMIZERS = (os.path.join(TORCH, "optim"), os.path.join(TORCH, "amp"))
LIBRARIES = (TORCH, os.path.dirname(os.path.dirname(__file__)) + os.sep)


class Frame(NamedTuple):
    file: str
    line: int
    function: str


def frames_of(stack: str | None) -> list[Frame]:
    """Returns the frames from the outermost to the innermost."""
    return [Frame(file, int(line), function) for file, line, function in FRAME.findall(stack or "")]


def frame_of_user(stack: str | None) -> Frame | None:
    """Returns the innermost frame outside of PyTorch and this package; without one, the innermost frame."""
    frames = frames_of(stack)
    own = [frame for frame in frames if not frame.file.startswith(LIBRARIES)] or frames
    return own[-1] if own else None


def user_frame() -> FrameType | None:
    """Returns the innermost frame outside of PyTorch and this package of the code that runs now."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((*LIBRARIES, "<frozen", "<eval_with_key>")):
        frame = frame.f_back
    return frame


def place_of(error: BaseException, libraries: tuple[str, ...] = LIBRARIES) -> str:
    """The line that an error comes from, for the end of its message: the innermost that is none of these libraries'."""
    lines = traceback.extract_tb(error.__traceback__)
    own = [line for line in lines if not line.filename.startswith(libraries)]
    return f" (at {own[-1].filename}:{own[-1].lineno})" if own else ""


def outside(error: BaseException) -> str:
    """Returns what to do where an optimizer, a GradScaler or an AveragedModel needs a value, to end the message."""
    words = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        owner, name = frame.f_locals.get("self"), frame.f_code.co_name
        is_public = name in vars(type(owner)) and not name.startswith("_")
        if frame.f_code.co_filename.startswith(OPTIMIZERS) and is_public:
            is_capturable = "capturable" in getattr(owner, "defaults", ())
            cure = ", or give it capturable=True and a model on 'pjrt'" if is_capturable else ""
            called = f"{type(owner).__name__}.{name}"
            words = f". {called} decides in Python by a value: call it after the captured function{cure}"
    return words
