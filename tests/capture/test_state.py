"""compile_step and jit find state where it is now, whatever was replaced since the capture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torch_pjrt

Training = tuple[nn.Sequential, torch.optim.Optimizer]


def training(make: Callable[[Any], torch.optim.Optimizer]) -> Training:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    return model, make(model.parameters())


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[torch.Tensor], torch.Tensor]:
    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    return step


def clear(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.state.clear()


def forget_one(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    del optimizer.state[model[0].weight]


def clone(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Replaces state by equal tensors, so that the next step makes no state."""
    for parameter, state in list(optimizer.state.items()):
        optimizer.state[parameter] = {key: value.clone() for key, value in state.items()}


def exchange(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Assigns the dicts, in the same order, to other parameters."""
    owners, dicts = list(optimizer.state), list(optimizer.state.values())
    owners[0], owners[2] = owners[2], owners[0]
    optimizer.state.clear()
    for owner, values in zip(owners, dicts, strict=True):
        optimizer.state[owner] = values


def replace_parameter(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    old = model[0].weight
    model[0].weight = nn.Parameter(old.detach() * 0.5)
    optimizer.param_groups[0]["params"][0] = model[0].weight
    del optimizer.state[old]


def replace_list(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    parameters = optimizer.param_groups[0]["params"]
    optimizer.param_groups[0]["params"] = [nn.Parameter(torch.ones(4, 3)), *parameters[1:]]


def add_group(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    last = optimizer.param_groups[0]["params"].pop()
    optimizer.add_param_group({"params": [last], "lr": 0.5})


def replace_group(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.param_groups[0] = {**optimizer.param_groups[0], "lr": 0.001}


SGD = lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)  # noqa: E731
ADAM = lambda p: torch.optim.Adam(p, lr=0.05)  # noqa: E731
CHANGES = [clear, forget_one, clone, replace_parameter, replace_list, add_group, replace_group]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("make", [SGD, ADAM], ids=["SGD", "Adam"])
def test_optimizer_state_that_is_replaced(make: Any, change: Callable[..., None]) -> None:
    (model, optimizer), (other, reference) = training(make), training(make)
    step, eager = torch_pjrt.compile_step(step_of(model, optimizer)), step_of(other, reference)
    x = torch.tensor([[1.0, -2.0, 0.5]])
    for n in range(9):
        torch.testing.assert_close(step(x), eager(x).detach())
        if n in (3, 6):
            change(model, optimizer)
            change(other, reference)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    for values, expected in zip(optimizer.state.values(), reference.state.values(), strict=True):
        torch.testing.assert_close(values, expected)


def test_state_that_goes_to_another_parameter() -> None:
    def make() -> tuple[nn.ModuleList, torch.optim.Optimizer, Callable[[torch.Tensor], torch.Tensor]]:
        torch.manual_seed(1)
        layers = nn.ModuleList(nn.Linear(3, 3, bias=False) for _ in range(3))
        optimizer = SGD(layers.parameters())
        return layers, optimizer, step_of(nn.Sequential(*layers), optimizer)

    (layers, optimizer, step), (others, reference, eager) = make(), make()
    step = torch_pjrt.compile_step(step)
    x = torch.tensor([[1.0, -2.0, 0.5]])
    for n in range(5):
        torch.testing.assert_close(step(x), eager(x).detach())
        if n == 2:
            exchange(layers, optimizer)
            exchange(others, reference)
    for a, b in zip(layers.parameters(), others.parameters(), strict=True):
        torch.testing.assert_close(a, b)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.tokens, self.head = nn.Embedding(4, 2), nn.Linear(2, 4, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        return self.head(self.tokens(indices))


def test_weights_that_are_untied_after_jit() -> None:
    model, indices = Tied(), torch.tensor([0, 3])
    call = torch_pjrt.jit(model, (indices,))
    with torch.no_grad():
        torch.testing.assert_close(call(indices), model(indices))
        model.head.weight = model.tokens.weight = nn.Parameter(torch.randn(4, 2))  # another, and still one
        torch.testing.assert_close(call(indices), model(indices))
        model.head.weight = nn.Parameter(torch.randn(4, 2))
        with pytest.raises(RuntimeError, match=r"'tokens\.weight' and 'head\.weight' were one tensor.*call jit again"):
            call(indices)
        del model.head.weight
        with pytest.raises(RuntimeError, match="were one tensor"):
            call(indices)


@pytest.mark.parametrize("change", ["head", "both", "one in the optimizer", "all"])
def test_weights_that_are_untied_in_training(change: str) -> None:
    def train(wrap: Callable[[Any], Any]) -> list[torch.Tensor]:
        model, indices = Tied(), torch.tensor([0, 3])
        optimizer = torch.optim.SGD([model.tokens.weight], lr=0.1)
        step = wrap(step_of(model, optimizer))
        results = []
        for n in range(6):
            results.append(step(indices).detach())
            if n == 2:
                new = nn.Parameter(torch.linspace(-1, 1, 8).view(4, 2))
                if change in ("head", "both", "all"):
                    model.head.weight = new
                if change in ("both", "all"):  # in the module, not in the optimizer: nobody trains it
                    model.tokens.weight = new
                if change in ("one in the optimizer", "all"):
                    optimizer.param_groups[0]["params"][0] = new
        return [*results, *model.state_dict().values(), *optimizer.param_groups[0]["params"]]

    for ours, eager in zip(train(torch_pjrt.compile_step), train(lambda step: step), strict=True):
        torch.testing.assert_close(ours, eager)


def test_a_parameter_that_is_replaced_everywhere_needs_no_capture() -> None:
    model, optimizer = training(lambda p: torch.optim.SGD(p, lr=0.1))
    step = torch_pjrt.compile_step(step_of(model, optimizer))
    x = torch.ones(1, 3)
    step(x)
    model[0].weight = optimizer.param_groups[0]["params"][0] = nn.Parameter(torch.zeros(4, 3))
    step(x)
    assert step.captures == 1
    assert model[0].weight.any()


def test_a_parameter_that_the_function_holds_itself() -> None:
    model = nn.Linear(3, 3, bias=False)
    weight = model.weight
    fast = torch_pjrt.compile_step(lambda x: model(x) + weight.sum())
    x = torch.ones(2, 3)
    with torch.no_grad():
        fast(x)
        model.weight = nn.Parameter(torch.ones(3, 3))
        torch.testing.assert_close(fast(x), model(x) + weight.sum())


def test_what_an_optimizer_holds_does_not_concern_a_call_without_gradients() -> None:
    model, optimizer = training(SGD)

    def evaluate(x: torch.Tensor, optimizer: torch.optim.Optimizer = optimizer) -> torch.Tensor:
        return model(x)

    x = torch.ones(1, 3)
    call = torch_pjrt.jit(evaluate, (x,))
    model[0].weight = nn.Parameter(torch.ones(4, 3))
    torch.testing.assert_close(call(x), model(x).detach())


@pytest.mark.parametrize("fails", [False, True])
def test_what_waits_is_state_after_a_step_without_any(fails: bool) -> None:
    """Plain SGD keeps no state: each of its steps is a first one, and must end in a capture as well."""
    p = torch.zeros(1, device="pjrt", requires_grad=True)
    optimizer = torch.optim.SGD([p], 0.1)

    def train() -> None:
        optimizer.zero_grad()
        (p * 2).sum().backward()
        if fails:
            optimizer.param_groups[0].pop("lr")
        optimizer.step()

    if fails:
        with pytest.raises(KeyError, match="lr"):
            torch_pjrt.compile_step(train)()
    else:
        torch_pjrt.compile_step(train)()
    scale = torch.full((1,), 3.0, device="pjrt")
    multiply = torch_pjrt.compile_step(lambda x: x * scale)
    one = torch.ones(1, device="pjrt")
    assert multiply(one).item() == 3
    scale.mul_(2)
    assert multiply(one).item() == 6


def test_values_that_come_back_are_not_captured_again() -> None:
    class Scaled(nn.Module):
        scale, runs = 0.0, 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            Scaled.runs += 1
            return x * self.scale

    module, x = Scaled(), torch.ones(3)
    multiply = torch_pjrt.jit(module, (x,))
    for scale in (0.0, 1.0, 2.0):
        module.scale = scale
        assert multiply(x).tolist() == [scale] * 3
    runs = Scaled.runs
    for scale in (1.0, 2.0, 0.0, 2.0, 1.0):
        module.scale = scale
        assert multiply(x).tolist() == [scale] * 3
    assert Scaled.runs == runs


def test_attributes_that_are_set_to_what_they_were() -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.scale = x.shape[-1] ** -0.5
            self.sizes = (tuple(x.shape), [len(x)], str(x.dtype))
            return x * self.scale

    module, x, wider = Scaled(), torch.ones(2, 3), torch.ones(2, 4)
    narrow, wide = torch_pjrt.jit(module, (x,)), torch_pjrt.jit(module, (wider,))
    assert torch.equal(narrow(x), x * 3**-0.5)
    assert (module.scale, module.sizes) == (3**-0.5, ((2, 3), [2], "torch.float32"))
    assert torch.equal(wide(wider), wider * 0.5)
    assert (module.scale, module.sizes[0]) == (0.5, (2, 4))
    step = torch_pjrt.compile_step(module)
    for given in (x, wider, x, wider):
        assert torch.equal(step(given), given * given.shape[-1] ** -0.5)
        assert module.scale == given.shape[-1] ** -0.5
    assert step.captures == 2


class Counter(nn.Module):
    n = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n += 1
        return x * self.n


class Begun(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.is_begun = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        was, self.is_begun = self.is_begun, True
        return x + 1 if was else x + 2


class Alternative(nn.Module):
    """Uses another of two similar parameters after its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.ParameterList([torch.ones(2), torch.full((2,), 5.0)])
        self.at = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        at, self.at = self.at, 1
        return x * self.both[at]


@pytest.mark.parametrize("kind", [Counter, Begun, Alternative])
def test_attributes_that_decide_what_later_calls_do(kind: type[nn.Module]) -> None:
    x = torch.ones(2)
    for capture in (torch_pjrt.jit, torch_pjrt.export, lambda fn, args: torch_pjrt.compile_step(fn)(*args)):
        module = kind()
        with pytest.raises(torch_pjrt.CaptureError, match=r"sets '(n|is_begun|at)' of module '\w+' (to|and computes) "):
            capture(module, (x,))
        if kind is not Counter:
            assert torch.equal(module(x), kind()(x))
            assert torch.equal(torch_pjrt.jit(module, (x,))(x), module(x))


class Chosen(nn.Module):
    """Uses its slow path until it has seen a short input."""

    def __init__(self) -> None:
        super().__init__()
        self.way, self.w = "slow", nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) < 3:
            self.way = "fast"
        return x * self.w + (1 if self.way == "fast" else 2)


def test_attribute_that_calls_of_one_shape_set(tmp_path: Path) -> None:
    eager, module = Chosen(), Chosen()
    step = torch_pjrt.compile_step(module)
    with torch.no_grad():
        for rows in (4, 2, 4, 2, 4):
            x = torch.randn(rows, 3)
            assert torch.equal(step(x), eager(x))
            assert module.way == eager.way
    assert step.captures == 3
    torch_pjrt.export(Chosen(), (torch.ones(2, 3),)).save(tmp_path / "chosen.pjrt")
    assert torch.equal(torch_pjrt.load(tmp_path / "chosen.pjrt")(torch.ones(2, 3)), torch.full((2, 3), 2.0))


GLOBAL = torch.ones(2)


class Holder:
    def __init__(self) -> None:
        self.tensor, self.listed, self.by_name = torch.ones(2), [torch.ones(2)], {"t": torch.ones(2)}


def replaced_tensors() -> dict[str, tuple[Callable[..., Any], Callable[[torch.Tensor], object]]]:
    """Functions of a tensor that is not an argument, with one that puts another in its place."""
    local, holder = torch.ones(2), Holder()

    def replace_local(tensor: torch.Tensor) -> None:
        nonlocal local
        local = tensor

    def replace_global(tensor: torch.Tensor) -> None:
        global GLOBAL
        GLOBAL = tensor

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask = torch.ones(2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.mask

    plain = Plain()
    model = nn.Sequential(nn.Linear(2, 2))
    return {
        "variable": (lambda x: x * local, replace_local),
        "global": (lambda x: x * GLOBAL, replace_global),
        "attribute": (lambda x: x * holder.tensor, lambda tensor: setattr(holder, "tensor", tensor)),
        "list": (lambda x: x * holder.listed[0], lambda tensor: holder.listed.__setitem__(0, tensor)),
        "dict": (lambda x: x * holder.by_name["t"], lambda tensor: holder.by_name.__setitem__("t", tensor)),
        "module": (plain, lambda tensor: setattr(plain, "mask", tensor)),
        "submodule": (model, lambda _: model.__setitem__(0, nn.Linear(2, 2))),
        "new submodule": (model, lambda _: model.append(nn.Tanh())),
    }


@pytest.mark.parametrize("entry", ["jit", "step"])
@pytest.mark.parametrize("kind", replaced_tensors())
def test_replaced_tensors_and_modules_are_seen(kind: str, entry: str) -> None:
    fn, replace = replaced_tensors()[kind]
    x = torch.tensor([2.0, 3.0])
    with torch.no_grad():
        fast = torch_pjrt.jit(fn, (x,)) if entry == "jit" else torch_pjrt.compile_step(fn)
        torch.testing.assert_close(fast(x), fn(x))
        replace(torch.tensor([5.0, 7.0]))
        if entry == "jit" and "submodule" in kind:
            with pytest.raises(RuntimeError, match="a submodule was replaced: call jit again"):
                fast(x)
        else:
            torch.testing.assert_close(fast(x), fn(x))
    if entry == "step":
        assert fast.captures == 1 + ("submodule" in kind)


def test_the_default_dtype_of_the_call() -> None:
    fast = torch_pjrt.compile_step(lambda x: x + torch.zeros(2))
    for dtype in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            assert fast(torch.ones(2)).dtype == dtype
        finally:
            torch.set_default_dtype(torch.float32)
