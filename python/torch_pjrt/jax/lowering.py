"""JAX functions that replace composites: their StableHLO for one platform."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from torch_pjrt.jax import _compat, arrays
from torch_pjrt.jax.apart import apart


def module_of(
    function: Callable[..., Any], operands: Sequence[Any], attributes: Mapping[str, Any], platform: str
) -> str:
    """Returns the text of a module whose @main takes the operands.

    Args:
        function: a function of arrays, with attributes as keywords, that returns one array or several.
        operands: torch dtypes and shapes.
        platform: the platform of JAX's lowerings, such as Pallas's for a GPU. For the CPU, lowerings for any platform
            are used, because plugins lack JAX's own libraries.

    Raises:
        NotImplementedError: JAX has no such lowering of a primitive of the function.
    """

    def of_arrays(*given: Any) -> Any:
        return function(*given, **attributes)

    structs = [jax.ShapeDtypeStruct(form.shape, arrays.TO_JAX[form.dtype]) for form in operands]
    with apart():
        if platform == "cpu":
            lowered = _compat.lower_generic(of_arrays, structs)
        else:
            lowered = jax.jit(of_arrays, keep_unused=True).trace(*structs).lower(lowering_platforms=(platform,))
    if platform == "cpu" and (foreign := _compat.foreign_call(lowered)):
        raise NotImplementedError(
            f"JAX's primitive '{foreign[1]}' calls '{foreign[0]}' of a library of JAX's own, which a PJRT plugin lacks"
        )
    return str(lowered.as_text())
