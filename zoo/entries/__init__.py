"""Ways to run a model: each file prepares a module and its arguments for one entry point of torch-pjrt."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

from zoo.model import Built


class Refused(Exception):
    """Raised if the entry point doesn't support the cell, as its documentation says."""


@dataclasses.dataclass
class Prepared:
    """A model at an entry point.

    Args:
        call: runs the model, or one training step, and returns the results or the loss.
        made: the module that steps change.
        wait: waits for results, if ``call`` doesn't.
        values: returns the values that steps have changed, if they are not in the module.
    """

    call: Callable[[], Any]
    made: Built
    wait: Callable[[], object] | None = None
    values: Callable[[Any], dict[str, Any]] | None = None


@dataclasses.dataclass(frozen=True)
class Entry:
    """A pair of columns of the table.

    Args:
        module: the file of this folder whose ``prepare(made, what, **options)`` returns a ``Prepared``.
        environment: additional variables of the worker process.
    """

    name: str
    module: str
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    whats: tuple[str, ...] = ("forward", "step")
    dtypes: tuple[str, ...] = ("float32",)
    environment: tuple[tuple[str, str], ...] = ()
    is_timed: bool = True

    def prepare(self, made: Built, what: str) -> Prepared:
        return importlib.import_module(f"zoo.entries.{self.module}").prepare(made, what, **self.options)


@dataclasses.dataclass
class Settings:
    """Settings that the conductor passes to its workers."""

    is_timed: bool = True
    pjrt_run: str = ""  # the command's path


settings = Settings()
BOTH = ("float32", "bfloat16")
FORWARD, STEP = ("forward",), ("step",)
ENTRIES = {
    entry.name: entry
    for entry in (
        Entry("export", "files", dtypes=BOTH),
        Entry("jit", "captured", {"how": "jit"}, FORWARD),
        Entry("compile_step", "captured", {"how": "compile_step"}, STEP),
        Entry("freeze", "compiled", {"freeze": True}, FORWARD),
        Entry("jax", "jax"),
        Entry("compile", "compiled", dtypes=BOTH),
        Entry("compile-pjrt", "compiled", {"device": "pjrt"}),
        Entry("lazy-auto", "lazy", {"policy": "auto"}, dtypes=BOTH),
        Entry("lazy-first", "lazy", {"policy": "first"}),
        Entry("lazy-never", "lazy", {"policy": "never"}),
        Entry("pjrt-run", "files", {"by_command": True}, FORWARD, is_timed=False),
        Entry("world", "world", environment=(("TORCH_PJRT_CPU_DEVICES", "2"),), is_timed=False),
    )
}
