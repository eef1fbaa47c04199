"""JAX functions in the places of composites: their StableHLO for one platform, as JAX lowers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from torch_pjrt.jax import _compat, arrays
from torch_pjrt.jax.apart import apart


def module_of(
    function: Callable[..., Any], operands: Sequence[Any], attributes: Mapping[str, Any], platform: str
) -> str:
    """The text of a module whose @main takes the operands.

    Args:
        function: of arrays, attributes as keywords, one array or several.
        operands: dtypes and shapes of torch's.
        platform: whose lowerings of JAX's are taken, such as Pallas's for a GPU. On the CPU those that any platform
            has, as a plugin lacks JAX's own libraries.

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
