"""JAX functions in torch: eager, recorded and compiled; differentiated and batched by torch."""

from __future__ import annotations

import gc
import sys

import jax
import jax.numpy as jnp
import pytest
import torch

import torch_pjrt
from torch_pjrt.jax import as_jax, call_jax, from_jax, functions

call_jax_module = sys.modules["torch_pjrt.jax.call_jax"]
DEVICES = ["cpu", "pjrt"]
BIG = jnp.ones((3, 3)) * 2


def by_jax(x, w):
    return jnp.tanh(x @ w)


def by_torch(x, w):
    return torch.tanh(x @ w)


def close(a, b, tolerance=1e-3):
    torch.testing.assert_close(a.cpu(), b.cpu(), rtol=tolerance, atol=tolerance)


@pytest.fixture(params=DEVICES)
def tensors(request):
    torch.manual_seed(0)
    x, w = torch.randn(4, 3), torch.randn(3, 3)
    return x.to(request.param).requires_grad_(), w.to(request.param).requires_grad_()


def square(g):
    return lambda x, w: (g(x, w) ** 2).sum()


def test_gradients_of_two_orders(tensors):
    g = from_jax(by_jax)
    close(g(*tensors), by_torch(*tensors))
    first = [torch.autograd.grad(square(f)(*tensors), tensors, create_graph=True) for f in (g, by_torch)]
    second = [torch.autograd.grad(sum((x**2).sum() for x in each), tensors) for each in first]
    for got, expected in zip(first[0] + second[0], first[1] + second[1], strict=True):
        close(got, expected)


TRANSFORMS = {
    "grad": lambda f: torch.func.grad(square(f), (0, 1)),
    "vmap": lambda f: lambda x, w: torch.func.vmap(f, (0, None))(torch.stack([x, x + 1]), w),
    "vmap of grad": lambda f: (
        lambda x, w: torch.func.vmap(torch.func.grad(square(f)), (1, None), 1)(torch.stack([x, x + 1], 1), w)
    ),
    "grad of vmap": lambda f: torch.func.grad(
        lambda x, w: torch.func.vmap(f, (0, None))(torch.stack([x, x + 1]), w).sum(), (0, 1)
    ),
    "jvp": lambda f: lambda x, w: torch.func.jvp(lambda x: f(x, w), (x,), (x,)),
    "hessian": lambda f: torch.func.hessian(square(f)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_function_transforms(tensors, name):
    x, w = (tensor.detach() for tensor in tensors)
    got, expected = (TRANSFORMS[name](f)(x, w) for f in (from_jax(by_jax), by_torch))
    for a, b in zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(expected), strict=True):
        close(a, b)


def test_structures_statics_and_constants(tensors):
    x = tensors[0].detach()
    result = call_jax(lambda d, n, axis: {"sum": d["x"].sum(axis) * n, "none": None}, {"x": x}, 2, axis=0)
    close(result["sum"], x.sum(0) * 2)
    assert result["none"] is None
    close(call_jax(lambda x: x @ BIG, x), x @ torch.full((3, 3), 2.0, device=x.device))
    loop = call_jax(lambda x: jax.lax.scan(lambda c, a: (c + a, c), x[0] * 0, x)[0], x)
    close(loop, x.sum(0))
    index = torch.tensor([0, 2], dtype=torch.int32, device=x.device)
    close(call_jax(lambda x, i: x[i], x, index), x[[0, 2]])


def compiled(fn):
    return torch.compile(fn, backend="pjrt", fullgraph=True)


def test_under_torch_compile(tensors):
    inner = jax.jit(lambda x, w: as_jax(by_torch)(x, w) @ BIG)  # torch in JAX in torch
    fn = compiled(lambda x, w: (call_jax(inner, x * 2, w) ** 2).sum())
    expected = ((by_torch(tensors[0] * 2, tensors[1]) @ torch.full((3, 3), 2.0, device=tensors[0].device)) ** 2).sum()
    close(fn(*tensors), expected)
    gradients = torch.autograd.grad(expected, tensors)
    for got, wanted in zip(torch.autograd.grad(fn(*tensors), tensors), gradients, strict=True):
        close(got, wanted)


def test_captured_by_jit_and_compile_step(tensors):
    x = tensors[0].detach()
    w = tensors[1].detach()
    close(torch_pjrt.jit(lambda x, w: call_jax(by_jax, x, w) + 1, (x, w))(x, w), by_torch(x, w) + 1)
    layers = []
    for f in (from_jax(by_jax), by_torch):
        torch.manual_seed(1)
        layer = torch.nn.Linear(3, 3).to(x.device)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

        def step(x, w, f=f, layer=layer, optimizer=optimizer):
            optimizer.zero_grad()
            loss = square(f)(layer(x), w)
            loss.backward()
            optimizer.step()
            return loss

        if f is not by_torch:
            step = torch_pjrt.compile_step(step)
        for _ in range(2):
            loss = step(x, w)
        layers.append((layer, loss))
    close(layers[0][1], layers[1][1])
    close(layers[0][0].weight.detach(), layers[1][0].weight.detach())


@pytest.mark.compiled
def test_on_the_device_it_is_a_node_like_others():
    x, w = torch.randn(4, 3, device="pjrt"), torch.randn(3, 3, device="pjrt")
    g = from_jax(by_jax)
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()
    for _ in range(3):
        y = g(x.sin(), w) + 1
        torch_pjrt.sync(y)
    metrics = torch_pjrt.metrics()
    assert metrics["executions"] == 3
    assert metrics["graphs_compiled"] + metrics["graphs_loaded_from_disk"] == 1
    text = torch_pjrt.to_graph(lambda x, w: g(x, w) + 1, x, w)
    assert "jax::by_jax(" in text


def test_random_numbers_and_pallas():
    from jax.experimental import pallas as pl

    x = torch.randn(4, 3)
    key = jax.random.key(3)
    drawn = call_jax(lambda x: x + jax.random.normal(key, x.shape), x)
    close(drawn, x + torch.from_dlpack(jax.random.normal(key, (4, 3))))

    def kernel(given, result):
        result[...] = given[...] * 2

    def doubled(x):
        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x)

    close(call_jax(doubled, x), x * 2)


def test_programs_of_eager_calls_are_few(monkeypatch):
    for registry in (functions._programs, call_jax_module._callables):
        monkeypatch.setattr(registry, "kept", 3)
    x, w = torch.ones(4, 3, requires_grad=True), torch.ones(3, 3)
    early = call_jax(lambda x: by_jax(x, w.shape[0] * jnp.eye(3)), x)
    kept = compiled(lambda x: call_jax(by_jax, x, w))
    kept(x.detach())

    def alive():
        gc.collect()
        return len(functions._programs.all), len(call_jax_module._callables.all)

    before = alive()
    g = from_jax(jnp.sin)
    for size in (1, 2, 3, 4, 5, 1):
        x_ = torch.arange(float(size))
        close(g(x_), x_.sin())
        call_jax(lambda x, n=size: x * n, x_)
    assert all(now - then <= 4 for now, then in zip(alive(), before, strict=True))
    torch_pjrt.reset_metrics()
    g(torch.arange(1.0))  # one of the last three
    assert torch_pjrt.metrics()["graphs_compiled"] + torch_pjrt.metrics()["graphs_loaded_from_disk"] == 0
    early.sum().backward()  # programs that autograd or compiled code holds are alive
    close(kept(x.detach()), by_torch(x.detach(), w))
