"""Which line of the user's a call comes from, by the stack that Dynamo and FX take down."""

from __future__ import annotations

import os
import re
import sys
from types import FrameType
from typing import NamedTuple

import torch

FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
# Where PyTorch and this package lie.
TORCH = os.path.dirname(torch.__file__) + os.sep
LIBRARIES = (TORCH, os.path.dirname(os.path.dirname(__file__)) + os.sep)


class Frame(NamedTuple):
    file: str
    line: int
    function: str


def frames_of(stack: str | None) -> list[Frame]:
    """From the outermost to the innermost."""
    return [Frame(file, int(line), function) for file, line, function in FRAME.findall(stack or "")]


def frame_of_user(stack: str | None) -> Frame | None:
    """The innermost that is neither PyTorch's nor this package's; where there is none, the innermost."""
    frames = frames_of(stack)
    own = [frame for frame in frames if not frame.file.startswith(LIBRARIES)] or frames
    return own[-1] if own else None


def user_frame() -> FrameType | None:
    """Of the code that runs now, the innermost frame that is neither PyTorch's nor this package's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((*LIBRARIES, "<frozen", "<eval_with_key>")):
        frame = frame.f_back
    return frame
