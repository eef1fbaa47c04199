"""A process that runs a part's items on request: worker.py MODULE FILE-DESCRIPTOR --device D [--tiny].

It lists its items, reads lines ``prepare NAME`` and ``run NAME`` from standard input, and reports on each through the
descriptor, a line of JSON at a time; standard output is for the programs' own output. It may be killed at any time.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import inspect
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Values = dict[str, Any]


class Skip(Exception):
    """Raised by an item that doesn't apply to this device, with the reason."""


@dataclass(frozen=True)
class Setting:
    """The device and the size, an argument of every item."""

    device: str  # of the tensors of compiled functions: "cuda", in a rehearsal "cpu"
    tiny: bool = False
    report: Callable[[Values], None] = print  # for values that are known before the item is over
    limit: float = 1e9  # seconds for the item

    def synchronize(self) -> None:
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()


@dataclass(frozen=True)
class Item:
    """A measurement or test. ``run`` returns its values or raises; a generator yields once, when it can be timed."""

    name: str
    run: Callable[[Setting], Values] | Callable[[Setting], Generator[None, None, Values]]
    limit: float = 60.0  # seconds
    group: str = ""  # consecutive items of one group are prepared side by side
    together: int = 1  # number of items of the group that are prepared together
    environment: dict[str, str] = field(default_factory=dict)  # for its process

    def reported(self) -> Values:
        return {key: value for key, value in vars(self).items() if key != "run"}


def forget() -> None:
    """Resets global state between items."""
    gc.collect()
    if "torch" in sys.modules:
        import torch

        torch._dynamo.reset()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("descriptor", type=int)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()

    def report(**message: Any) -> None:
        os.write(options.descriptor, (json.dumps(message) + "\n").encode())

    folder = Path(options.module).parent
    sys.path[:0] = [str(folder.resolve()), str(HERE), str(HERE.parent), str(HERE.parent.parent)]
    module = importlib.import_module(Path(options.module).stem)
    setting = Setting(options.device, options.tiny, lambda values: report(progress=values))
    items: dict[str, Item] = {item.name: item for item in module.items(setting)}
    report(items=[item.reported() for item in items.values()])
    prepared: dict[str, Generator[None, None, Values]] = {}
    for line in sys.stdin:
        verb, name = line.rstrip("\n").split(" ", 1)
        start = time.monotonic()
        message: Values = {"status": "passed", "values": {}}
        try:
            work = prepared.pop(name, None)
            if work is None and (verb == "run" or inspect.isgeneratorfunction(items[name].run)):
                work = items[name].run(dataclasses.replace(setting, limit=items[name].limit))
            if isinstance(work, Generator):
                try:
                    next(work)
                    if verb == "prepare":
                        prepared[name] = work
                    else:
                        next(work)
                except StopIteration as end:
                    message["values"] = end.value
            elif work is not None:
                message["values"] = work
        except Skip as why:
            message = {"status": "skipped", "error": str(why)}
        except Exception as error:
            traceback.print_exc()
            message = {"status": "failed", "error": f"{type(error).__name__}: {error}"[:2000]}
        if verb == "run" or message["status"] != "passed":
            work = None  # releases everything that it holds
            forget()
        report(end=name, seconds=time.monotonic() - start, **message)


if __name__ == "__main__":
    from worker import main as work  # so that Skip is one class: the items import it from `worker`, too

    work()
