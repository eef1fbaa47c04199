"""torch_view and jax_view: in JAX's transformations, and for concrete arrays."""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import torch_pjrt
from torch_pjrt.jax import jax_view, torch_view, views

X = jnp.asarray(np.random.RandomState(0).randn(4, 3).astype("float32"))
W = jnp.asarray(np.random.RandomState(1).randn(3, 3).astype("float32"))


def copies():
    return torch_pjrt.metrics()["copies_on_write"]


def by_torch(x, w):
    t = torch_view({"x": x})["x"]
    t += 1
    return jnp.sin(jax_view(torch.tanh(t @ torch_view(w)))) * 2


def by_jax(x, w):
    return jnp.sin(jnp.tanh((x + 1) @ w)) * 2


def close(a, b):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: f,
        lambda f: jax.jit(jax.grad(lambda x: (f(x, W) ** 2).sum())),
        lambda f: jax.jit(jax.hessian(lambda x: f(x, W).sum())),
        lambda f: jax.vmap(jax.grad(lambda x: f(x, W).sum())),
    ],
    ids=["none", "grad", "hessian", "vmap of grad"],
)
def test_in_the_middle_of_a_jax_function(transform):
    close(transform(lambda x, w=W: by_torch(x, w))(X), transform(lambda x, w=W: by_jax(x, w))(X))


def test_whole_numbers_have_no_gradient_and_keys_are_given():
    def f(x, i, key):
        t = torch_view(x)[torch_view(i).long()]
        return jax_view(torch.nn.functional.dropout(t, 0.5), key=key).sum()

    i, key = jnp.asarray([0, 2], dtype="int32"), jax.random.key(0)
    gradient = jax.jit(jax.grad(f))(X, i, key)
    assert set(np.unique(gradient[1])) == {0}
    assert set(np.unique(gradient[jnp.asarray([0, 2])])) <= {0, 2}
    with pytest.raises(RuntimeError, match="no key was given"):
        jax.jit(lambda x: jax_view(torch.rand_like(torch_view(x))))(X)


def test_compiled_torch_code_in_the_middle():
    w = torch.from_numpy(np.array(W)).to("pjrt")
    step = torch.compile(lambda t: torch.tanh((t + 1) @ w), backend="pjrt")
    close(step(torch.from_numpy(np.array(X)).to("pjrt")).cpu(), jnp.tanh((X + 1) @ W))
    f = jax.jit(jax.value_and_grad(lambda x: (jnp.sin(jax_view(step(torch_view(x)))) * 2).sum()))
    for got, wanted in zip(f(X), jax.value_and_grad(lambda x: by_jax(x, W).sum())(X), strict=True):
        close(got, wanted)


def test_what_was_pending_beside_views_can_be_read():
    beside = torch.ones(3, device="pjrt") * 3
    close(jax.jit(lambda x: jax_view(torch_view(x) * beside))(X), X * 3)
    assert beside.tolist() == [3, 3, 3]


def test_nothing_is_kept():
    def kept():
        jax.clear_caches()
        gc.collect()
        views._sweep()
        return len(views._sources)

    before = kept()
    for _ in range(3):
        jax.jit(jax.grad(lambda x: by_torch(x, W).sum()))(X + 0)
    assert kept() <= before


def test_memory_of_arrays_is_shared_and_never_written():
    array = jnp.arange(1 << 18, dtype="float32")
    tensor = torch_view(array)
    torch_pjrt.reset_metrics()
    assert tensor[3:5].sum() == 7
    assert tensor.untyped_storage().nbytes() == array.nbytes
    assert copies() == 0
    tensor[3:5].mul_(100)
    tensor.add_(1)
    assert copies() == 1
    assert array[3] == 3
    assert tensor[3] == 301


def test_memory_of_tensors_is_shared_and_never_changes_under_jax():
    tensor = torch.arange(1 << 18, dtype=torch.float32)
    address = tensor.data_ptr()
    array = jax_view(tensor)
    torch_pjrt.reset_metrics()
    assert array.unsafe_buffer_pointer() == address
    assert copies() == 0
    view = tensor[2:]
    view.add_(1)
    tensor.add_(1)
    assert copies() == 1
    np.testing.assert_array_equal(array[:4], [0, 1, 2, 3])
    assert tensor[:4].tolist() == [1, 2, 4, 5]
    assert tensor.data_ptr() != address
    del array
    array = jax_view(tensor)
    del array
    address = tensor.data_ptr()
    tensor.add_(1)  # nothing else holds the memory
    assert tensor.data_ptr() == address


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(3.0).expand(2, 3),
        torch.tensor([1 + 2j, 3 - 1j]).conj(),
        torch.from_numpy(np.arange(3, dtype="float32")),
        torch.tensor([True, False]),
        torch.tensor([1.5, -2.25], dtype=torch.bfloat16),
        torch.arange(3.0, device="pjrt") * 2,
        torch.tensor(3.0),
        torch.zeros(0, 3),
    ],
    ids=["strided", "expanded", "conjugate", "numpy", "bool", "bfloat16", "pjrt", "0-d", "empty"],
)
def test_tensors_of_every_kind(tensor):
    array = jax_view(tensor)
    back = torch_view(array)
    assert array.shape == tuple(tensor.shape)
    assert back.dtype == tensor.dtype
    torch.testing.assert_close(back, tensor.cpu().resolve_conj())
