"""The top of a trace: the subclasses for which it was made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch_pjrt.program.subclasses import Form, form_of
from torch_pjrt.traces.source import Source


def relies_on(name: str, form: Form, source: Source) -> Iterator[str]:
    inside = ", ".join(f".{part}" for part, _ in form.parts) or "no tensors"
    yield f"{name} is a {form.cls.__name__} of {inside}; context {source.value(form.context)}"
    for part, inner in form.parts:
        if inner is not None:
            yield from relies_on(f"{name}.{part}", inner, source)


def prologue(names: Sequence[str], values: Sequence[Any], source: Source) -> list[str]:
    """Returns lines with the subclasses of the program's arguments; other subclasses need another program."""
    forms = [(name, form) for name, value in zip(names, values, strict=True) if (form := form_of(value)) is not None]
    return [line for name, form in forms for line in relies_on(name, form, source)]
