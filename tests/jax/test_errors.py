"""Refused calls, and their errors."""

from __future__ import annotations

import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import torch_pjrt
from torch_pjrt.jax import as_jax, call_jax, from_jax, jax_view, torch_view

X = jnp.ones((4, 3))


def refused(fn, *args, match, kind=Exception):
    with pytest.raises(kind, match=match):
        fn(*args)


@pytest.mark.parametrize(
    ("fn", "match"),
    [
        (lambda x: x * x.sum().int().item(), "Tensor.item needs the value.*test_errors.py:[0-9]+.*Concretization"),
        (lambda x: x if x.sum() > 0 else -x, "needs the value.*test_errors.py:[0-9]+.*TracerBoolConversionError"),
        (lambda x: print(x), "needs the value.*test_errors.py:[0-9]+.*ConcretizationTypeError"),
        (lambda x: x[x > 0], "shape depends on data.*test_errors.py:[0-9]+.*NonConcreteBooleanIndexError"),
        (lambda x: None, "gives None.*return the tensors"),
        (lambda x: (x, "text"), "gives a str as result 1, which is no tensor"),
    ],
    ids=["item", "if", "print", "data-dependent shape", "None", "text"],
)
def test_functions_that_are_no_program(fn, match):
    refused(jax.jit(as_jax(fn)), X, match=match)


def least_squares(x):
    return torch.linalg.lstsq(x, x, driver="gelss")[0]


def test_host_fallbacks_are_errors():
    refused(jax.jit(as_jax(least_squares)), X, match="lstsq can't be part of a program")
    refused(
        jax.jit(as_jax(lambda x: torch.hash_tensor(x).int())), X, match="hash_tensor. is a kernel of the CPU's here"
    )


@pytest.mark.parametrize(
    ("read", "match"),
    [
        (lambda t: t.sum().item(), "value is needed.*LINE.*tracer .float32.4, 3.*ConcretizationTypeError: use"),
        (print, "value is needed.*LINE.*ConcretizationTypeError: use torch.where, or jax.lax.cond"),
        (lambda t: 1 if t.sum() > 0 else 0, "value is needed.*LINE.*TracerBoolConversionError"),
        (lambda t: t.cpu(), "value is needed.*LINE.*ConcretizationTypeError"),
        (lambda t: t[t > 0], "index.Tensor. has a result whose shape depends on data.*LINE.*NonConcreteBooleanIndex"),
        (least_squares, "lstsq. has a result whose shape depends on data.*LINE.*NonConcreteBooleanIndex"),
    ],
    ids=["item", "print", "if", "cpu", "data-dependent shape", "host"],
)
def test_values_of_views_of_tracers(read, match):
    refused(jax.jit(lambda x: read(torch_view(x))), X, match=match.replace("LINE", "test_errors.py:[0-9]+"))
    assert float(torch_view(X).sum()) == 12


def test_arguments_that_are_no_arrays():
    f = as_jax(lambda x, mode=None: x)
    refused(f, X, "text", match="argument 1 of <lambda> is a str, which is no array.*functools.partial", kind=TypeError)
    refused(f, torch.ones(2), match="argument 0 of <lambda> is a torch tensor.*jax_view", kind=TypeError)
    refused(f, jax.random.key(0), match="key<fry>.*jax.random.key_data", kind=TypeError)
    refused(functools.partial(as_jax, torch.sin, dtypes="torch"), match="dtypes is 'jax' or None", kind=ValueError)
    refused(functools.partial(f, key=3.5), X, match="key= takes a random key", kind=TypeError)


def test_64_bits():
    cure = "jax.config.update\\('jax_enable_x64', True\\).*dtypes='jax'"
    refused(as_jax(lambda x: x.argmax(0)), X, match=f"result 0 of <lambda> is of dtype torch.int64.*{cure}")
    module = torch.nn.Module()
    module.register_buffer("positions", torch.arange(3))
    refused(as_jax, module, match=f"buffer 'positions' of Module is .*{cure}")
    refused(call_jax, jnp.sin, torch.ones(2).double(), match=f"argument 0 of sin is of dtype torch.float64.*{cure}")
    refused(jax_view, torch.arange(3), match=f"the tensor is of dtype torch.int64.*{cure}")
    assert as_jax(lambda x: x.argmax(0), dtypes="jax")(X).dtype == "int32"
    assert from_jax(lambda i: i + 1, dtypes="jax")(torch.arange(3)).dtype == torch.int32
    assert jax_view(torch.arange(3), dtypes="jax").dtype == "int32"


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "float8_e4m3fn", "complex64", "uint16", None])
def test_dtypes(dtype):
    x = jnp.asarray(1.5) if dtype is None else jnp.ones(3, dtype)
    given = []
    y = jax.jit(as_jax(lambda x: given.append(x.dtype) or x.clone()))(x)
    assert (y.dtype, y.weak_type) == (x.dtype, False)
    assert str(given[0]) == f"torch.{x.dtype}"
    assert np.array_equal(y, x)


def test_leaked_tracers():
    kept = []
    jax.jit(lambda x: kept.append(torch_view(x)) or x)(X)
    refused(jax_view, kept[0], match="[Uu]nexpected", kind=jax.errors.UnexpectedTracerError)
    refused(kept[0].tolist, match="test_errors.py.*of a transformation that is over.*UnexpectedTracerError: return")
    inner = []
    refused(
        jax.jit(as_jax(lambda x: inner.append(x * 2) or x)), X, match="puts a tensor into 'inner'.*Return the tensor"
    )
    unseen = type("Unseen", (), {"__slots__": (), "append": staticmethod(lambda tensor, to=inner: to.append(tensor))})
    jax.jit(as_jax(lambda x: unseen.append(x * 2) or x))(X)
    refused(jax_view, inner[0], match="recorded for another program.*return it", kind=RuntimeError)


def test_devices():
    model = torch.nn.Linear(3, 3)
    refused(jax.jit(lambda x: jax_view(model(torch_view(x)))), X, match="same device|cpu")
    mixed = torch.ones(2), torch.ones(2, device="pjrt")
    refused(call_jax, jnp.add, *mixed, match="one device, not on 'cpu' and 'pjrt:0'", kind=ValueError)
    refused(call_jax, jnp.sin, 2.0, match="no tensor among the arguments", kind=ValueError)


def test_gradients_do_not_get_lost():
    refused(jax_view, torch.ones(2, requires_grad=True), match="requires grad.*detach.*call_jax", kind=ValueError)


@pytest.mark.parametrize(("name", "primitive"), [("eigh", "eigh"), ("svd", "eigh|svd"), ("eigvals", "eig")])
def test_primitives_without_a_lowering(name, primitive):
    match = f"call_jax\\({name}\\).*primitive '({primitive})' not found.*call it outside of torch"
    refused(call_jax, getattr(jnp.linalg, name), torch.eye(3), match=match, kind=NotImplementedError)


def test_calls_of_libraries_are_named():
    match = "call_jax\\(qr\\): JAX's primitive 'geqrf' calls 'Qr' of a library.*call it outside of torch"
    refused(call_jax, jnp.linalg.qr, torch.eye(3), match=match, kind=NotImplementedError)


def test_closed_over_parameters_are_not_changed():
    weight = torch.nn.Parameter(torch.ones(3))

    def fn(x):
        with torch.no_grad():
            weight.mul_(2)
        return x * weight

    refused(jax.grad(lambda x: as_jax(fn)(x).sum()), X, match="fn writes to what it closes over.*new_state")
    assert weight.tolist() == [1, 1, 1]


@pytest.mark.parametrize("transform", [jax.grad, jax.jit, jax.vmap, lambda f: jax.grad(jax.jit(f))])
def test_writes_beside_views_are_refused(transform):
    kept, given = torch.ones(3).to("pjrt"), torch.ones(3).to("pjrt")
    writes = {
        "aten::add_.Tensor": lambda t: kept.add_(t.sum()),
        "aten::mul_.(Tensor|Scalar)": lambda t: kept.mul_(2),
        "aten::copy_": lambda t: kept[1:].copy_(t.sum().expand(2)),
        "aten::add.out": lambda t: torch.add(t.sum().detach(), 1, out=kept[0]),
    }
    for op, write in writes.items():
        f = transform(lambda x, write=write: jax_view(torch_view(x) * 2 + write(torch_view(x)).sum()).sum())
        match = f"{op}. writes .*test_errors.py:[0-9]+.*float32.[0-9]*.. that was there before.*clone.*as_jax"
        refused(f, X, match=match, kind=torch_pjrt.CaptureError)
    assert kept.add_(1).tolist() == [2, 2, 2]

    def own(x):
        early = torch.zeros(3, device="pjrt")
        early += torch_view(x).sum()
        copy = given.clone()
        copy[1:] += torch_view(x).sum()
        return jax_view(early + copy).sum()

    jax.block_until_ready(transform(own)(X))
    assert given.tolist() == [1, 1, 1]


def test_tensors_of_an_outer_trace():
    def written(x):
        total = torch_view(x).sum(0)
        jax.lax.scan(lambda carry, row: (carry, jax_view(total.add_(torch_view(row)))), 0.0, x)
        return jax_view(total)

    refused(jax.jit(written), X, match="scan", kind=jax.errors.UnexpectedTracerError)

    def own(x):
        total = torch_view(x).sum(0)
        jax.lax.scan(lambda carry, row: (carry, jax_view(torch_view(row) * 2)), 0.0, x)
        total += 1
        return jax_view(total)

    assert jax.jit(own)(X).tolist() == [5, 5, 5]


def test_derivatives_that_autograd_does_not_see():
    class Blind(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient.detach() * 2

    f = as_jax(lambda x: Blind.apply(x).sum())
    assert jax.grad(f)(X)[0, 0] == 2
    match = "jvp of the torch function <lambda>.*: a gradient in it was computed where autograd does not look"
    refused(lambda x: jax.jvp(f, (x,), (x,)), X, match=match)
    refused(jax.grad(lambda x: jax.grad(f)(x).sum()), X, match="neither a jvp nor a second derivative")


def test_arguments_that_torch_does_not_differentiate():
    match = "'running_mean'.*give it argument.detach"
    norm = as_jax(lambda x, mean, var: torch.nn.functional.batch_norm(x, mean, var))
    refused(norm, X, X[0], X[0], match=match, kind=RuntimeError)
    detached = as_jax(lambda x, mean, var: torch.nn.functional.batch_norm(x, mean.detach(), var.detach()))
    assert float(jax.grad(lambda x: detached(x, X[0], X[0]).sum())(X)[0, 0]) == pytest.approx(1, abs=1e-4)


def test_arguments_of_jax_functions():
    refused(call_jax, lambda x, y: x, torch.ones(2), {1, 2}, match="is a set, which is neither an array nor hashable")
    refused(call_jax, 3, torch.ones(2), match="takes a JAX function, not a int", kind=TypeError)
    refused(call_jax, lambda x: None, torch.ones(2), match="gives None", kind=TypeError)
    refused(call_jax, lambda x: (x, "a"), torch.ones(2), match="gives a str as result 1, which is no array")


def test_sizes_that_are_not_known():
    (n,) = jax.export.symbolic_shape("n")
    f = jax.jit(as_jax(torch.sin))
    refused(jax.export.export(f), jax.ShapeDtypeStruct((n, 3), "float32"), match="a size that is not known")


def test_names_of_parameters():
    f, params, state = as_jax(torch.nn.Linear(3, 2))
    refused(f, {"weight": params["weight"]}, state, X, match="'bias' is not in both", kind=TypeError)


def test_what_fails_in_backward_says_so():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            raise RuntimeError("this one has none")

    f = as_jax(lambda x: Once.apply(x))
    refused(jax.grad(lambda x: f(x).sum()), X, match="vjp of the torch function <lambda> under JAX: this one has none")


@pytest.mark.parametrize(
    ("version", "match"),
    [("0.4.30", "needs JAX 0.7 or later, and 0.4.30"), ("0.99.0", "made for JAX 0.7 to 0.12, and 0.99.0")],
)
def test_versions(version, match):
    from torch_pjrt.jax import _compat

    refused(_compat._check_version, version, match=match, kind=ImportError)


def test_jax_is_missing_and_not_imported_unless_asked_for():
    code = (
        "import torch, torch_pjrt, sys; print('jax' in sys.modules); sys.modules['jax'] = None; import torch_pjrt.jax"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "False\n"
    assert "pip install 'torch_pjrt[jax]'" in result.stderr.splitlines()[-1]


def test_concrete_arrays_over_several_devices():
    mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = jax.device_put(jnp.ones(8), jax.NamedSharding(mesh, jax.sharding.PartitionSpec("d")))
    refused(torch_view, spread, match="spread over 4 devices", kind=ValueError)
    assert np.asarray(as_jax(lambda x: x * 2)(spread)).tolist() == [2.0] * 8
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
