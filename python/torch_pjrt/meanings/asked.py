"""The switch: which composites are made."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from torch_pjrt import _C
from torch_pjrt.meanings.names import KEPT, RENAMED, STEPS

SUFFIX = ".backward"  # of the name of a group's backward
OWN: set[str] = set()  # names that the user's groups have


def _is_of_op(name: str) -> bool:
    return name.partition(".")[0] in ("aten", "torch_pjrt")


def known_names() -> set[str]:
    """Of ops that are recorded whole, of those that PyTorch takes apart before, and of the user's groups."""
    return {*_C.composite_names(), *KEPT, *STEPS, *OWN}


def forward_of(name: str, known: Collection[str] = ()) -> str:
    """What it is the backward of, or the backward's backward; itself, where it is none or is known."""
    while name.endswith(SUFFIX) and name not in known:
        name = name.removesuffix(SUFFIX)
    return name


def check_name(name: str, every: bool, by: str = "composites") -> None:
    """``every``: names of groups are known by now, too."""
    if "." not in name:
        near = [other for other in sorted(known_names()) if name in other.split(".")]
        raise ValueError(
            f"{by}: '{name}' has no namespace; the name of a composite is 'aten.<op>.<overload>' or one's own, "
            f"'my.op'{_nearest(near)}"
        )
    if not every and not _is_of_op(name):
        return
    known = known_names()
    if forward_of(name, known) not in known:
        near = difflib.get_close_matches(name, known, n=3)
        raise ValueError(f"{by}: there is no composite '{name}'{_nearest(near)}")


def _nearest(names: list[str]) -> str:
    return f". Is it {' or '.join(map(repr, names[:3]))}?" if names else ""


def _renamed(consumer: str | Mapping[str, str] | None) -> dict[str, str]:
    if consumer is None:
        return {}
    if isinstance(consumer, str):
        if consumer not in RENAMED:
            raise ValueError(f"composites: no consumer '{consumer}' has names here; there are {', '.join(RENAMED)}")
        return RENAMED[consumer]
    return dict(consumer)


def made(asked: str | Iterable[str], names: str | Mapping[str, str] | None = None, every: bool = True) -> Any:
    """The core's form of what ``composites`` takes; None where it asks for none."""
    if isinstance(asked, str):
        asked = [name.strip() for name in asked.split(",") if name.strip()]
    given = list(asked)
    renamed = _renamed(names)
    if given == ["all"]:
        return _C.make_composites(True, set(), renamed)
    if given == ["none"]:
        return None
    if given == ["default"]:
        return _C.default_composites()
    for name in given:
        if name in ("all", "none", "default"):
            raise ValueError(f"composites: '{name}' stands alone, and is no part of a list")
        check_name(name, every)
    return _C.make_composites(False, set(given), renamed)


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
        from torch_pjrt.meanings import kept

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
