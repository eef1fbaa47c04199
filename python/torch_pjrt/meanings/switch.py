"""The switch: from here on other composites are made, and what keeps them whole is installed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from torch_pjrt import _C
from torch_pjrt.meanings import kept
from torch_pjrt.meanings.asked import made


class composites:
    """Which composites the programs have that are recorded in the block: ``with torch_pjrt.composites("all"): ...``.

    A composite is an op, or a group of ops (``torch_pjrt.composite``), that stands in the text of a program under its
    name, with the calls it is made of as its decomposition: ``torch_pjrt.to_stablehlo`` shows it. A compiler that knows
    the name may do it in its own way, others decompose it; results are the same to the bit. It holds for every thread
    of the process, and for what ``torch.compile`` and ``compile_step`` compile in the block.
    ``TORCH_PJRT_COMPOSITES`` is what holds outside of such blocks.

    Args:
        asked: ``"all"``, ``"none"``, or names (``"aten.gelu.default"``, ``"my.op"``): a list, or with commas.
            ``"default"`` is what holds unless something is asked for: those that a kernel can claim
            (``torch_pjrt.register_kernel``), which the text has only as what the kernel makes of them.
        names: how a consumer of the text calls them: ``"odml"`` (LiteRT), ``"tenstorrent"`` (tt-mlir), or a dict from
            the names here to others.

    Raises:
        ValueError: a name that no op, and no function with ``@torch_pjrt.composite``, has; an unknown consumer.
    """

    def __init__(self, asked: str | Iterable[str], names: str | Mapping[str, str] | None = None) -> None:
        self.asked = made(asked, names)
        self.before: list[Any] = []

    def __enter__(self) -> None:
        use(self.asked, self.before)

    def __exit__(self, *exception: object) -> None:
        _C.set_composites_switch(self.before.pop())


def use(asked: Any, before: list[Any]) -> None:
    """``before`` gets what held until now."""
    before.append(_C.composites_switch())
    if asked is not None:
        kept.install()
    _C.set_composites_switch(asked)


def ask_for_environment() -> None:
    """What ``TORCH_PJRT_COMPOSITES`` says. Names of groups can't be known yet."""
    asked = os.environ.get("TORCH_PJRT_COMPOSITES", "")
    if asked:
        try:
            use(made(asked, every=False), [])
        except ValueError as error:
            raise ValueError(f"TORCH_PJRT_COMPOSITES={asked}: {error}") from None
