"""``torch_pjrt.composites``: sets which composites are made, and installs the patches that keep them whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from torch_pjrt import _C
from torch_pjrt.composite_ops import kept
from torch_pjrt.composite_ops.asked import made


class composites:
    """Sets which composites are in programs that are recorded in a block: ``with torch_pjrt.composites("all"): ...``.

    A composite is an op, or a group of ops (``torch_pjrt.composite``), that is in the text of a program under its own
    name, with its calls as the decomposition; ``torch_pjrt.to_stablehlo`` shows it. A compiler that knows the name may
    implement it in its own way, others decompose it; results are equal to the bit. The setting applies to every thread
    of the process, and to functions that ``torch.compile`` and ``compile_step`` compile in the block.
    ``TORCH_PJRT_COMPOSITES`` is the setting outside of such blocks.

    Args:
        asked: ``"all"``, ``"none"``, or names (``"aten.gelu.default"``, ``"my.op"``) in a list or separated by commas.
            ``"default"`` means the composites that a kernel can claim (``torch_pjrt.register_kernel``); the text has
            only those that a kernel does claim, as the kernel's own calls.
        names: the names that a consumer of the text uses: ``"odml"`` (LiteRT), ``"tenstorrent"`` (tt-mlir), or a dict
            from the names here to others.

    Raises:
        ValueError: no op and no function with ``@torch_pjrt.composite`` has the name, or the consumer is unknown.
    """

    def __init__(self, asked: str | Iterable[str], names: str | Mapping[str, str] | None = None) -> None:
        self.asked = made(asked, names)
        self.before: list[Any] = []

    def __enter__(self) -> None:
        use(self.asked, self.before)

    def __exit__(self, *exception: object) -> None:
        _C.set_composites_switch(self.before.pop())


def use(asked: Any, before: list[Any]) -> None:
    """Sets the switch, and appends its old value to ``before``."""
    before.append(_C.composites_switch())
    if asked is not None:
        kept.install()
    _C.set_composites_switch(asked)


def ask_for_environment() -> None:
    """Applies ``TORCH_PJRT_COMPOSITES``. It accepts unknown names: the user's composites aren't defined yet."""
    asked = os.environ.get("TORCH_PJRT_COMPOSITES", "")
    if asked:
        try:
            use(made(asked, every=False), [])
        except ValueError as error:
            raise ValueError(f"TORCH_PJRT_COMPOSITES={asked}: {error}") from None
