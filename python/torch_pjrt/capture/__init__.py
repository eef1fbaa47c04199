"""``compile_step`` and ``jit``: one program for everything that a function does.

``finding.py`` finds the modules and optimizers that a function uses, ``binding.py`` matches arguments to parameters,
``substitution.py`` replaces their tensors by placeholders, ``recording.py`` runs the function on these, ``scalars.py``
makes scalars inputs, ``gradients.py`` decides what each ``.grad`` is after a call, and ``capture.py`` compiles.
``ties.py`` handles tensors that are found in several places, ``kept.py`` tensors that the function keeps after it was
captured.
"""

from torch_pjrt.capture.jit import jit
from torch_pjrt.capture.step import compile_step

__all__ = ["compile_step", "jit"]
