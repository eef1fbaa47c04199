"""Looking at programs: the recorded graph and the StableHLO that it lowers to, without running them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_pjrt import _C


def _record(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda t: t.to("pjrt"), (args, kwargs))
    eager = _C.eager()
    _C.set_eager(False)
    try:
        results = [leaf for leaf in pytree.tree_leaves(fn(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
    finally:
        _C.set_eager(eager)
    if not results:
        raise ValueError("the function gives no tensor, so there is no program to show")
    elsewhere = {str(r.device) for r in results if r.device.type != "pjrt"}
    if elsewhere:
        raise ValueError(
            f"the function gives tensors on {', '.join(sorted(elsewhere))}; its parameters must be on 'pjrt'"
        )
    return results


def to_stablehlo(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The StableHLO module that computes ``fn(*args, **kwargs)``, as text.

    Tensor arguments are taken to the device first; ``fn`` is recorded, not run. Parameters of ``fn`` (a module, say)
    must be on the device. It is the program for any platform: a few ops are compiled in another form for XLA:CPU, which
    ``./dev ir`` shows.

    Raises:
        ValueError: ``fn`` gives no tensor on the device.
    """
    return str(_C.stablehlo(_record(fn, args, kwargs)))


def to_graph(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The recorded graph of ``fn(*args, **kwargs)``, one ATen call a line; see ``to_stablehlo``."""
    return str(_C.graph(_record(fn, args, kwargs)))
