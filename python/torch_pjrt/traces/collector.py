"""Receives one graph from the backend, and makes the stages of a trace of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from torch_pjrt.program.shown import showing
from torch_pjrt.program.subclasses import is_opaque
from torch_pjrt.traces import rules
from torch_pjrt.traces.naming import Names, identifiers, snake_case
from torch_pjrt.traces.prologue import prologue
from torch_pjrt.traces.recorder import Recorder
from torch_pjrt.traces.source import Source
from torch_pjrt.traces.subclassed import Subclassed
from torch_pjrt.traces.trace import Trace, Traces
from torch_pjrt.traces.types import number_of, type_of
from torch_pjrt.traces.unrolled import Accounts, Unrolled, objects_of
from torch_pjrt.traces.written import as_written

Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


class Collector:
    def __init__(
        self, traces: Traces, module: fx.GraphModule, example_inputs: Sequence[Any], inputs: Sequence[str]
    ) -> None:
        number = traces.graphs
        traces.graphs += 1
        self.traces, self.suffix = traces, f" (graph {number})" if number else ""
        self.ending = f"_{number}" if number else ""
        self.recorder = Recorder()
        shown = identifiers(
            [snake_case(type_of(x)) if is_opaque(x) else n for n, x in zip(inputs, example_inputs, strict=True)]
        )
        self.names = Names(shown)
        source = Source()
        self.prologue = prologue(shown, example_inputs, source)
        symbols = [f"{value} = {number_of(value)}" for value in example_inputs if isinstance(value, torch.SymInt)]
        if symbols:
            self.prologue.append(f"sizes: {', '.join(dict.fromkeys(symbols))} where the text has numbers for them")
        as_written(module, shown, source)
        self.add("as written", "as_written", source)

    def add(self, stage: str, name: str, source: Source) -> None:
        self.traces.append(Trace.of(stage + self.suffix, name, source, self.prologue, label=name + self.ending))

    @contextmanager
    def recording(self) -> Iterator[None]:
        with rules.active(self.recorder), self.recorder:
            yield

    def inference(self, module: fx.GraphModule) -> None:
        outer = Subclassed(self.recorder, module.graph, self.names)
        accounts = Accounts(module.graph, self.recorder)
        accounts.show("forward", module.graph)
        source = Source()
        self.add("forward, with subclasses", outer.write("all", source), source)
        source = Source()
        Unrolled(module.graph, self.names, outer, accounts, objects_of(self.recorder, module.graph)).write(
            "forward", source
        )
        self.add("forward, unrolled", "forward", source)

    def split(self, partition: Partition, joint: fx.GraphModule, inputs: Any, options: dict[str, Any]) -> Any:
        """Adds the stages of the joint graph, and of the two graphs that the partitioner makes of it."""
        outer = Subclassed(self.recorder, joint.graph, self.names)
        accounts = Accounts(joint.graph, self.recorder)
        objects = objects_of(self.recorder, joint.graph)
        for which in ("forward", "backward"):
            source = Source()
            self.add(f"{which}, with subclasses", outer.write(which, source), source)
        parts = partition(joint, inputs, **options)
        for which, part in zip(("forward", "backward"), parts, strict=True):
            accounts.show(which, part.graph)
        for which, part in zip(("forward", "backward"), parts, strict=True):
            source = Source()
            unrolled = Unrolled(part.graph, self.names, outer, accounts, objects)
            unrolled.write(which, source, has_backward=which == "forward")
            self.add(f"{which}, unrolled", which, source)
        self.traces.accounts.append(accounts)
        return parts

    @contextmanager
    def compiling(self, which: str) -> Iterator[None]:
        """Adds the programs that are compiled in the block."""

        def report(text: str) -> None:
            stage = f"StableHLO of the {which}{self.suffix}"
            self.traces.append(Trace(stage, f"stablehlo_{which}{self.ending}", text, "mlir"))

        with showing(report):
            yield
