"""Trains a torch module on scikit-learn's handwritten digits by jax.grad, jax.jit and an optimizer of Optax's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from torch_pjrt.jax import as_jax

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))
apply, params, state = as_jax(model, dtypes="jax")
optimizer = optax.adam(1e-2)


def loss(params, state, x, labels, key):
    logits, state = apply(params, state, x, key=key)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), state


@jax.jit
def step(params, state, moments, x, labels, key):
    (value, state), gradients = jax.value_and_grad(loss, has_aux=True)(params, state, x, labels, key)
    updates, moments = optimizer.update(gradients, moments)
    return optax.apply_updates(params, updates), state, moments, value


def main() -> None:
    global params, state
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images.astype("float32") / 16, labels.astype("int32"), test_size=0.25, random_state=0)
    train_x, test_x, train_y, test_y = map(jnp.asarray, split)
    moments = optimizer.init(params)
    for i in range(200):
        at = jax.random.permutation(jax.random.key(i), len(train_x))[:128]
        params, state, moments, value = step(params, state, moments, train_x[at], train_y[at], jax.random.key(i))
        if i % 50 == 0:
            print(f"step {i}: loss {value:.3f}")
    model.eval()
    logits, _ = jax.jit(lambda params, state, x: apply(params, state, x))(params, state, test_x)
    accuracy = float((logits.argmax(-1) == test_y).mean())
    print(f"accuracy {accuracy:.3f}")
    assert accuracy > 0.95


if __name__ == "__main__":
    main()
