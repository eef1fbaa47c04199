"""``compile_step`` and ``jit``: one program for everything that a function does.

``finding.py`` tells which modules and optimizers a function uses, ``substitution.py`` puts placeholders in the place of
their tensors, ``recording.py`` runs the function on these, ``scalars.py`` makes numbers inputs, ``capture.py``
compiles.
"""

from torch_pjrt.capture.jit import jit
from torch_pjrt.capture.scalars import CaptureError
from torch_pjrt.capture.step import compile_step

__all__ = ["CaptureError", "compile_step", "jit"]
