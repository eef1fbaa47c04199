"""``torch.compile(backend="pjrt")`` on CPU tensors or on the device, with parameters frozen or not."""

from __future__ import annotations

from typing import Any

import torch

from zoo.entries import Prepared, lazy
from zoo.model import Built
from zoo.reference import step_of


def prepare(made: Built, what: str, device: str = "cpu", freeze: bool = False) -> Prepared:
    torch._dynamo.reset()
    here = lazy.moved(made) if device == "pjrt" else made
    model: Any = torch.compile(here.module, backend="pjrt", options={"freeze": True} if freeze else None)
    wait = lazy.wait if device == "pjrt" else None
    if what == "forward":

        def call() -> Any:
            with torch.no_grad():
                return model(*here.args, **here.kwargs)

        return Prepared(call, here, wait)
    step = step_of(here, model)
    return Prepared(lambda: step(*here.args, **here.kwargs), here, wait)
