"""Subclasses in programs that are made without torch.compile: as parameters, as arguments, and made inside."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.masked import masked_tensor
from torch.nn import functional as F
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import torch_pjrt
from torch_pjrt.program.subclasses import leaves

DEVICES = ["cpu", "pjrt"]


def two(*size: int) -> TwoTensor:
    return TwoTensor(torch.randn(*size), torch.randn(*size))


def on(t: Any, device: str) -> Any:
    return TwoTensor(t.a.to(device), t.b.to(device)).requires_grad_(t.requires_grad)


def described(value: Any) -> Any:
    if isinstance(value, TwoTensor):
        return "TwoTensor", described(value.a), described(value.b)
    if isinstance(value, list):
        return [described(each) for each in value]
    return value.detach().cpu().numpy().round(4).tolist() if isinstance(value, torch.Tensor) else value


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(two(4, 4))
        self.bias = nn.Parameter(two(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


def layers(device: str) -> tuple[Layer, Layer]:
    a, b = Layer(), Layer()
    for one in (a, b):
        one.weight = nn.Parameter(on(a.weight.detach(), device))
        one.bias = nn.Parameter(on(a.bias.detach().clone(), device))
    b.weight = nn.Parameter(TwoTensor(b.weight.detach().a.clone(), b.weight.detach().b.clone()))
    return a, b


@pytest.mark.parametrize("device", DEVICES)
def test_jit(device: str) -> None:
    layer, _ = layers(device)
    x = on(two(3, 4), device)
    call = torch_pjrt.jit(layer, [x])
    assert described(call(x)) == described(layer(x))
    made = torch_pjrt.jit(lambda x: (TwoTensor(x * 2, x + 1), {"sum": x.sum()}), [x.a])
    assert described(made(x.a)[0]) == described(TwoTensor(x.a * 2, x.a + 1))
    with pytest.raises(TypeError, match=r"argument 0: TwoTensor → Tensor: call jit again"):
        call(x.a)
    layer.weight = nn.Parameter(on(two(4, 4), device))
    with pytest.raises(RuntimeError, match="'weight' and 'itself' were one tensor"):
        call(x)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
def test_step(device: str, make: Any) -> None:
    """Runs steps until there is state, with arguments that are subclasses and arguments that are not."""
    options: dict[str, Any] = {"lr": 0.1, "foreach": False}
    results = []
    for layer, compiled in zip(layers(device), (False, True), strict=True):
        torch.manual_seed(1)
        optimizer = make(layer.parameters(), **options)

        def step(x: torch.Tensor, layer: Layer = layer, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            y = layer(x)
            loss = y.square().mean()
            loss.backward(torch.ones_like(loss))
            optimizer.step()
            return {"loss": loss.detach(), "y": y.detach()}

        run: Any = torch_pjrt.compile_step(step) if compiled else step
        results.append([described(pytree.tree_leaves(run(on(two(3, 4), device)))) for _ in range(4)])
        results[-1] += [[described(p.detach()) for p in layer.parameters()]]
        if compiled:
            assert run.programs == 1
    for want, got in zip(*results, strict=True):
        for a, b in zip(pytree.tree_leaves(want), pytree.tree_leaves(got), strict=True):
            assert a == b if isinstance(a, str) else abs(a - b) < 2e-3


class Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_subclass_sees_the_calls_that_it_sees_on_the_cpu() -> None:
    """The device's own ops are hidden from it: DTensor, for instance, doesn't know linear_backward."""
    seen = []
    for device in DEVICES:
        x, w, b = (on(t, device).requires_grad_() for t in (two(3, 4), two(5, 4), two(5)))
        with Calls() as calls, torch.autograd.set_multithreading_enabled(False):
            for y in (F.linear(x, w), F.linear(x, w, b), F.linear(x[None], w, b)):
                y.backward(torch.ones_like(y))
        seen.append(calls.names)
    assert seen[0] == seen[1]
    assert "aten.addmm.default" in seen[0]


def test_new_form_is_captured_again() -> None:
    step = torch_pjrt.compile_step(lambda x: x * 2)
    x = two(3)
    for given in (x, x.a, x, TwoTensor(x, x)):
        assert described(step(given)) == described(given * 2)
    assert step.captures == 3


def grown(weight: Any, make: Any, zero: bool, update: bool, compiled: bool) -> list[Any]:
    """Returns, for each of four calls, the gradient afterwards and the weight."""
    weight = nn.Parameter(weight)
    optimizer = torch.optim.SGD([weight], lr=0.1, foreach=False)

    def step(x: torch.Tensor) -> torch.Tensor:
        if zero:
            optimizer.zero_grad()
        y = x @ weight
        y.backward(torch.ones_like(y))
        if update:
            optimizer.step()
        return y.detach()

    run: Any = torch_pjrt.compile_step(step, keep_grads=True) if compiled else step
    reported = []
    for i in range(4):
        run(make(i + 1))
        reported.append((type(weight.grad).__name__, *(described(leaves([t])) for t in (weight.grad, weight.detach()))))
        if i == 2:
            weight.grad = None
    if compiled:
        assert run.programs <= 2
    return reported


@pytest.mark.parametrize(
    ("of", "device"), [("parameter", "cpu"), ("argument", "cpu"), ("both", "cpu"), ("argument", "pjrt")]
)
@pytest.mark.parametrize(("update", "zero"), [(False, False), (True, False), (True, True)])
def test_gradients_that_are_subclasses(of: str, device: str, update: bool, zero: bool) -> None:
    """Gradients accumulate over calls, also for a plain parameter."""
    weight = torch.arange(8.0, device=device).view(4, 2) / 8

    def make(i: int) -> Any:
        x = torch.full((3, 4), float(i), device=device)
        return x if of == "parameter" else TwoTensor(x, x + 1)

    reported = []
    for compiled in (False, True):
        start: Any = weight.clone()
        start = start if of == "argument" else TwoTensor(start, start + 1)
        reported.append(grown(start, make, zero, update, compiled))
    assert reported[0] == reported[1]


def test_written_in_place() -> None:
    x, y = two(3), two(3)
    y.copy_(x)
    torch_pjrt.compile_step(lambda x: x.mul_(2) + 1)(x)
    assert described(x) == described(y.mul_(2))


def test_shown_and_started() -> None:
    x = on(two(2), "pjrt")
    torch_pjrt.sync(x * 2)
    assert torch_pjrt.to_graph(lambda x: x * 2 + 1, two(2)).count("aten::mul") == 2
    assert "-> (tensor<2xf32>, tensor<2xf32>)" in torch_pjrt.to_stablehlo(lambda x: TwoTensor(x, x) * 2, x.a)
    with pytest.raises(BufferError, match=r"a TwoTensor has no memory of its own to export: it is made of \.a, \.b"):
        torch.from_dlpack(x)


def masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    z: Any = masked_tensor(x, mask)
    result: torch.Tensor = (z * 2).sum().to_tensor(0)
    return result


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
@pytest.mark.parametrize("device", DEVICES)
def test_wrapper_that_says_nothing_of_its_parts(device: str) -> None:
    """A MaskedTensor is such a wrapper; it can be made where it is used."""
    x, mask = torch.arange(6.0, device=device), torch.arange(6, device=device) % 2 == 0
    wanted = masked(x, mask).item()
    assert wanted == 12
    assert torch_pjrt.jit(masked, [x, mask])(x, mask).item() == wanted
    assert torch_pjrt.compile_step(masked)(x, mask).item() == wanted
    assert torch.compile(masked, backend="pjrt")(x, mask).item() == wanted
    z: Any = masked_tensor(x, mask)
    assert torch.compile(lambda z: z * 2 + z, backend="pjrt")(z).sum().to_tensor(0).item() == 18
    with pytest.raises(
        torch_pjrt.CaptureError, match="argument 0 is a MaskedTensor, which doesn't say what it is made"
    ):
        torch_pjrt.jit(lambda z: z * 2, [z])
    with pytest.raises(torch_pjrt.CaptureError, match="a tensor that the function uses is a MaskedTensor"):
        torch_pjrt.jit(lambda x: z * x, [x])
    with pytest.raises(torch_pjrt.CaptureError, match="the function returns a MaskedTensor"):
        torch_pjrt.jit(masked_tensor, [x, mask])
