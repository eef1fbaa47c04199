"""``torch_pjrt.jax.as_jax``: the model inside ``jax.jit``, its gradients by ``jax.value_and_grad``."""

from __future__ import annotations

from typing import Any

import jax
import torch
from torch import nn

from torch_pjrt.jax import as_jax
from zoo.entries import Prepared
from zoo.entries.captured import of_tensors
from zoo.model import Built
from zoo.reference import RATE, loss_of
from zoo.values import Values, leaves

jax.config.update("jax_enable_x64", True)


class Flat(nn.Module):
    """The module as a function of tensors only, whose results JAX knows: a list, or the loss."""

    def __init__(self, made: Built, what: str) -> None:
        super().__init__()
        self.module, self.what = made.module, what
        self.__dict__["call"], _ = of_tensors(made)

    def forward(self, *tensors: torch.Tensor) -> Any:
        result = self.call(*tensors)
        return loss_of(result) if self.what == "step" else [tensor for _, tensor in leaves(result)]


def prepare(made: Built, what: str) -> Prepared:
    flat = Flat(made, what).train(made.module.training)
    f, params, state = as_jax(flat)
    arrays = [jax.numpy.asarray(tensor.numpy()) for tensor in of_tensors(made)[1]]
    key = jax.random.key(0)
    if what == "forward":
        forward = jax.jit(lambda p, s, xs: f(p, s, *xs, key=key)[0])
        return Prepared(lambda: [torch.from_dlpack(x) for x in forward(params, state, arrays)], made)
    step = jax.jit(jax.value_and_grad(lambda p, s, xs: f(p, s, *xs, key=key), has_aux=True))
    held: dict[str, Any] = {"parameter": params, "buffer": state}

    def call() -> Any:
        (loss, held["buffer"]), held["gradient"] = step(held["parameter"], held["buffer"], arrays)
        held["parameter"] = {name: p - RATE * held["gradient"][name] for name, p in held["parameter"].items()}
        return loss

    def values(loss: Any) -> Values:
        found = {"loss": torch.from_dlpack(loss)}
        for kind, arrays in held.items():
            found |= {f"{kind} {name.removeprefix('module.')}": torch.from_dlpack(x) for name, x in arrays.items()}
        return found

    return Prepared(call, made, values=values)
