"""``compile_step`` and ``jit``: one program for everything that a function does.

``finding.py`` tells which modules and optimizers a function uses, ``binding.py`` which parameter an argument belongs
to, ``substitution.py`` puts placeholders in the place of their tensors, ``recording.py`` runs the function on these,
``scalars.py`` makes numbers inputs, ``gradients.py`` tells what becomes of each ``.grad``, ``capture.py`` compiles.
``ties.py`` is about tensors that are found in several places, ``kept.py`` about those that the function keeps after it
was captured.
"""

from torch_pjrt.capture.jit import jit
from torch_pjrt.capture.step import compile_step

__all__ = ["compile_step", "jit"]
