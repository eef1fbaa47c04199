"""The setting of ``composites``: names of composites, a check that they exist, and which are enabled now."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from torch_pjrt import _C
from torch_pjrt.composite_ops.known import known
from torch_pjrt.composite_ops.names import KEPT, RENAMED, STEPS, SUFFIX


def _is_of_op(name: str) -> bool:
    return name.partition(".")[0] in ("aten", "torch_pjrt")


def known_names() -> set[str]:
    """Returns the names of recorded ops, of ops that PyTorch would decompose first, and of the user's composites."""
    return {*_C.composite_names(), *KEPT, *STEPS, *known.own}


def forward_of(name: str, there: Collection[str] = ()) -> str:
    """Returns the op of which this is the backward, to any order; or the name itself if it is in ``there`` or none."""
    while name.endswith(SUFFIX) and name not in there:
        name = name.removesuffix(SUFFIX)
    return name


def check_name(name: str, every: bool, by: str = "composites") -> None:
    """Raises ValueError for an invalid name. With ``every``, names of the user's composites are checked as well."""
    if "." not in name:
        near = [other for other in sorted(known_names()) if name in other.split(".")]
        raise ValueError(
            f"{by}: '{name}' has no namespace; the name of a composite is 'aten.<op>.<overload>' or one's own, "
            f"'my.op'{_nearest(near)}"
        )
    if not every and not _is_of_op(name):
        return
    there = known_names()
    if forward_of(name, there) not in there:
        near = difflib.get_close_matches(name, there, n=3)
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
    """Returns the core's form of the argument of ``composites``; None if it enables none."""
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


def is_asked(name: str) -> bool:
    """Whether this composite is enabled, or the one of which it is the backward."""
    asked = cast("_C.Composites | None", _C.asked_composites())
    return asked is not None and asked.contains(name)
