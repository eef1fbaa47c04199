"""Records AOTAutograd's trace at the level of subclasses: which calls on parts each call of a subclass became.

The recorder is a ``TorchDispatchMode`` around AOTAutograd. Users' modes are above subclasses and above PyTorch's own
modes (functionalization, proxies, fake tensors), and below autograd, so it sees each call of forward and backward with
subclasses as arguments. It makes the call again with itself on, returns ``NotImplemented`` for the repeated call, so
that the dispatcher calls the subclass, and stamps the nodes that the call adds to the graph. It adds no node itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.utils import _pytree as pytree

from torch_pjrt.program.subclasses import is_subclass, leaves_of, parts_of
from torch_pjrt.traces.events import LINE, REGENERATED, STAMP, Event, Ref
from torch_pjrt.traces.frames import Frames, line_of_subclass
from torch_pjrt.traces.types import type_of

INDEX = "pjrt_index"  # in a node's meta: its index among the nodes of its event
Path = tuple[str, ...]


class Recorder(Frames):
    """Records one graph that AOTAutograd traces."""

    def __init__(self) -> None:
        super().__init__()
        self.tracer: Any = None
        self.names: dict[int, str] = {}  # id of a subclass -> its name
        self.keep: list[Any] = []  # keeps objects alive, so that ids stay unique
        self.part: dict[fx.Node, tuple[str, Path]] = {}  # node -> the value that it is a part of, and its path
        self.known: set[str] = set()  # names that the stages with subclasses define
        self.inputs: dict[tuple[fx.Node, ...], tuple[str, list[Path]]] = {}  # placeholders -> name, paths
        self.objects: dict[str, Any] = {}
        self.quiet = False

    # Names.

    def node_of(self, tensor: Any) -> fx.Node | None:
        """Returns the tensor's node, without torch._sync, which would add nodes."""
        while isinstance(tensor, FunctionalTensor):
            tensor = torch._from_functional_tensor(tensor.elem)
        slot = get_proxy_slot(tensor, self.tracer, None)
        return None if slot is None else slot.proxy.node

    def plain(self, tensor: Any) -> Ref:
        node = self.node_of(tensor)
        if node is None:
            return Ref(self.fresh("constant"))
        if node.op == "placeholder":
            if (node,) not in self.inputs:  # its final name is known after tracing
                name = f"in_{node.name}"
                self.inputs[(node,)] = (name, [()])
                self.types[name] = type_of(tensor)
                self.known.add(name)
            return Ref(self.inputs[(node,)][0])
        name = node.name
        if not self.stack and name not in self.known:
            if node in self.part:
                owner, path = self.part[node]
                event = self.emit(Event("attr", path, (Ref(owner),), {}, Ref(name), self.line(), self.in_backward()))
                event.types[name] = type_of(tensor)
            self.known.add(name)
        self.used.add(name)
        self.types.setdefault(name, type_of(tensor))
        return Ref(name)

    def subclass(self, tensor: Any) -> Ref:
        known = self.names.get(id(tensor))
        if known is not None:
            return Ref(known)
        parts = [(path, self.node_of(leaf)) for path, leaf in leaves_of(tensor)]
        owners = set()
        for path, node in parts:
            owner, where = self.part.get(node, ("", ())) if node is not None else ("", ())
            fits = bool(owner) and where[-len(path) :] == path
            owners.add((owner, where[: -len(path)]) if fits else ("", ()))
        if parts and len(owners) == 1 and (found := next(iter(owners)))[0]:
            owner, prefix = found
            if not prefix:  # another wrapper of the same value
                self.register(tensor, owner)
                return Ref(owner)
            if self.stack:
                return Ref(".".join((owner, *prefix)))
            name = self.fresh_subclass()  # the user's code took it out of another subclass
            event = self.emit(Event("attr", prefix, (Ref(owner),), {}, Ref(name), self.line(), self.in_backward()))
            event.types[name] = type_of(tensor)
            self.register(tensor, name)
            return Ref(name)
        values, context = parts_of(tensor)
        name = self.fresh_subclass()
        about = {"context": context, "size": tuple(tensor.shape), "stride": tuple(tensor.stride())}
        event = Event("build", type(tensor), None, about, Ref(name), self.line(), self.in_backward())
        if parts and all(node is not None and node.op == "placeholder" for _, node in parts):
            event.kind = "input"  # or made of inputs, which is known after tracing
            self.inputs[tuple(n for _, n in parts if n is not None)] = (name, [p for p, _ in parts])
            event.args = {k: self.ref(v) for k, v in values.items()}
            self.events.append(event)
        else:
            event.args = {k: self.ref(v) for k, v in values.items()}
            self.emit(event)
        event.types[name] = type_of(tensor)
        for path, node in parts:
            if node is not None:
                self.part.setdefault(node, (name, path))
        self.register(tensor, name)
        return Ref(name)

    def register(self, tensor: Any, name: str) -> None:
        self.names[id(tensor)] = name
        self.keep.append(tensor)
        self.objects.setdefault(name, tensor)
        self.types.setdefault(name, type_of(tensor))
        if not self.stack:
            self.known.add(name)

    def result(self, x: Any, event: Event) -> Any:
        if is_subclass(x):
            name = self.names.get(id(x))
            if name is None:
                name = self.fresh_subclass()
                self.register(x, name)
            for path, leaf in leaves_of(x):
                node = self.node_of(leaf)
                if node is not None and node.op != "placeholder":
                    self.part[node] = (name, path)  # the last one is the outermost
            event.types[name] = type_of(x)
            return Ref(name)
        if not isinstance(x, torch.Tensor):
            return x
        node = self.node_of(x)
        if node is None or node.op == "placeholder":
            return self.plain(x)
        if not self.stack:
            self.known.add(node.name)
        self.used.add(node.name)
        self.types.setdefault(node.name, type_of(x))
        event.types[node.name] = type_of(x)
        return Ref(node.name)

    # The current position.

    def line(self) -> str:
        return str(fx_traceback.current_meta.get("stack_trace") or "")

    def mark(self, before: fx.Node, meta: dict[str, Any], event: Event | None = None) -> fx.Node:
        """Sets the event and the metadata of nodes after ``before`` that have none. Returns the last node."""
        node = before.next
        root = self.tracer.graph._root
        while node is not root:
            is_number = isinstance(node.meta.get("val"), (torch.SymInt, torch.SymBool, torch.SymFloat))
            if event is not None and event.handler and STAMP not in node.meta and not is_number:
                node.meta[STAMP], node.meta[INDEX] = event, len(event.nodes)
                event.nodes.append(node)
            for key, value in meta.items():
                node.meta.setdefault(key, value)
            node = node.next
        last: fx.Node = root.prev
        return last

    # The mode.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.passing:
            self.passing = False
            return NotImplemented
        kwargs = kwargs or {}
        mode = get_proxy_mode()
        if self.quiet or mode is None or (self.tracer is not None and mode.tracer is not self.tracer):
            return func(*args, **kwargs)  # AOTAutograd computes metadata, or traces the body of a higher-order operator
        self.tracer = mode.tracer
        operands = [x for x in pytree.arg_tree_leaves(*args, **kwargs) if is_subclass(x)]
        last: fx.Node = self.tracer.graph._root.prev
        if not operands and self.stack:
            out = func(*args, **kwargs)
            self.mark(last, {LINE: line_of_subclass()})
            return out
        if operands and self.follow is not None:
            out = self.follow(func, args, kwargs)
            if out is not NotImplemented:
                return out
        event = self.begin(func, args, kwargs)
        last = self.mark(last, {REGENERATED: True})
        self.stack.append(event)
        try:
            out = self.unroll(event, func, args, kwargs, operands) if operands else func(*args, **kwargs)
            for x in pytree.tree_leaves(out):  # functionalization's pending updates belong to this call
                if isinstance(x, torch.Tensor):
                    for _, leaf in leaves_of(x):
                        self.node_of(leaf)
        finally:
            self.stack.pop()
        return self.end(event, last, out)

    def end(self, event: Event, last: fx.Node, out: Any) -> Any:
        self.mark(last, {}, event)
        event.out = pytree.tree_map(lambda x: self.result(x, event), out)
        return out

    def claimed(self, op: Any, rule: Any, args: Any, kwargs: Any) -> Any:
        mode = get_proxy_mode()
        if mode is None or (self.tracer is not None and mode.tracer is not self.tracer):
            return rule(*args, **kwargs)
        self.tracer = mode.tracer
        event = self.begin(rule, args, kwargs)
        event.handler, event.claimed = rule.__name__, op
        last: fx.Node = self.tracer.graph._root.prev
        self.stack.append(event)
        try:
            out = rule(*args, **kwargs)
        finally:
            self.stack.pop()
        return self.end(event, last, out)

    @contextmanager
    def unseen(self) -> Iterator[None]:
        graph = self.tracer.graph if self.tracer is not None else None
        last = graph._root.prev if graph is not None else None
        self.quiet = True
        try:
            yield
        finally:
            self.quiet = False
            while graph is not None and graph._root.prev is not last and not graph._root.prev.users:
                graph.erase_node(graph._root.prev)
