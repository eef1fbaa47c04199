"""JAX and PyTorch in one program: torch functions as JAX functions (``as_jax``, ``torch_view``, ``jax_view``) and JAX
functions as torch functions (``call_jax``, ``from_jax``). ``docs/jax.md`` is the guide. Only this folder of the package
imports JAX."""

from __future__ import annotations

from torch_pjrt.jax import _compat as _compat  # raises if JAX is missing, too old or too new
from torch_pjrt.jax.as_jax import as_jax
from torch_pjrt.jax.call_jax import call_jax, from_jax
from torch_pjrt.jax.views import jax_view, torch_view

__all__ = ["as_jax", "call_jax", "from_jax", "jax_view", "torch_view"]
