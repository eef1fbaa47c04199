"""A recorded call with subclasses as values: a line of the stages with subclasses, or the frame of unrolled lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch.utils import _pytree as pytree

STAMP = "pjrt_event"  # in a node's meta: the innermost event in which it was made
REGENERATED = "pjrt_regenerated"  # a view that was made again because its base was written
LINE = "pjrt_line"  # the line of the subclass's own code


@dataclass(frozen=True)
class Ref:
    """A value, by its name."""

    name: str


def refs_in(tree: Any) -> list[Ref]:
    found = pytree.tree_leaves(tree, is_leaf=lambda x: isinstance(x, Ref))
    return [ref for ref in found if isinstance(ref, Ref)]


def renamed(tree: Any, rename: Callable[[str], str]) -> Any:
    return pytree.tree_map_only(
        Ref, lambda ref: Ref(rename(ref.name)), tree, is_leaf=lambda x: isinstance(x, Ref)
    )  # fmt: skip


def short_name(op: Any) -> str:
    return f"torch.ops.{str(op).removesuffix('.default')}"


@dataclass(eq=False)
class Event:
    kind: str  # "call"; "build": a subclass is built; "input": perhaps an argument; "attr": a part is taken out
    target: Any  # an op; a subclass; a path of attributes
    args: Any
    kwargs: Any
    out: Any  # pytree with Refs
    stack: str  # the stack of the user's code
    backward: bool
    parent: Event | None = None
    nodes: list[Any] = field(default_factory=list)  # nodes of the joint graph that were made in it
    handler: str = ""  # the class of the __torch_dispatch__, or the rule
    claimed: Any = None  # the op that a rule computes
    types: dict[str, str] = field(default_factory=dict)  # of operands and results
    code: str = ""  # the line of a subclass that makes the call

    def describe(self, rename: Callable[[str], str] = lambda name: name) -> str:
        """Returns the call with the types of operands: ``torch.ops.aten.mm(x: TwoTensor, w: TwoTensor)``."""
        types = {rename(name): text for name, text in self.types.items()}

        def one(x: Any) -> str:
            if isinstance(x, Ref):
                cls = types.get(x.name, "").split("[")[0]
                return f"{x.name}: {cls}" if cls and " " not in cls else x.name
            if isinstance(x, (list, tuple)):
                return "[" + ", ".join(map(one, x)) + "]"
            return str(x)

        args, kwargs = renamed((self.args, self.kwargs), rename)
        parts = [one(a) for a in args] + [f"{k}={one(v)}" for k, v in kwargs.items()]
        if self.claimed is not None:
            return f"{self.handler}({', '.join(parts)}), for {short_name(self.claimed)}"
        return f"{short_name(self.target)}({', '.join(parts)})"


def frames_of(node: Any) -> list[Event]:
    """Returns the events in which a node was made, outermost first."""
    return frames_in(node.meta.get(STAMP))


def frames_in(event: Event | None) -> list[Event]:
    found = []
    while event is not None:
        if event.handler:
            found.append(event)
        event = event.parent
    return found[::-1]
