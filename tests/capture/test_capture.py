"""compile_step and jit: results equal eager's, state is updated in place, and no program is stale."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_pjrt

DEVICES = ("cpu", "pjrt")


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch_pjrt.reset_metrics()
    torch.manual_seed(0)


def same(a: Any, b: Any, **tolerances: float) -> None:
    torch.testing.assert_close(a, b, check_device=False, **tolerances)


def small() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def data(n: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    return torch.randn(n, 4), torch.randn(n, 3)


Optimizer = Callable[[Any], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Optimizer] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD-momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "SGD-foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "Adam-foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "Adam-single": lambda p: torch.optim.Adam(p, lr=0.01, foreach=False, amsgrad=True),
    "AdamW-fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "RMSprop-foreach": lambda p: torch.optim.RMSprop(p, lr=0.01, foreach=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1),
    "Adagrad-foreach": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1, foreach=True),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "Adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5),
}


def training(device: str, make: Optimizer, **kwargs: Any) -> tuple[Any, ...]:
    """Returns a model, its optimizer and its step, and the same for eager on the CPU."""

    def one(model: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer, Callable[..., torch.Tensor]]:
        optimizer = make(model.parameters())

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return model, optimizer, step

    model, optimizer, step = one(small().to(device))
    return (model, optimizer, torch_pjrt.compile_step(step, **kwargs), *one(small()))


def same_state(model: nn.Module, other: nn.Module, **tolerances: float) -> None:
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        same(a.cpu(), b, **tolerances)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_and_schedules(name: str) -> None:
    model, optimizer, step, other, reference, eager = training("cpu", OPTIMIZERS[name])
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda n: 1 / (1 + n)) for o in (optimizer, reference)]
    x, y = data()
    for n in range(5):
        same(step(x, y), eager(x, y).detach())
        same_state(model, other)
        for schedule in schedules:
            schedule.step()
        if n == 1:
            captures, compiled = step.captures, torch_pjrt.metrics()["graphs_compiled"]
    assert (step.captures, step.programs) == (captures, 1)
    assert torch_pjrt.metrics()["graphs_compiled"] == compiled  # a learning rate is an input
    for a, b in zip(optimizer.state.values(), reference.state.values(), strict=True):
        assert a.keys() == b.keys()
        for key in a:
            if isinstance(b[key], torch.Tensor):
                same(a[key], b[key])


@pytest.mark.parametrize("name", ["SGD-momentum", "AdamW"])
def test_on_the_device(name: str) -> None:
    model, _, step, other, _, eager = training("pjrt", OPTIMIZERS[name])
    x, y = data()
    for _ in range(4):
        loss = step(x.to("pjrt"), y.to("pjrt"))
        assert loss.device.type == "pjrt"
        same(loss.cpu(), eager(x, y).detach())
    same_state(model, other)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.host_memory
def test_state_is_updated_in_place() -> None:
    model, optimizer, step, *_ = training("cpu", OPTIMIZERS["Adam"])
    x, y = data()
    step(x, y)
    tensors = [*model.parameters(), *(t for s in optimizer.state.values() for t in s.values())]
    before = [(t.data_ptr(), t._version, t.clone()) for t in tensors]
    torch_pjrt.reset_metrics()
    loss = step(x, y)
    assert not loss.requires_grad
    for tensor, (address, version, value) in zip(tensors, before, strict=True):
        assert tensor.data_ptr() == address
        assert tensor._version > version
        assert not torch.equal(tensor, value)
    metrics = torch_pjrt.metrics()
    assert metrics["executions"] == 1
    assert metrics["host_transfer_bytes"] < 200  # nothing was copied but what is not aligned


def test_a_float_of_param_groups_that_changes_is_never_stale() -> None:
    model, optimizer, step, other, reference, eager = training("cpu", OPTIMIZERS["AdamW"])
    x, y = data()
    values = [(0.9, 0.99), (0.8, 0.99), (0.7, 0.9), (0.6, 0.8)]
    for betas in values:
        for o in (optimizer, reference):
            o.param_groups[0]["betas"] = betas
            o.param_groups[0]["weight_decay"] = betas[0] / 10
        same(step(x, y), eager(x, y).detach())
    same_state(model, other)


def test_optimizer_that_is_loaded_again() -> None:
    model, optimizer, step, other, reference, eager = training("cpu", OPTIMIZERS["Adam"])
    x, y = data()
    for _ in range(3):
        step(x, y), eager(x, y)
    saved = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(reference.state_dict())
    step(x, y), eager(x, y)
    optimizer.load_state_dict(saved[0])
    reference.load_state_dict(saved[1])
    for _ in range(2):
        same(step(x, y), eager(x, y).detach())
    same_state(model, other)


def test_parameters_that_are_replaced_are_read_anew() -> None:
    model = small()
    call = torch_pjrt.jit(model, (torch.randn(2, 4),))
    x = torch.randn(2, 4)
    with torch.no_grad():
        same(call(x), model(x))
        model[0].weight.mul_(2)
        same(call(x), model(x))
        model[0].weight = nn.Parameter(torch.randn(8, 4))
        same(call(x), model(x))
        model[0].weight = nn.Parameter(torch.randn(9, 4))
        with pytest.raises(RuntimeError, match=r"a parameter or buffer has another shape.*0\.weight"):
            call(x)


def test_gradients() -> None:
    x, y = data()
    model, _, step, *_ = training("cpu", OPTIMIZERS["SGD"])
    for _ in range(2):
        step(x, y)
    assert all(p.grad is None for p in model.parameters())

    model, _, step, other, _, eager = training("cpu", OPTIMIZERS["SGD"], keep_grads=True)
    for _ in range(3):
        step(x, y), eager(x, y)
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            same(p.grad, q.grad)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_that_another_step_uses(set_to_none: bool) -> None:
    """Gradients accumulate over calls; the optimizer's step is outside of the program, or in another one."""
    models = [small(), small()]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]

    def accumulate(i: int) -> Callable[..., torch.Tensor]:
        def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            loss = F.mse_loss(models[i](x), y)
            loss.backward()
            return loss

        return run

    fast, eager = torch_pjrt.compile_step(accumulate(0)), accumulate(1)
    x, y = data()
    for n in range(6):
        same(fast(x + n, y), eager(x + n, y).detach())
        if n % 2:
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=set_to_none)
        for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
            same(p.grad, q.grad)
    same_state(*models)
    assert fast.captures <= 2


def test_micro_batches_and_clipping() -> None:
    models = [small(), small()]

    def make(model: nn.Module) -> Callable[..., torch.Tensor]:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

        def step(xs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad(set_to_none=False)
            for x in xs.unbind():
                F.mse_loss(model(x), y).backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            return norm

        return step

    fast, eager = torch_pjrt.compile_step(make(models[0])), make(models[1])
    xs, y = torch.randn(3, 5, 4), torch.randn(5, 3)
    for _ in range(4):
        same(fast(xs, y), eager(xs, y))
    same_state(*models)


class Regularised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.dropout = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.norm(self.layer(x)))


def test_modes_buffers_and_random_numbers() -> None:
    model = Regularised()
    forward = torch_pjrt.compile_step(lambda x: model(x))
    x = torch.randn(16, 4)
    with torch.no_grad():
        a, b = forward(x), forward(x)
        assert not torch.equal(a == 0, b == 0)  # new numbers in each call
        assert int(model.norm.num_batches_tracked) == 2
        reference = Regularised()
        reference.load_state_dict(Regularised().state_dict())
        reference.layer.load_state_dict(model.layer.state_dict())
        for _ in range(2):
            reference(x)
        same(model.norm.running_var, reference.norm.running_var)
        model.eval()
        reference.eval()
        same(forward(x), reference(x))
        same(forward(x[:3]), reference(x[:3]))
        model.train()
        forward(x)
        assert int(model.norm.num_batches_tracked) == 3
    assert forward.captures == 3


def test_autocast() -> None:
    models = [small(), small()]

    def make(model: nn.Module) -> Callable[..., Any]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x: torch.Tensor) -> Any:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = model(x)
            out.float().square().mean().backward()
            optimizer.step()
            return {"out": out, "constant": 3}

        return step

    fast, eager = torch_pjrt.compile_step(make(models[0])), make(models[1])
    x = torch.randn(5, 4)
    for _ in range(3):
        a, b = fast(x), eager(x)
        assert a["out"].dtype == torch.bfloat16
        assert a["constant"] == 3
        same(a["out"], b["out"].detach(), rtol=0.02, atol=0.02)
    same_state(*models, rtol=0.02, atol=0.02)
    assert not torch.is_autocast_enabled("pjrt")


def test_tensors_that_no_module_holds() -> None:
    scale, count, table = torch.tensor(2.0), torch.zeros(3), [torch.ones(3)]

    def fn(x: torch.Tensor) -> torch.Tensor:
        count.add_(1)
        return (x * scale + table[0] + torch.zeros(3) + torch.ones(3, device="cpu")).cpu()

    fast = torch_pjrt.compile_step(fn)
    for n in range(1, 4):
        scale.fill_(n)
        same(fast(torch.ones(3)), torch.full((3,), n + 2.0))
        same(count, torch.full((3,), float(n)))


def test_tied_weights_and_frozen_ones() -> None:
    def make() -> tuple[nn.Sequential, Callable[..., torch.Tensor]]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 4))
        model[2].weight = model[0].weight
        model[3].requires_grad_(False)
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        return model, step

    model, step = make()
    other, eager = make()
    fast = torch_pjrt.compile_step(step)
    x = torch.randn(2, 4)
    for _ in range(3):
        same(fast(x), eager(x).detach())
    assert model[2].weight is model[0].weight
    same_state(model, other)


def test_arguments_in_structures_and_in_place() -> None:
    def fn(batch: dict[str, torch.Tensor], *, scale: float) -> dict[str, Any]:
        batch["total"].add_(batch["x"].sum())
        return {"y": batch["x"] * scale, "total": batch["total"]}

    fast = torch_pjrt.compile_step(fn)
    batch = {"x": torch.ones(4), "total": torch.zeros(1)}
    assert fast(batch, scale=2.0)["y"].tolist() == [2.0] * 4
    result = fast(batch, scale=3.0)
    assert result["y"].tolist() == [3.0] * 4
    assert result["total"] is batch["total"]
    assert batch["total"].item() == 8
    assert fast.captures == 2


def test_jit() -> None:
    model = small()
    x = torch.randn(5, 4)
    call = torch_pjrt.jit(model, (torch.empty(5, 4),))
    with torch.no_grad():
        same(call(x), model(x))
        same(call(torch.randn(4, 5).t().copy_(x)), model(x))  # other strides: a copy stands for it
    assert not call(x).requires_grad
    with pytest.raises(TypeError, match=r"argument 0: expected float32\[5, 4\] on 'cpu', got float32\[2, 4\] on 'cpu'"):
        call(torch.randn(2, 4))
    with pytest.raises(TypeError, match="got float64"):
        call(x.double())
    for example in (torch.rand(3, 1).expand(3, 3), torch.rand(5).unfold(0, 3, 1)):  # no copy can be laid out like it
        doubled = torch_pjrt.jit(lambda x: x * 2, (example,))
        assert torch.equal(doubled(example), example * 2)
        with pytest.raises(TypeError, match=r"with which elements share memory, got \(3, 1\): give jit contiguous\(\)"):
            doubled(torch.rand(3, 3))
    with pytest.raises(TypeError, match="on 'pjrt:0'"):
        call(x.to("pjrt"))
    with pytest.raises(TypeError, match="expected 1 arguments, got 2"):
        call(x, x)
    with pytest.raises(TypeError, match="got a float"):
        call(1.0)
    with pytest.raises(TypeError, match="number 0 is a int"):
        torch_pjrt.jit(model, (3,))


def test_jit_on_the_device_and_of_structures() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        return {"sum": x + y, "both": (x, y * 2)}

    x, y = torch.ones(3).to("pjrt"), torch.arange(3.0).to("pjrt")
    result = torch_pjrt.jit(fn, (x, y))(x + 1, y)
    assert result["both"][1].device.type == "pjrt"
    assert result["sum"].tolist() == [2.0, 3.0, 4.0]
    pair = torch_pjrt.jit(lambda x: (x, x + 1), (torch.ones(2),))
    given = torch.zeros(2)
    assert pair(given)[0] is given
    assert pair(given)[1].tolist() == [1.0, 1.0]


def test_a_captured_step_is_let_go_of() -> None:
    model, _, step, *_ = training("cpu", OPTIMIZERS["Adam"])
    model.step = step  # a cycle through the captured program
    step(*data()), step(*data())
    import weakref

    alive = weakref.ref(model)
    del model, step, _
    gc.collect()
    assert alive() is None


def test_steps_within_steps() -> None:
    inner = torch_pjrt.compile_step(lambda x: x * 2)
    outer = torch_pjrt.compile_step(lambda x: inner(x) + 1)
    for _ in range(2):
        assert outer(torch.ones(2)).tolist() == [3.0, 3.0]
    assert (outer.captures, inner.captures) == (1, 0)


def test_a_number_read_inside_may_be_computed_with() -> None:
    fast = torch_pjrt.compile_step(lambda x: x * (1 - x.sum().item() / 2))
    for n in range(1, 4):
        x = torch.full((2,), float(n))
        same(fast(x), x * (1 - n))
    assert fast.captures == 1


@pytest.mark.parametrize("device", DEVICES)
def test_step_counts_that_differ(device: str) -> None:
    """Equal counts are one input of the program; unequal ones, or ones that advance separately, are several."""
    models = [small().to(device), small()]

    def make(model: nn.Module) -> tuple[torch.optim.Optimizer, Callable[..., None]]:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

        def step(x: torch.Tensor, last: bool) -> None:
            optimizer.zero_grad()
            model[: 3 if last else 1](x).square().sum().backward()
            optimizer.step()

        return optimizer, step

    (optimizer, step), (reference, eager) = make(models[0]), make(models[1])
    fast = torch_pjrt.compile_step(step)
    x = data()[0]
    programs = []
    for n, last in enumerate((True, True, False, True, True)):
        if n == 4:
            for o, model in zip((optimizer, reference), models, strict=True):
                o.state[model[0].weight]["step"] += 5
        fast(x.to(device), last)
        eager(x, last)
        programs.append(fast.captures)
        counts = [[float(s["step"]) for s in o.state.values()] for o in (optimizer, reference)]
        assert counts[0] == counts[1]
    same_state(*models, rtol=1e-4, atol=1e-5)
    assert programs[-1] > programs[-2]  # it was noticed


class OfTheCpu(torch.autograd.Function):
    """Its backward names its device, and makes tensors."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0].to("cpu") * 2 + torch.ones(gradients[0].shape) * scale


scale = torch.tensor(3.0)


def test_what_backward_calls_is_seen() -> None:
    reported = []
    for compiled in (False, True):
        weight = nn.Parameter(torch.ones(3))
        weight.register_hook(lambda gradient: gradient + torch.arange(3))

        def step(x: torch.Tensor, weight: nn.Parameter = weight) -> torch.Tensor:
            loss = OfTheCpu.apply(weight * x).sum()
            loss.backward()
            return loss.detach()

        run = torch_pjrt.compile_step(step) if compiled else step
        reported.append([(run(torch.full((3,), float(i))).item(), weight.grad.tolist()) for i in range(3)])  # type: ignore[union-attr]
    assert reported[0] == reported[1]
