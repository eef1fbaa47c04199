"""nn.functional.linear is one node with PyTorch's derivative; calls that it doesn't support work as on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import nn
from torch.nn.functional import linear

import torch_pjrt
from torch_pjrt import _C

pytestmark = pytest.mark.each_way

Tensors = list[torch.Tensor]
SHAPES = {  # input, weight, bias
    "matrix": ((4, 3), (5, 3), (5,)),
    "no bias": ((4, 3), (5, 3), None),
    "vector": ((3,), (5, 3), (5,)),
    "batches": ((2, 6, 4, 3), (5, 3), (5,)),
    "batches, no bias": ((2, 4, 3), (5, 3), None),
    "no rows": ((0, 3), (5, 3), (5,)),
    "no features in": ((4, 0), (5, 0), (5,)),
    "no features out": ((4, 3), (0, 3), (0,)),
    "a bias that is broadcast": ((4, 3), (5, 3), (1,)),
    "a bias of two dimensions": ((4, 3), (5, 3), (1, 5)),
    "a weight of one dimension": ((4, 3), (3,), None),
}


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    with torch_pjrt.strict_mode():
        yield


def operands(shapes: tuple[tuple[int, ...] | None, ...], dtype: torch.dtype = torch.float32) -> Tensors:
    torch.manual_seed(0)
    return [torch.randn(s, dtype=dtype) for s in shapes if s is not None]


def on(device: str, tensors: Tensors, requires_grad: bool = True) -> Tensors:
    return [t.to(device).detach().requires_grad_(requires_grad) for t in tensors]


def check(function: Callable[..., object], tensors: Tensors, **tolerances: float) -> None:
    """Asserts that the function gives the same results on the device and on the CPU."""
    ours, theirs = function(*on("pjrt", tensors)), function(*on("cpu", tensors))
    torch.testing.assert_close(ours, theirs, check_device=False, **tolerances)


def gradients(*tensors: torch.Tensor) -> object:
    result = linear(*tensors)
    return result, torch.autograd.grad(result.square().sum(), tensors)


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_values_and_gradients(shapes: tuple[tuple[int, ...], ...]) -> None:
    check(gradients, operands(shapes))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_dtypes(dtype: torch.dtype) -> None:
    def real_gradients(*tensors: torch.Tensor) -> object:
        result = linear(*tensors)
        return result, torch.autograd.grad(
            torch.view_as_real(result).sum() if dtype.is_complex else result.sum(), tensors
        )

    check(real_gradients, operands(((2, 4, 3), (5, 3), (5,)), dtype))


def test_integers() -> None:
    x, w, b = torch.arange(6).view(2, 3), torch.arange(12).view(4, 3), torch.arange(4)
    assert torch.equal(linear(x.to("pjrt"), w.to("pjrt"), b.to("pjrt")).cpu(), linear(x, w, b))


def test_one_node_forward_and_one_backward() -> None:
    x, w, b = on("pjrt", operands(SHAPES["batches"]))
    result = linear(x, w, b)
    assert type(result.grad_fn).__name__ == "LinearBackward0"
    torch_pjrt.reset_metrics()
    linear(x, w, b)
    torch.autograd.grad(result, (x, w, b), torch.ones_like(result))
    assert torch_pjrt.metrics()["ops_recorded"] == 3  # with ones_like's fill


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2)])
def test_only_some_gradients(wanted: tuple[int, ...]) -> None:
    def some(*tensors: torch.Tensor) -> object:
        for i, tensor in enumerate(tensors):
            tensor.requires_grad_(i in wanted)
        return torch.autograd.grad(linear(*tensors).square().sum(), [tensors[i] for i in wanted])

    check(some, operands(SHAPES["batches"]))


@pytest.mark.parametrize("name", ["matrix", "no bias", "vector", "batches"])
def test_double_and_triple_backward(name: str) -> None:
    def higher(*tensors: torch.Tensor) -> object:
        levels = []
        value = linear(*tensors).pow(4).sum()
        for _ in range(3):
            grads = torch.autograd.grad(value, tensors, create_graph=True)
            levels.append([g.detach() for g in grads])
            value = sum((g.square().sum() for g in grads), torch.zeros((), device=value.device))
        return levels

    check(higher, operands(SHAPES[name], torch.float64), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["matrix", "no bias", "vector", "batches"])
@pytest.mark.parametrize("dual", [0, 1])
def test_forward_mode(name: str, dual: int) -> None:
    def tangent(*tensors: torch.Tensor) -> object:
        with forward_ad.dual_level():
            primals = list(tensors)
            primals[dual] = forward_ad.make_dual(tensors[dual], torch.full_like(tensors[dual], 0.5))
            return forward_ad.unpack_dual(linear(*primals))

    check(tangent, operands(SHAPES[name]))


def test_forward_mode_through_a_backward() -> None:
    def tangents(*tensors: torch.Tensor) -> object:
        result = linear(*tensors)
        with forward_ad.dual_level():
            gradient = forward_ad.make_dual(torch.ones_like(result), torch.full_like(result, 0.25))
            grads = torch.autograd.grad(result, tensors, gradient)
            return [forward_ad.unpack_dual(g) for g in grads]

    check(tangents, operands(SHAPES["batches"]))


TRANSFORMS: dict[str, Callable[..., object]] = {
    "grad": lambda *t: torch.func.grad(lambda *u: linear(*u).square().sum(), argnums=(0, 1, 2))(*t),
    "jvp": lambda *t: torch.func.jvp(linear, t, tuple(torch.ones_like(u) for u in t)),
    "vjp": lambda *t: torch.func.vjp(linear, *t)[1](torch.ones(4, 5, device=t[0].device)),
    "vmap over rows": lambda *t: torch.func.vmap(linear, (0, None, None))(*t),
    "vmap over weights": lambda x, w, b: torch.func.vmap(linear, (None, 0, None))(x, torch.stack([w, w + 1]), b),
    "jacrev": lambda *t: torch.func.jacrev(linear, (0, 1))(*t),
    "jacfwd": lambda *t: torch.func.jacfwd(linear, (0, 1))(*t),
    "hessian": lambda *t: torch.func.hessian(lambda x: linear(x, *t[1:]).pow(3).sum())(t[0]),
    "per-sample gradients": lambda *t: torch.func.vmap(
        torch.func.grad(lambda w, x: linear(x, w, t[2]).square().sum()), (None, 0)
    )(t[1], t[0]),
    "functionalize": lambda *t: torch.func.functionalize(linear)(*t),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_functorch(transform: Callable[..., object]) -> None:
    check(transform, operands(SHAPES["matrix"]))


@pytest.mark.filterwarnings("error:There is a performance drop")
def test_batched_gradients() -> None:
    def batched(*tensors: torch.Tensor) -> object:
        result = linear(*tensors)
        directions = torch.eye(result.numel(), device=result.device).view(-1, *result.shape)
        return torch.autograd.grad(result, tensors, directions, is_grads_batched=True)

    check(batched, operands(SHAPES["batches"]))


def test_autocast() -> None:
    x, w, b = on("pjrt", operands(SHAPES["matrix"]))
    with torch.autocast("pjrt", dtype=torch.bfloat16):
        result = linear(x, w, b)
    assert result.dtype is torch.bfloat16
    result.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype is torch.float32


def test_mistakes_are_the_cpus() -> None:
    _C.set_strict(False)  # otherwise the message is the Meta kernel's

    def message(device: str, *shapes: tuple[int, ...]) -> str:
        with pytest.raises(RuntimeError) as caught:
            linear(*on(device, operands(shapes)))
        return str(caught.value)

    assert message("pjrt", (4, 3), (5, 4)) == message("cpu", (4, 3), (5, 4))
    assert message("pjrt", (4, 3), (5, 3), (4,)) == message("cpu", (4, 3), (5, 3), (4,))


def test_a_weight_that_was_changed_after_it_was_saved() -> None:
    x, w, b = on("pjrt", operands(SHAPES["matrix"]))
    result = linear(x, w, b)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_traced_by_make_fx_and_aot_autograd() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    tensors = operands(SHAPES["batches"])
    traced = make_fx(gradients, tracing_mode="fake")(*on("pjrt", tensors))
    torch.testing.assert_close(traced(*on("pjrt", tensors)), gradients(*on("cpu", tensors)), check_device=False)

    compiled = torch.compile(linear, backend="aot_eager")

    def compiled_gradients(*ts: torch.Tensor) -> object:
        return torch.autograd.grad(compiled(*ts).square().sum(), ts)

    ours, theirs = compiled_gradients(*on("pjrt", tensors)), gradients(*on("cpu", tensors))[1]
    torch.testing.assert_close(ours, theirs, check_device=False)


def test_modules_with_a_graph_are_copied_and_hooked() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to("pjrt")
    x = torch.ones(2, 3, device="pjrt")
    packed: list[tuple[int, ...]] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(tuple(t.shape)) or t, lambda t: t):
        loss = model(x).square().sum()
    assert (4, 3) not in packed  # x needs no gradient, so the first weight is not kept
    assert (2, 4) in packed
    loss.backward(retain_graph=True)
    first = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    copied = copy.deepcopy(model)
    model.zero_grad()
    loss.backward()
    copied.zero_grad()
    copied(x).square().sum().backward()
    for grad, p, q in zip(first, model.parameters(), copied.parameters(), strict=True):
        torch.testing.assert_close(p.grad, grad)
        torch.testing.assert_close(q.grad, grad)
