"""as_jax under JAX's transformations, compared with the same mathematics in JAX, or with torch itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from jax import lax
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_pjrt.jax import as_jax

RNG = np.random.RandomState(0)


def values(*shape):
    return jnp.asarray(RNG.randn(*shape).astype("float32"))


X, W = values(4, 3), values(3, 3)
XS, WS = jnp.stack([X, X + 1, X * 2]), jnp.stack([W, W + 1, W * 2], 2)


def by_torch(x, w):
    return torch.tanh(x @ w)


def by_jax(x, w):
    return jnp.tanh(x @ w)


def assert_same(got, expected, tolerance=2e-3):
    got, expected = jax.tree.leaves(got), jax.tree.leaves(expected)
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)
        assert np.asarray(a).shape == np.asarray(b).shape


def loss(g):
    return lambda x, w: (g(x, w) ** 2).sum()


def scanned(g):
    return lambda x, w: lax.scan(lambda carry, _: (g(carry, w), carry.sum()), x, None, length=4)


def with_custom_vjp(g):
    @jax.custom_vjp
    def h(x, w):
        return g(x, w)

    h.defvjp(lambda x, w: (g(x, w), (x, w)), lambda kept, ct: (2 * ct @ kept[1].T, None))
    return h


def exported(g):
    whole = jax.export.export(jax.jit(jax.grad(loss(g), (0, 1))))(X, W)
    return jax.export.deserialize(whole.serialize()).call


def grad_after_export(g):
    whole = jax.export.export(jax.jit(loss(g)))(X, W).serialize(vjp_order=1)
    return jax.grad(lambda x, w: jax.export.deserialize(whole).call(x, w), 1)


TRANSFORMS = {
    "none": lambda g: g,
    "jit": jax.jit,
    "grad": lambda g: jax.grad(loss(g), (0, 1)),
    "jit of value_and_grad": lambda g: jax.jit(jax.value_and_grad(loss(g), 1)),
    "vjp": lambda g: lambda x, w: jax.vjp(g, x, w)[1](g(x, w)),
    "jvp": lambda g: lambda x, w: jax.jvp(g, (x, w), (x, w)),
    "jvp of one": lambda g: lambda x, w: jax.jvp(lambda x: g(x, w), (x,), (x,)),
    "linearize": lambda g: lambda x, w: jax.linearize(g, x, w)[1](x, w),
    "jacfwd": jax.jacfwd,
    "jacrev": jax.jacrev,
    "hessian": lambda g: jax.hessian(loss(g), (0, 1)),
    "third derivative": lambda g: lambda x, w: jax.grad(jax.grad(jax.grad(lambda s: g(s * x, w).sum())))(0.3),
    "grad of jit of grad": lambda g: jax.grad(lambda x, w: (jax.jit(jax.grad(loss(g)))(x, w) ** 2).sum(), (0, 1)),
    "scan": lambda g: jax.jit(scanned(g)),
    "grad of scan": lambda g: jax.jit(jax.grad(lambda x, w: (scanned(g)(x, w)[0] ** 2).sum(), (0, 1))),
    "while_loop": lambda g: lambda x, w: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, g(c[1], w)), (0, x)),
    "fori_loop": lambda g: jax.jit(lambda x, w: lax.fori_loop(0, 3, lambda i, c: g(c, w), x)),
    "grad of cond": lambda g: jax.grad(
        lambda x, w: lax.cond(x.sum() > 0, lambda: g(x, w), lambda: g(-x, w)).sum(), (0, 1)
    ),
    "switch": lambda g: jax.jit(lambda x, w: lax.switch(1, [lambda: x, lambda: g(x, w)])),
    "checkpoint": lambda g: jax.jit(jax.grad(loss(jax.checkpoint(g)), (0, 1))),
    "custom_vjp": lambda g: jax.grad(loss(with_custom_vjp(g))),
    "export": exported,
    "grad after export": grad_after_export,
    "donation": lambda g: lambda x, w: jax.jit(g, donate_argnums=0)(x + 0, w),
}
BATCHES = {
    "vmap": lambda g: jax.vmap(g, (0, 2)),
    "vmap, shared": lambda g: jax.vmap(g, (0, None)),
    "jit of vmap of grad": lambda g: jax.jit(jax.vmap(jax.grad(loss(g), 1), (0, 2))),
    "grad of vmap": lambda g: jax.grad(lambda x, w: (jax.vmap(g, (0, 2))(x, w) ** 2).sum(), (0, 1)),
    "grad of vmap, shared": lambda g: jax.grad(lambda x, w: (jax.vmap(g, (0, None))(x, w[..., 0]) ** 2).sum(), (0, 1)),
    "grad of vmap of vmap": lambda g: jax.grad(
        lambda x, w: (jax.vmap(jax.vmap(g, (None, 1)), (0, None))(x, w) ** 2).sum(), (0, 1)
    ),
    "vmap of jvp of grad": lambda g: jax.vmap(lambda x, w: jax.jvp(jax.grad(loss(g)), (x, w), (x, w))[1], (0, None)),
    "jacrev of vmap": lambda g: lambda x, w: jax.jacrev(jax.vmap(g, (0, None)))(x, w[..., 0]),
    "vmap of grad of scan": lambda g: jax.vmap(jax.grad(lambda x, w: (scanned(g)(x, w)[0] ** 2).sum(), (0, 1)), (0, 2)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform(name):
    transform = TRANSFORMS[name]
    outer = (
        (lambda f: f) if name in ("none", "donation", "export") else jax.jit
    )  # one program compiles sooner than many
    assert_same(outer(transform(as_jax(by_torch)))(X, W), outer(transform(by_jax))(X, W))


@pytest.mark.parametrize("name", BATCHES)
def test_batch(name):
    w = WS[..., 0] if name in ("vmap, shared", "vmap of jvp of grad") else WS
    transform = BATCHES[name]
    assert_same(jax.jit(transform(as_jax(by_torch)))(XS, w), jax.jit(transform(by_jax))(XS, w))


def test_shard_map_and_sharded_jit():
    mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec
    f, x = as_jax(by_torch), values(8, 3)

    def sharded(g):
        inside = lambda x, w: lax.psum(loss(g)(x, w), "d")  # noqa: E731
        return jax.shard_map(inside, mesh=mesh, in_specs=(spec("d"), spec()), out_specs=spec())

    assert_same(jax.jit(jax.grad(sharded(f), (0, 1)))(x, W), jax.grad(loss(by_jax), (0, 1))(x, W))
    spread = jax.device_put(x, jax.NamedSharding(mesh, spec("d")))
    result = jax.jit(f)(spread, W)
    assert_same(result, by_jax(x, W))
    assert result.sharding.spec == spec("d")


def test_it_is_one_program():
    text = jax.jit(jax.grad(loss(as_jax(by_torch)), (0, 1))).lower(X, W).compile().as_text()
    assert "callback" not in text
    assert text.count(" tanh(") == 1  # the backward's is the forward's
    assert text.count(" dot(") == 3


# --- what else torch can do, against torch itself ---------------------------------------------------------------------


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


def hooked(x):
    y = torch.sin(x)
    y.retain_grad()
    y.register_hook(lambda gradient: gradient * 10)
    return y * x


def written(x, y):
    z = x * 2
    z[1:] += y
    return z.mul_(z.sigmoid())


INDICES = jnp.asarray([0, 2, 2, 1], dtype="int32")
FUNCTIONS = {
    "elementwise": (lambda x, y: torch.sin(x) * y + torch.exp(y), (4, 3), (3,)),
    "linear": (lambda w, x: F.linear(x, w), (5, 3), (4, 3)),
    "batch norm": (lambda x, w: F.batch_norm(x, None, None, w, None, training=True), (8, 3, 4), (3,)),
    "custom Function": (lambda x: Straight.apply(x) * x, (4, 3)),
    "hook": (hooked, (4, 3)),
    "LSTM": (lambda x, h, w, u: torch.lstm_cell(x, (h, h.cos()), w, u)[0], (2, 3), (2, 2), (8, 3), (8, 2)),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *[(2, 5, 4)] * 3),
    "convolution": (lambda w, x: F.max_pool2d(F.conv2d(x, w, padding=1), 2), (2, 3, 3, 3), (2, 3, 4, 4)),
    "scatter": (lambda x, i, s: x.index_add(0, i.long(), s), (5, 3), INDICES, (4, 3)),
    "in-place": (written, (4, 3), (3, 3)),
    "maximum of all": (lambda x: x.max() * x, (4, 3)),  # its gradient reads a value where torch has no modes
    "eigh": (lambda x: torch.linalg.eigh(x + x.mT)[0], (3, 3)),
    "solve": (lambda x, b: torch.linalg.solve(x + 5 * torch.eye(3), b), (3, 3), (3, 2)),
    "svd, qr": (lambda x: torch.linalg.svdvals(x) + torch.linalg.qr(x)[1].abs(), (3, 3)),
    "cholesky": (lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(3)), (3, 3)),
    "torch.func": (
        lambda x, w: torch.func.vmap(torch.func.grad(lambda r, w: (r.sin() * w * C).sum()), (0, None))(x, w),
        (4, 3),
        (3,),
    ),
    "sort": (lambda x: torch.sort(x, -1)[0][..., :2], (4, 5)),
}


C = torch.arange(3.0)


def in_torch(fn, args):
    tensors = [torch.from_numpy(np.array(arg)) for arg in args]
    for tensor in tensors:
        tensor.requires_grad_(tensor.is_floating_point())
    with sdpa_kernel(SDPBackend.MATH):  # the CPU's fused kernel has no second derivative
        y = fn(*tensors)
        moving = [tensor for tensor in tensors if tensor.requires_grad]
        gradients = torch.autograd.grad((y**2).sum(), moving, create_graph=True)
        (second,) = torch.autograd.grad(gradients[0].sum(), moving[:1], materialize_grads=True)
    return y.detach().numpy(), [g.detach().numpy() for g in gradients], second.detach().numpy()


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.sampled(2)
def test_function(name):
    fn, *shapes = FUNCTIONS[name]
    args = [values(*shape) if isinstance(shape, tuple) else shape for shape in shapes]
    moving = tuple(i for i, arg in enumerate(args) if arg.dtype == jnp.float32)
    f = as_jax(fn)
    total = lambda *a: (f(*a) ** 2).sum()  # noqa: E731
    two = [jnp.stack([arg, arg]) for arg in args]

    @jax.jit
    def together(args, two):
        shared = jax.grad(lambda *a: jax.vmap(total, (None, *[0] * (len(a) - 1)))(*a).sum())
        return (
            f(*args),
            jax.grad(total, moving)(*args),
            jax.vmap(jax.grad(total, moving))(*two),
            shared(args[0], *two[1:]) if len(args) > 1 else None,
            jax.grad(lambda x: jax.grad(total)(x, *args[1:]).sum())(args[0]),
        )

    expected, gradients, second = in_torch(fn, args)
    of_two = [np.stack([gradient, gradient]) for gradient in gradients]
    shared = 2 * gradients[0] if len(args) > 1 else None
    assert_same(together(args, two), (expected, gradients, of_two, shared, second))


def test_flex_attention():
    from torch.nn.attention.flex_attention import flex_attention

    bias = torch.arange(5.0)
    flex = as_jax(lambda q, k: flex_attention(q, k, k, score_mod=lambda s, b, h, i, j: s - bias[i] * bias[j]))
    x, y = values(1, 2, 5, 4), values(1, 2, 5, 4)

    def dense(q, k):
        scores = q @ jnp.swapaxes(k, -1, -2) / 2 - jnp.outer(bias.numpy(), bias.numpy())
        return jax.nn.softmax(scores) @ k

    def together(f):
        first = jax.grad(loss(f), 1)
        return jax.jit(lambda q, k: (jax.jvp(f, (q, k), (k, q)), first(q, k), jax.grad(loss(first))(q, k)))(x, y)

    assert_same(together(flex), together(dense))


def test_dropout_draws_from_the_key():
    f = as_jax(lambda x: F.dropout(x, 0.5) + F.dropout(x, 0.5))
    x, keys = jnp.ones((40, 5)), jax.random.split(jax.random.key(1), 3)
    total = lambda x, key: f(x, key=key).sum()  # noqa: E731
    y = f(x, key=keys[0])
    assert 0.6 < float((y != 0).mean()) < 0.9  # of two draws
    assert_same(jax.jit(jax.grad(total))(x, keys[0]), y)
    assert not np.array_equal(y, f(x, key=keys[1]))
    batch = jax.vmap(lambda key: f(x, key=key))(keys)
    assert_same(batch, [jnp.stack([f(x, key=key) for key in keys])])
    assert_same(jax.vmap(jax.grad(total), (None, 0))(x, keys), batch)
    assert_same(f(x, key=jax.random.PRNGKey(1)), f(x, key=jax.random.key(1)))
    with pytest.raises(RuntimeError, match=r"\[aten::native_dropout\].*no key was given.*key=jax.random.key"):
        f(x)


DRAWS = {  # of ones: mean, standard deviation
    "rand": (torch.rand_like, 0.5, 0.289),
    "randn": (torch.randn_like, 0, 1),
    "normal": (lambda x: torch.normal(x, x * 0.5), 1, 0.5),
    "exponential": (lambda x: x.exponential_(2.0), 0.5, 0.5),
    "log_normal": (lambda x: x.log_normal_(0, 0.5), 1.133, 0.604),
    "geometric": (lambda x: x.geometric_(0.25), 4, 3.464),
    "cauchy": (lambda x: x.cauchy_().atan(), 0, 0.907),
    "bernoulli": (lambda x: torch.bernoulli(x * 0.3), 0.3, 0.458),
    "randint": (lambda x: torch.randint(0, 10, x.shape).float(), 4.5, 2.872),
    "randperm": (lambda x: torch.randperm(len(x)).float(), 1999.5, 1154.7),
    "multinomial": (lambda x: torch.multinomial(x[:4].cumsum(0), len(x), True).float(), 2, 1),
    "rrelu": (lambda x: F.rrelu(-x, training=True), -0.229, 0.0601),
}


def test_draws_are_what_they_should_be():
    f = as_jax(lambda x: {name: fn(x.clone()) for name, (fn, *_) in DRAWS.items()})
    drawing = jax.jit(lambda key: f(jnp.ones(4000), key=key))
    one, same, other = (drawing(jax.random.key(i)) for i in (0, 0, 1))
    for name, (_, mean, deviation) in DRAWS.items():
        assert np.array_equal(one[name], same[name]), name
        assert not np.array_equal(one[name], other[name]), name
        drawn = np.asarray(one[name])
        assert abs(drawn.mean() - mean) < 5 * deviation / drawn.size**0.5, name
        assert abs(drawn.std() / deviation - 1) < 0.15, name
