"""Calls between JAX and PyTorch, each against the same mathematics in the calling library."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from measure import Result, compare
from torch_pjrt.jax import as_jax, call_jax, jax_view, torch_view

WIDTH = 64


def ready(fn: Callable[..., Any], *args: Any) -> Callable[[], object]:
    return lambda: jax.block_until_ready(fn(*args))


def torch_layer(x: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> Any:
    q, k, v = (x @ qkv).chunk(3, -1)
    x = x + torch.softmax(q @ k.mT / WIDTH**0.5, -1) @ v @ out
    return x + torch.tanh(x @ up) @ down


def jax_layer(x: Any, qkv: Any, out: Any, up: Any, down: Any) -> Any:
    q, k, v = jnp.split(x @ qkv, 3, -1)
    x = x + jax.nn.softmax(q @ k.mT / WIDTH**0.5, -1) @ v @ out
    return x + jnp.tanh(x @ up) @ down


def layer_arrays() -> list[Any]:
    numbers = np.random.RandomState(0)
    shapes = [(4, 32, WIDTH), (WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
    return [jnp.asarray(numbers.randn(*shape).astype("float32") / 8) for shape in shapes]


def gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(jax.grad(lambda *args: f(*args).sum(), (0, 1, 2, 3, 4)))


def capture_of_bert_layer() -> Result:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    layer = BertLayer(BertConfig(attn_implementation="sdpa")).eval()
    f, params, state = as_jax(layer)
    x = jnp.zeros((1, 128, 768))
    start = time.perf_counter()
    jax.jit(lambda params, x: f(params, state, x)[0]).trace(params, x)
    spent = time.perf_counter() - start
    return Result("as_jax, capture of a BERT layer", spent, 0.3, spent / 0.3, 1, against="the target")


def measure() -> list[Result]:
    one, arrays = jnp.ones(4), layer_arrays()
    big = jnp.zeros(1 << 18)
    tensor = torch.zeros(1 << 18)
    results = [
        compare("as_jax, x + 1", ready(jax.jit(as_jax(lambda x: x + 1)), one),
                ready(jax.jit(lambda x: x + 1), one), 1.1, against="JAX"),
        compare("as_jax, a transformer layer", ready(jax.jit(as_jax(torch_layer)), *arrays),
                ready(jax.jit(jax_layer), *arrays), 1.1, against="JAX"),
        compare("as_jax, its gradient", ready(gradient(as_jax(torch_layer)), *arrays),
                ready(gradient(jax_layer), *arrays), 1.1, against="JAX"),
    ]  # fmt: skip
    tensors = [torch.from_numpy(np.array(array)) for array in arrays]
    ours = torch.compile(lambda *args: call_jax(jax_layer, *args), backend="pjrt", fullgraph=True)
    reference = torch.compile(torch_layer, backend="pjrt", fullgraph=True)
    with torch.no_grad():
        results.append(
            compare(
                "call_jax under torch.compile",
                lambda: ours(*tensors),
                lambda: reference(*tensors),
                1.1,
                against="torch",
            )
        )
    for name, view in (("torch_view", lambda: torch_view(big)), ("jax_view", lambda: jax_view(tensor))):
        view()
        start = time.perf_counter()
        for _ in range(1000):
            view()
        spent = (time.perf_counter() - start) / 1000
        results.append(Result(f"{name} of 1 MiB", spent, 20e-6, spent / 20e-6, 1, against="the target"))
    results.append(capture_of_bert_layer())
    return results
