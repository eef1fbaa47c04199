"""Autograd, autocast and function transforms over the device, against the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_pjrt

pytestmark = pytest.mark.each_way

DEVICE = "pjrt"


def both(program: Callable[[str], Any], rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Asserts that the program gives the same tensors on the device and on the CPU."""
    device, host = program(DEVICE), program("cpu")
    if isinstance(host, torch.Tensor):
        device, host = [device], [host]
    assert len(device) == len(host)
    for d, h in zip(device, host, strict=True):
        if not isinstance(h, torch.Tensor):
            assert d == h
            continue
        assert d.dtype == h.dtype
        assert d.device.type == DEVICE
        torch.testing.assert_close(d.detach().cpu(), h.detach(), rtol=rtol, atol=atol)


def leaf(device: str, *shape: int) -> torch.Tensor:
    n = torch.Size(shape).numel()
    return torch.linspace(-1, 1, n).reshape(shape).to(device).requires_grad_()


def grads(*tensors: torch.Tensor) -> list[torch.Tensor]:
    found = [t.grad for t in tensors]
    assert all(g is not None for g in found)
    return [g for g in found if g is not None]


def test_through_views() -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = leaf(device, 4, 6)
        y = x.t()[1:4].reshape(3, 2, 2).transpose(0, 1)[..., 0] * x[0, :3]
        z = x.unfold(1, 2, 2).sum(-1).diagonal() @ x[:3, 0]
        (y.sum() + z + x.expand(2, 4, 6).exp().mean() + x.view(24)[::5].sin().sum()).backward()
        return grads(x)

    both(program)


def test_through_in_place_ops() -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = leaf(device, 4, 3)
        y = x * 2
        y[1] = x[0] ** 2
        y[:, 2].mul_(3)
        y.t()[0].add_(x[:, 1])
        view = y.view(-1)
        view[5:7] *= 0.25
        y.masked_fill_(y > 1.5, 0.5)
        (y * y).sum().backward()
        return [*grads(x), y]

    both(program)


def test_version_counter_errors() -> None:
    for device in (DEVICE, "cpu"):
        x = leaf(device, 3)
        y = x.exp()
        y[1:].mul_(2)
        with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
            y.sum().backward()
        with pytest.raises(
            RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"
        ):
            x.add_(1)


def test_writes_to_lists_are_counted() -> None:
    for device in (DEVICE, "cpu"):
        x = leaf(device, 3)
        loss = (x * x).sum()
        x.grad = torch.ones(3, device=device)
        torch.optim.SGD([x], lr=0.5, foreach=True).step()
        with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
            loss.backward()
        torch._foreach_zero_([x.detach()])
        assert x._version == 2
        with torch.inference_mode():
            torch._foreach_add_([torch.zeros(2, device=device)], 1.0)
        fused = leaf(device, 3)
        fused.grad = torch.ones(3, device=device)
        torch.optim.SGD([fused], lr=0.5, fused=True).step()
        assert fused._version == 0


def test_double_backward() -> None:
    def program(device: str) -> list[torch.Tensor]:
        x, w = leaf(device, 3, 4), leaf(device, 4, 2)
        y = torch.tanh(x @ w).pow(3).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (h,) = torch.autograd.grad(g.square().sum(), w, create_graph=True)
        h.sum().backward()
        return [g, h, *grads(x, w)]

    both(program)


@pytest.mark.parametrize(
    "f",
    [torch.sin, lambda x: x @ x.t(), lambda x: F.softmax(x, -1), lambda x: F.layer_norm(x, (3,)),
     lambda x: x.cumsum(0)[::2],
     lambda x: torch.where(x > 0.1, x.exp(), x.pow(2)), lambda x: torch.logsumexp(x, 0),
     lambda x: F.conv1d(x[None], torch.ones(1, 3, 2, dtype=x.dtype, device=x.device))],
    ids=["sin", "mm", "softmax", "layer_norm", "cumsum", "where", "logsumexp", "conv1d"],
)  # fmt: skip
def test_gradcheck(f: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.linspace(-1, 1, 9, dtype=torch.float64).reshape(3, 3).to(DEVICE).requires_grad_()
    assert torch.autograd.gradcheck(f, x, fast_mode=True)


def test_checkpoint() -> None:
    def program(device: str) -> list[torch.Tensor]:
        x, w = leaf(device, 3, 4), leaf(device, 4, 4)
        y = checkpoint(lambda x: torch.tanh(x @ w), x, use_reentrant=False)
        z = checkpoint(lambda y: torch.tanh(y @ w), y, use_reentrant=False)
        z.sum().backward()
        return [z, *grads(x, w)]

    both(program)


def test_checkpoint_replays_dropout() -> None:
    x = torch.ones(1000, device=DEVICE, requires_grad=True)
    y = checkpoint(lambda x: F.dropout(x, 0.5) * x, x, use_reentrant=False)
    y.sum().backward()
    assert torch.equal(grads(x)[0].cpu(), (2 * y).detach().cpu())  # d(m x²) = 2 m x, with the same mask


def test_hooks() -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = leaf(device, 3)
        seen: list[torch.Tensor] = []
        y = x * 3
        y.register_hook(lambda g: g * 10)
        y.register_hook(lambda g: seen.append(g.clone()))
        x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad + 1))
        layer = nn.Linear(3, 2).to(device)
        with torch.no_grad():
            layer.weight.fill_(0.5)
            layer.bias.fill_(0.1)
        layer.register_forward_hook(lambda m, i, o: o * 2)
        layer.register_full_backward_hook(lambda m, i, o: seen.append(o[0].clone()))
        out = layer(y[None])
        out.sum().backward()
        return [out, *seen, *grads(x)]

    both(program)


def test_saved_tensor_hooks() -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = leaf(device, 3)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.to(device)):
            y = x.exp() * x
        with torch.autograd.graph.save_on_cpu():
            z = y.sin() * y
        z.sum().backward()
        return grads(x)

    both(program)


def test_no_grad_and_inference_mode() -> None:
    x = leaf(DEVICE, 3)
    with torch.no_grad():
        y = x * 2
        x.add_(1)
    assert not y.requires_grad
    with torch.inference_mode():
        z = x * 2
        z[0] = 5
        w = z.view(3, 1).t()
    assert z.is_inference()
    assert z.tolist() == [5, 2, 4]
    assert w.tolist() == [[5, 2, 4]]
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        x * z


def test_custom_function() -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return 3 * x * x * g

    def program(device: str) -> list[torch.Tensor]:
        x = leaf(device, 4)
        y = Cube.apply(x)
        y.sum().backward()
        return [y, *grads(x)]

    both(program)


def test_complex_gradients() -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = leaf(device, 4, 2)
        z = torch.view_as_complex(x)
        y = (z * z.conj() + z.exp() * 1j).abs().sum() + z.conj().imag.sum() + z.imag.prod()
        y.backward()
        return [y, *grads(x)]

    both(program)


def test_detect_anomaly() -> None:
    x = torch.zeros(2, device=DEVICE, requires_grad=True)
    with pytest.warns(UserWarning, match="Anomaly Detection has been enabled"), torch.autograd.detect_anomaly():  # noqa: SIM117
        with pytest.raises(RuntimeError, match="returned nan values"):
            (x.sqrt() * 0).sum().backward()


# --- autocast ---------------------------------------------------------------------------------------------------------


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 4 * 4, 5)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        a = self.conv(x)
        b = F.relu(self.norm(a))
        c = self.head(b.flatten(1))
        d = F.softmax(c, -1)
        return [a, b, c, d, F.cross_entropy(c, torch.tensor([1, 2], device=x.device))]


@pytest.mark.parametrize("dtype", [pytest.param(torch.bfloat16, marks=pytest.mark.cpu_arithmetic), torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    def program(device: str, enabled: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = Small().to(device)
        x = torch.linspace(-1, 1, 2 * 2 * 16).reshape(2, 2, 4, 4).to(device)
        with torch.autocast(device, dtype=dtype, enabled=enabled):
            a, b, c, d, loss = model(x)
            e = x.view(8, 8) @ x.view(8, 8)
            with torch.autocast(device, enabled=False):
                assert (x.view(8, 8) @ x.view(8, 8)).dtype == torch.float32
        loss.backward()
        return [a, b, c, d, e, loss, *(p.grad for p in model.parameters() if p.grad is not None)]

    actual, low, exact = program(DEVICE, True), program("cpu", True), program("cpu", False)
    for i, (d, h, e) in enumerate(zip(actual, low, exact, strict=True)):
        # Compared with float32, or with the CPU's own: a normed zero is on either side of ReLU's, because its halves
        # are rounded.
        like = min((h.detach().float(), e.detach()), key=lambda wanted: (d.detach().cpu().float() - wanted).abs().max())
        torch.testing.assert_close(d.detach().cpu().float(), like, rtol=0.05, atol=0.02)
        if i != 3:  # on the CPU softmax runs in the lower precision, on accelerators in float32
            assert d.dtype == h.dtype
    assert actual[0].dtype == actual[4].dtype == dtype
    assert actual[3].dtype == torch.float32
    assert torch.get_autocast_dtype(DEVICE) in torch.pjrt.get_amp_supported_dtype()


def test_grad_scaler() -> None:
    model = nn.Linear(3, 1).to(DEVICE)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=4.0, growth_interval=2)
    x = torch.ones(2, 3, device=DEVICE)
    losses = []
    for step in range(5):
        opt.zero_grad()
        with torch.autocast(DEVICE, dtype=torch.float16):
            loss = (model(x) - 3).square().mean()
        if step == 2:
            loss = loss * float("inf")
        weight = model.weight.detach().clone()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        scaler.step(opt)
        scaler.update()
        assert torch.equal(weight, model.weight.detach()) == (step == 2)
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert scaler.get_scale() == 8.0  # doubled after two good steps, halved by the bad one, doubled again


# --- transforms -------------------------------------------------------------------------------------------------------


def test_functional_transforms() -> None:
    from torch.func import functional_call, functionalize, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

    def program(device: str) -> list[torch.Tensor]:
        x, w = leaf(device, 4, 3).detach(), leaf(device, 3, 2).detach()

        def f(x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x @ w).pow(2).sum()

        def updating(x: torch.Tensor) -> torch.Tensor:
            y = x.clone()
            y[0].mul_(2)
            return y.sin()

        layer = nn.Linear(3, 2).to(device)
        parameters = {name: torch.full_like(p, 0.5) for name, p in layer.named_parameters()}
        _, pullback = vjp(f, x)
        return [
            vmap(lambda a: a @ w)(x), vmap(lambda a, b: (a * b).sum(), in_dims=(1, 1))(x, x), grad(f)(x),
            vmap(grad(f))(x),
            *jvp(f, (x,), (torch.ones_like(x),)), *pullback(torch.ones((), device=device)), jacrev(torch.sin)(x[0]),
            jacfwd(torch.sin)(x[0]), hessian(f)(x[0]), functional_call(layer, parameters, (x,)),
            functionalize(updating)(x),
            vmap(torch.argmax)(x),
        ]  # fmt: skip

    both(program)


def test_vmap_randomness() -> None:
    from torch.func import vmap

    x = torch.zeros(3, 4, device=DEVICE)
    different = vmap(lambda a: a + torch.rand(4, device=DEVICE), randomness="different")(x)
    same = vmap(lambda a: a + torch.rand(4, device=DEVICE), randomness="same")(x)
    assert len({tuple(r) for r in different.tolist()}) == 3
    assert len({tuple(r) for r in same.tolist()}) == 1


def test_forward_mode() -> None:
    import torch.autograd.forward_ad as fwd

    def program(device: str) -> list[torch.Tensor]:
        x = leaf(device, 4).detach()
        with fwd.dual_level():
            y = fwd.make_dual(x, torch.ones_like(x)).sin() * 3
            value, tangent = fwd.unpack_dual(y)
        return [value, tangent]

    both(program)


def test_dispatch_modes_see_ops() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    seen: list[str] = []
    with Names():
        y = torch.ones(3, device=DEVICE).relu() + 1
    assert y.tolist() == [2, 2, 2]
    assert "aten.relu.default" in seen
    assert "aten.add.Tensor" in seen


def test_a_subclass_is_not_asked_whether_memory_can_be_exchanged() -> None:
    """PyTorch asks it below autograd, where it is a composite; a subclass may refuse calls that it doesn't know."""

    seen: list[str] = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return super().__torch_dispatch__(func, types, args, kwargs or {})

    def calls(device: str) -> list[str]:
        seen.clear()
        x = Watched(torch.ones(2, device=device))
        x.data = torch.zeros(2, device=device)
        return [*seen]

    assert calls(DEVICE) == calls("cpu")


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_a_new_result_is_no_argument(device: str) -> None:
    """native_dropout's Meta kernel returns its input in evaluation, where the schema promises a new tensor."""
    x = torch.ones(5, device=device, requires_grad=True)
    y, mask = torch.native_dropout(x, 0.5, False)
    assert y is not x
    assert y.data_ptr() != x.data_ptr()
    y.mul_(3).sum().backward()
    assert x.tolist() == [1] * 5
    assert x.grad is not None
    assert x.grad.tolist() == [3] * 5
    assert mask.all()


FILLS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "masked_fill": lambda x, v, i: x.masked_fill(x > 0, v),
    "masked_fill of fewer dimensions": lambda x, v, i: x[0].masked_fill(x > 0, v),
    "masked_fill, transposed": lambda x, v, i: x.t().masked_fill(x.t() > 0, v),
    "masked_fill_": lambda x, v, i: (x * 2).masked_fill_(x[1] > 0, v),
    "masked_fill_ of a view": lambda x, v, i: (y := x * 2, y[:, 1].masked_fill_(x[:, 0] < 0, v))[0],
    "masked_fill by another dtype": lambda x, v, i: x.masked_fill(x > 0, v.double()),
    "index_fill": lambda x, v, i: x.index_fill(-1, i, v),
    "index_fill_": lambda x, v, i: (x * 2).index_fill_(0, i, v),
}


@pytest.mark.parametrize("name", FILLS)
def test_gradient_of_a_filled_value(name: str) -> None:
    """Gradients of each order don't use the host: PyTorch's derivatives select the filled elements."""

    def program(device: str) -> list[torch.Tensor]:
        x, value = leaf(device, 3, 4), torch.tensor(0.5).to(device).requires_grad_()
        y = FILLS[name](x, value, torch.tensor([0, 2, 0]).to(device))
        first = torch.autograd.grad((y * y * torch.linspace(1, 2, y.numel()).reshape(y.shape).to(device)).sum(),
                                    (x, value), create_graph=True)  # fmt: skip
        second = torch.autograd.grad(sum(g.square().sum() for g in first), (x, value))
        batched = torch.vmap(lambda x: FILLS[name](x, value, torch.tensor([0]).to(device)))(torch.stack([x, -x]))
        assert y.stride() == FILLS[name](x.cpu(), value.cpu(), torch.tensor([0, 2, 0])).stride()
        return [y, *first, *second, batched]

    both(program)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


def test_mistakes_of_a_filled_value() -> None:
    def raised(device: str, call: Callable[[torch.Tensor, torch.Tensor], Any]) -> str:
        x, value = torch.ones(2, 3, device=device), torch.ones((), device=device, requires_grad=True)
        with pytest.raises((RuntimeError, IndexError)) as error:
            call(x, value)
        return str(error.value)

    calls: list[Callable[[torch.Tensor, torch.Tensor], Any]] = [
        lambda x, v: x.masked_fill(x, v),
        lambda x, v: x.masked_fill(x > 0, v.expand(2)),
        lambda x, v: x.masked_fill(x[:, :2] > 0, v),
        lambda x, v: x.masked_fill_(x.expand(2, 2, 3) > 0, v),
        lambda x, v: x.requires_grad_().masked_fill_(x > 0, v),
        lambda x, v: x.index_fill(2, x.argmax(1), v),
    ]
    for call in calls:
        assert raised(DEVICE, call) == raised("cpu", call)


def test_product_of_all_elements() -> None:
    def program(device: str) -> list[torch.Tensor]:
        found = []
        for zeros in range(3):
            x = (torch.arange(6.0).reshape(2, 3) + 1).to(device)
            x.view(-1)[:zeros] = 0
            x.requires_grad_()
            (first,) = torch.autograd.grad(x.prod(), x, create_graph=True)
            (second,) = torch.autograd.grad(first.square().sum(), x)
            found += [first, second, torch.func.jvp(torch.prod, (x.detach(),), (x.detach() + 1,))[1]]
            found += [torch.vmap(torch.func.grad(torch.prod))(x.detach())]
        return found

    both(program)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


def test_glu_in_forward_mode() -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = leaf(device, 3, 4).detach()
        glu = lambda x: F.glu(x, 1)  # noqa: E731
        first = torch.func.jvp(glu, (x,), (x + 1,))[1]
        second = torch.func.jvp(torch.func.grad(lambda x: glu(x).square().sum()), (x,), (x + 1,))[1]
        return [first, second, torch.func.jacfwd(glu)(x)]

    both(program)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
