"""as_jax of modules: parameters, buffers as state, modes, captured variables."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import torch_pjrt
from torch_pjrt.jax import as_jax


def close(a, b):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-4)


@pytest.fixture
def x():
    return jnp.asarray(np.random.RandomState(0).randn(6, 3).astype("float32"))


def in_torch(x):
    return torch.from_numpy(np.array(x))


def test_parameters_and_gradients(x):
    module = nn.LSTM(3, 4)
    f, params, state = as_jax(module)
    assert params.keys() == dict(module.named_parameters()).keys()
    (result, _), new_state = f(params, state, x[:2, None])
    assert new_state == {}
    expected = module(in_torch(x)[:2, None])[0]
    close(result, expected.detach())
    first = jax.grad(lambda p: (f(p, state, x[:2, None])[0][0] ** 2).sum())
    total = lambda p: sum((g**2).sum() for g in first(p).values())  # noqa: E731
    gradients, second = jax.jit(lambda p: (first(p), jax.grad(total)(p)))(params)
    parameters = dict(module.named_parameters())
    of_torch = torch.autograd.grad((expected**2).sum(), parameters.values(), create_graph=True)
    sum((g**2).sum() for g in of_torch).backward()
    for (name, parameter), gradient in zip(parameters.items(), of_torch, strict=True):
        close(gradients[name], gradient.detach())
        close(second[name], parameter.grad)


def test_running_statistics_are_returned(x):
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    f, params, state = as_jax(module, dtypes="jax")
    result, new_state = jax.jit(f)(params, state, x)
    for name, buffer in module.named_buffers():
        assert torch.equal(buffer, before[name])
    close(result, module(in_torch(x)).detach())
    for name, buffer in module.named_buffers():
        close(new_state[name], buffer)


def test_a_batch_norm_that_averages_over_all_batches(x):
    module, eager = nn.BatchNorm1d(3, momentum=None), nn.BatchNorm1d(3, momentum=None)
    f, params, state = as_jax(module)
    for scale in (1.0, 2.0):
        y, state = jax.jit(f)(params, state, scale * x)
        expected = eager(torch.from_numpy(np.asarray(scale * x).copy()))
        np.testing.assert_allclose(y, expected.detach(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(state["running_var"], eager.running_var, rtol=1e-5)


def test_counters_are_converted_and_told_of(x):
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4))
    reported = r"the counter '1.num_batches_tracked' and 1 more is of dtype torch.int64.*it is torch.int32 in the state"
    with pytest.warns(UserWarning, match=reported) as warned:
        f, params, state = as_jax(module)
    assert (len(warned), warned[0].filename) == (1, __file__)
    _, new_state = jax.jit(f)(params, state, x)
    _, new_state = jax.jit(f)(params, new_state, x)
    assert new_state["2.num_batches_tracked"].dtype == "int32"
    assert int(new_state["2.num_batches_tracked"]) == 2


def test_modes_are_seen(x):
    module = nn.BatchNorm1d(3)
    f, params, state = as_jax(module, dtypes="jax")
    trained, _ = f(params, state, x)
    module.eval()
    plain, new_state = f(params, state, x)
    close(plain, x / np.sqrt(1 + 1e-5))
    assert not np.allclose(trained, plain)
    close(new_state["running_mean"], state["running_mean"])


def test_tied_parameters_are_one(x):
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    f, params, state = as_jax(module)
    assert "1.weight" not in params
    gradients = jax.grad(lambda p: f(p, state, x)[0].sum())(params)
    module(in_torch(x)).sum().backward()
    close(gradients["0.weight"], module[0].weight.grad)


def test_what_is_closed_over_is_constant_and_reported(x):
    linear = nn.Linear(3, 2)
    f = as_jax(lambda x: linear(x) + torch.arange(2))
    with pytest.warns(UserWarning, match=r"Linear.weight, Linear.bias \(32 bytes\) are closed over.*f, params, state"):
        result = jax.jit(f)(x)
    expected = linear(in_torch(x)) + torch.arange(2)
    close(result, expected.detach())
    close(jax.grad(lambda x: f(x).sum())(x), linear.weight.detach().sum(0).expand(6, 3))


def test_closed_over_module_that_changes_is_refused(x):
    norm = nn.BatchNorm1d(3)
    with pytest.raises(
        torch_pjrt.CaptureError, match=r"writes to what it closes over \(.*running_mean.*as_jax\(module\)"
    ):
        jax.grad(lambda x: as_jax(lambda x: norm(x))(x).sum())(x)


def test_compiled_module(x):
    module = torch.compile(nn.Linear(3, 3), backend="pjrt")
    f, params, state = as_jax(module)
    close(jax.jit(f)(params, state, x)[0], module(in_torch(x)).detach())


def test_module_hooks_take_part(x):
    module = nn.Linear(3, 3)
    module.register_full_backward_hook(lambda module, gin, gout: (gin[0] * 5,))
    f, params, state = as_jax(module)
    gradient = jax.jit(jax.grad(lambda x: f(params, state, x)[0].sum()))(x)
    close(gradient, 5 * module.weight.detach().sum(0).expand(6, 3))


class Attention(nn.Module):
    """A module whose parameters have the names of those of ``as_jax``'s result."""

    def forward(self, query, key, value=None, *, state=None):
        scores = torch.softmax(query @ key.T, -1)
        return torch.dropout(scores @ (key if value is None else value), 0.5, self.training) + (
            0 if state is None else state
        )


def test_a_parameter_that_is_called_key(x):
    module = Attention().eval()
    f, params, state = as_jax(module)
    q = in_torch(x)
    expected = module(q, q + 1, state=q)
    close(f(params, state, x, key=x + 1, state=x)[0], expected)
    close(f(params, state, x, x + 1, key=jax.random.key(0), state=x)[0], expected)
    close(as_jax(lambda query, key: query - key)(x, key=x + 1), jnp.full_like(x, -1))
    f, params, state = as_jax(module.train())
    drawn = f(params, state, x, x + 1, key=jax.random.PRNGKey(0))[0]
    close(f(params, state, x, x + 1, key=jax.random.PRNGKey(0))[0], drawn)
    assert not np.allclose(drawn, f(params, state, x, x + 1, key=jax.random.PRNGKey(1))[0])


def test_tuples_of_classes_that_jax_does_not_know(x):
    most, shape = jax.jit(as_jax(lambda x: (x.max(0), x.shape), dtypes="jax"))(x)
    assert type(most) is type(shape) is tuple
    close(most[0], np.asarray(x).max(0))
    assert [int(size) for size in shape] == [6, 3]


@pytest.mark.parametrize("count", [0, 1, 3, 8, 9, 17])
def test_masks_that_the_function_makes(count):
    pattern = [i % 3 != 1 for i in range(count)]

    def masked(x):
        mask = torch.tensor(pattern, dtype=torch.bool, device=x.device)
        return mask, torch.where(mask, x, -1), torch.tensor(count > 1, device=x.device)

    values = jnp.arange(float(count))
    mask, result, whole = jax.jit(as_jax(masked))(values)
    assert mask.tolist() == pattern
    assert result.tolist() == [float(i) if kept else -1.0 for i, kept in enumerate(pattern)]
    assert bool(whole) == (count > 1)
