"""Optimizers with ``fused=True``: the CPU's steps, with nothing on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torch_pjrt

pytestmark = pytest.mark.each_way

SIZES = ((3, 5), (7,), ())
STEPS: dict[str, tuple[str, int, dict[str, Any]]] = {  # op, lists of state, options
    "adam": ("_fused_adam_", 2, {"weight_decay": 0.1, "amsgrad": False, "maximize": True}),
    "adam, amsgrad": ("_fused_adam_", 3, {"weight_decay": 0.0, "amsgrad": True, "maximize": False}),
    "adamw": ("_fused_adamw_", 2, {"weight_decay": 0.1, "amsgrad": False, "maximize": False}),
    "sgd": ("_fused_sgd_", 0, {"momentum": 0.0, "nesterov": False, "is_first_step": True}),
    "sgd, momentum, first": ("_fused_sgd_", 1, {"momentum": 0.9, "nesterov": True, "is_first_step": True}),
    "sgd, momentum": ("_fused_sgd_", 1, {"momentum": 0.9, "nesterov": False, "is_first_step": False}),
    "sgd, nesterov": ("_fused_sgd_", 1, {"momentum": 0.9, "nesterov": True, "is_first_step": False}),
    "adagrad": ("_fused_adagrad_", 1, {"lr_decay": 0.1, "weight_decay": 0.1, "eps": 1e-6, "maximize": True}),
}
FAMILIES: dict[str, dict[str, Any]] = {
    "_fused_adam_": {"beta1": 0.9, "beta2": 0.99, "eps": 1e-6},
    "_fused_adamw_": {"beta1": 0.9, "beta2": 0.99, "eps": 1e-6},
    "_fused_sgd_": {"weight_decay": 0.1, "dampening": 0.3, "maximize": False},
    "_fused_adagrad_": {},
}


def lists(name: str, dtype: torch.dtype) -> list[list[Tensor]]:
    op, states, _ = STEPS[name]
    torch.manual_seed(0)
    made = [[torch.rand(sizes).to(dtype) for sizes in SIZES] for _ in range(2 + states)]
    if "adam" in op and states == 2:
        made.append([])
    if "sgd" not in op:
        made.append([torch.tensor(2.0 + i) for i in range(len(SIZES))])
    elif states == 0:
        made.append([])
    return made


@pytest.mark.parametrize("scaled", [None, 0.0, 1.0], ids=["", "finite", "infinite"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.sampled(2)
def test_a_step(name: str, dtype: torch.dtype, scaled: float | None) -> None:
    op, _, options = STEPS[name]
    expected, actual = lists(name, dtype), [[t.to("pjrt") for t in each] for each in lists(name, dtype)]
    for tensors, device in ((expected, "cpu"), (actual, "pjrt")):
        amp = {}
        if scaled is not None:
            amp = {"grad_scale": torch.tensor(4.0, device=device), "found_inf": torch.tensor([scaled], device=device)}
        getattr(torch.ops.aten, op)(*tensors, lr=0.1, **FAMILIES[op], **options, **amp)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
    first = options.get("is_first_step", False)
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if not (first and scaled == 1.0 and i == 2):  # nothing reads this buffer after a first step that was skipped
            torch.testing.assert_close([t.cpu() for t in a], e)


OPTIMIZERS: list[Callable[[Any], torch.optim.Optimizer]] = [
    lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    lambda p: torch.optim.Adam(p, torch.tensor(0.01), fused=True),
    lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, fused=True),
]


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.sampled(2)
def test_training(make: Callable[[Any], torch.optim.Optimizer], dtype: torch.dtype) -> None:
    def train(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(4, 2).to(dtype).to(device)
        with torch.device(device):
            optimizer = make(model.parameters())
            scaler = torch.amp.GradScaler(torch.device(device).type, init_scale=8.0)
            for i in range(4):
                optimizer.zero_grad()
                loss = model(torch.ones(3, 4, dtype=dtype)).square().mean() * (float("inf") if i == 1 else 1.0)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        return [p.detach().cpu() for p in model.parameters()]

    torch_pjrt.reset_metrics()
    with torch_pjrt.strict_mode():
        actual = train("pjrt")
    tolerance = {} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-3}
    torch.testing.assert_close(actual, train("cpu"), **tolerance)


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_a_step_is_one_node(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    """A step is one node plus one for each hyperparameter, for any number of parameters; a new rate compiles
    nothing."""

    def recorded(layers: int) -> int:
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers))).to("pjrt")
        optimizer = make(model.parameters())
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        counts = []
        for step in range(5):
            optimizer.zero_grad()
            model(torch.ones(3, 4, device="pjrt")).sum().backward()
            torch_pjrt.sync()
            before = torch_pjrt.metrics()
            optimizer.step()
            schedule.step()
            after = torch_pjrt.metrics()
            counts.append(after["ops_recorded"] - before["ops_recorded"])
            assert step < 2 or after["graphs_compiled"] == before["graphs_compiled"]
        return counts[-1]

    assert recorded(1) == recorded(12) <= 8


def test_gradients_without_a_scale_are_left_alone() -> None:
    parameter = nn.Parameter(torch.ones(3, device="pjrt"))
    optimizer = torch.optim.AdamW([parameter], 0.01, fused=True)
    parameter.grad = torch.ones(3, device="pjrt")
    torch_pjrt.sync()
    address = parameter.grad.data_ptr()
    optimizer.step()
    torch_pjrt.sync()
    assert parameter.grad.data_ptr() == address


def test_steps_on_the_cpu_compile_nothing() -> None:
    parameter = nn.Parameter(torch.ones(3, device="pjrt"))
    optimizer = torch.optim.AdamW([parameter], 0.01, fused=True)
    expected = nn.Parameter(torch.ones(3))
    reference = torch.optim.AdamW([expected], 0.01)
    for step in range(5):
        parameter.grad, expected.grad = torch.ones(3, device="pjrt"), torch.ones(3)
        if step > 0:
            optimizer.state[parameter]["step"] = optimizer.state[parameter]["step"].cpu()
        before = torch_pjrt.metrics()["graphs_compiled"]
        optimizer.step()
        reference.step()
        torch_pjrt.sync()
        assert step < 3 or torch_pjrt.metrics()["graphs_compiled"] == before
    torch.testing.assert_close(parameter.detach().cpu(), expected.detach())


@pytest.mark.parametrize("name", ["AdamW", "Adam", "SGD", "Adagrad"])
def test_schedules_of_hyperparameters_compile_nothing(name: str) -> None:
    """OneCycleLR changes beta1, others the weight decay."""
    changes: dict[str, Callable[[int], dict[str, Any]]] = {
        "AdamW": lambda i: {"betas": (0.8 + i / 100, 0.99), "weight_decay": 0.1 + i / 100, "lr": 0.01 + i / 1000},
        "Adam": lambda i: {"betas": (0.8, 0.9 + i / 100), "weight_decay": 0.1 + i / 100, "eps": 1e-8 * (1 + i)},
        "SGD": lambda i: {"momentum": 0.8 + i / 100, "weight_decay": 0.1 + i / 100},
        "Adagrad": lambda i: {"weight_decay": 0.1 + i / 100, "eps": 1e-8 * (1 + i)},
    }
    results = []
    for device in ("cpu", "pjrt"):
        w = nn.Parameter(torch.linspace(-1, 1, 23).to(device))
        optimizer = getattr(torch.optim, name)([w], fused=True, **({"momentum": 0.8} if name == "SGD" else {}))
        for i in range(7):
            optimizer.param_groups[0].update(changes[name](i))
            torch_pjrt.reset_metrics()
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
            results.append(w.detach().clone().cpu())
            assert i < 3 or torch_pjrt.metrics()["graphs_compiled"] == 0
    for expected, actual in zip(results[:7], results[7:], strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("name", ["adam, amsgrad", "sgd, momentum", "adagrad"])
def test_lists_of_other_lengths(name: str) -> None:
    """Each list must have a tensor for each parameter. A step without one used to crash the process."""
    op, _, options = STEPS[name]
    for i in range(1, len(lists(name, torch.float32))):
        words = []
        for device in ("cpu", "pjrt"):
            given = [[t.to(device) for t in each] for each in lists(name, torch.float32)]
            given[i] = []
            with pytest.raises(RuntimeError) as raised:
                getattr(torch.ops.aten, op)(*given, lr=0.1, **FAMILIES[op], **options)
            words.append(str(raised.value).split("  (Could this")[0].split(", but got false")[0])
        assert words[0] == words[1]


def test_tensors_of_other_sizes() -> None:
    """The CPU's kernels read and write out of bounds."""
    op, _, options = STEPS["adagrad"]
    for i, wanted in (
        (1, r"grads\[0\] to have the sizes"),
        (2, r"state_sums\[0\]"),
        (3, "3 elements cannot be converted"),
    ):
        given = [[t.to("pjrt") for t in each] for each in lists("adagrad", torch.float32)]
        given[i][0] = torch.ones(3, device="pjrt")
        with pytest.raises(RuntimeError, match=wanted):
            getattr(torch.ops.aten, op)(*given, lr=0.1, **FAMILIES[op], **options)


@pytest.mark.parametrize("name", ["adam, amsgrad", "sgd, momentum", "adagrad"])
def test_dtypes_that_the_cpu_refuses(name: str) -> None:
    """Integer parameters used to become 0, and gradients of another dtype used to be accepted."""
    op, _, options = STEPS[name]
    width = len(lists(name, torch.float32))
    others = [(i, torch.float64) for i in range(1, width) if not (i == width - 1 and op != "_fused_sgd_")]
    for which, dtype in [(None, torch.int64), (None, torch.complex64), (None, torch.float8_e5m2), *others]:
        words = []
        for device in ("cpu", "pjrt"):
            given = [[t.to(device) for t in each] for each in lists(name, torch.float32)]
            for i, each in enumerate(given):
                if i == which or (which is None and each[0].dim()):
                    each[:] = [t.to(dtype) for t in each]
            with pytest.raises(RuntimeError) as raised:
                getattr(torch.ops.aten, op)(*given, lr=0.1, **FAMILIES[op], **options)
            words.append((type(raised.value), str(raised.value).split(" in ")[0].split("\n")[0]))
        assert words[0] == words[1]
