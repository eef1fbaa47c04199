"""``torch.compile`` without a backend: Inductor, which can't compile for this device. Graphs on it go to ``"pjrt"``."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import torch


def is_ours(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Does a tensor lie on the device, among what the graph is given or what it makes?"""
    made = (node.meta.get("example_value") for node in module.graph.nodes)
    return any(isinstance(value, torch.Tensor) and value.device.type == "pjrt" for value in (*inputs, *made))


def install() -> None:
    inductor = torch._TorchCompileInductorWrapper
    initialize, inner = inductor.__init__, inductor.__call__

    @functools.wraps(initialize)
    def init(self: Any, *arguments: Any, **options: Any) -> None:
        from torch_pjrt.dynamo import optimizers

        optimizers.install()  # Dynamo captures before it calls the backend
        initialize(self, *arguments, **options)

    @functools.wraps(inner)
    def call(self: Any, module: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        if not is_ours(module, inputs):
            return inner(self, module, inputs, **options)
        if self.config:
            warnings.warn(
                f"torch.compile: {', '.join(sorted(self.config))} (from mode or options) are Inductor's settings; a "
                "graph on 'pjrt' is compiled by backend 'pjrt', which has none of them",
                stacklevel=2,
            )
        from torch_pjrt.dynamo.backend import pjrt

        return pjrt(module, inputs)

    inductor.__init__, inductor.__call__ = init, call
