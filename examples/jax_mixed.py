"""A layer written in JAX and layers of torch in one network, trained twice: by torch, and by JAX."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import torch
from torch import nn

from torch_pjrt.jax import as_jax, from_jax, torch_view


@jax.tree_util.register_dataclass
@dataclass
class Gated:
    """A layer in JAX, in Equinox's style: a pytree of arrays that can be called."""

    weight: jax.Array
    gate: jax.Array

    def __call__(self, x):
        return (x @ self.weight) * jax.nn.sigmoid(x @ self.gate)


def target(x):
    return jnp.sin(3 * x.sum(-1, keepdims=True))


def by_jax(layer: Gated, x: jax.Array) -> float:
    head, head_params, state = as_jax(nn.Sequential(nn.Tanh(), nn.Linear(16, 1)))

    @jax.jit
    def step(both, x):
        def loss(both):
            layer, head_params = both
            return ((head(head_params, state, layer(x))[0] - target(x)) ** 2).mean()

        value, gradients = jax.value_and_grad(loss)(both)
        return jax.tree.map(lambda p, g: p - 0.1 * g, both, gradients), value

    both = layer, head_params
    for _ in range(200):
        both, value = step(both, x)
    return float(value)


class InTorch(nn.Module):
    """The JAX layer with torch parameters."""

    def __init__(self, layer: Gated) -> None:
        super().__init__()
        self.weight, self.gate = (nn.Parameter(torch_view(x).clone()) for x in (layer.weight, layer.gate))
        self.call = from_jax(lambda weight, gate, x: Gated(weight, gate)(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(self.weight, self.gate, x)


def by_torch(layer: Gated, x: jax.Array) -> float:
    model = nn.Sequential(InTorch(layer), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = torch_view(x), torch_view(target(x))
    compiled = torch.compile(lambda: ((model(inputs) - targets) ** 2).mean(), backend="pjrt", fullgraph=True)
    for _ in range(200):
        optimizer.zero_grad()
        loss = compiled()
        loss.backward()
        optimizer.step()
    return loss.item()


def main() -> None:
    torch.manual_seed(0)
    keys = jax.random.split(jax.random.key(0), 3)
    layer = Gated(jax.random.normal(keys[0], (4, 16)), jax.random.normal(keys[1], (4, 16)))
    x = jax.random.uniform(keys[2], (256, 4))
    losses = {"JAX": by_jax(layer, x), "torch": by_torch(layer, x)}
    for name, loss in losses.items():
        print(f"trained by {name}: loss {loss:.3f}")
        assert loss < 0.4


if __name__ == "__main__":
    main()
