"""Values of Python that a captured function changes or takes, at every entry point: calls of a program do neither."""

from __future__ import annotations

import collections
import itertools
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torch_pjrt

ENTRIES: dict[str, Callable[..., Any]] = {
    "jit": torch_pjrt.jit,
    "step": lambda fn, args: torch_pjrt.compile_step(fn)(*args),
    "file": torch_pjrt.export,
}


def as_jax(fn: Any, args: tuple[Any, ...]) -> Any:
    pytest.importorskip("jax")
    from torch_pjrt.jax import as_jax

    made = as_jax(fn)
    arrays = [x.numpy() for x in args]
    return made[0](*made[1:], *arrays) if isinstance(made, tuple) else made(*arrays)


EVERY = pytest.mark.parametrize("capture", [*ENTRIES.values(), as_jax], ids=[*ENTRIES, "jax"])
X = torch.ones(2)
count, last = 0, None


class Held:
    calls = 0


class Log(nn.Module):
    def __init__(self, log: Callable[[Any, torch.Tensor], object], value: Any) -> None:
        super().__init__()
        self.log, self.kept = log, value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.log(self.kept, x)
        return x * 2


def changing() -> dict[str, Any]:
    """Functions by the name of the variable that each changes."""
    history: list[int] = []
    counts = {"calls": {"all": 0}}
    total = 0
    array = np.zeros(2)
    held = Held()

    def appends(x: torch.Tensor) -> torch.Tensor:
        history.append(x.shape[0])
        return x + 1

    def counts_up(x: torch.Tensor) -> torch.Tensor:
        counts["calls"]["all"] += 1
        return x + 1

    def adds_up(x: torch.Tensor) -> torch.Tensor:
        nonlocal total
        total += x.shape[0]
        return x + 1

    def adds_to_global(x: torch.Tensor) -> torch.Tensor:
        global count
        count += 1
        return x * count

    def adds_to_class(x: torch.Tensor) -> torch.Tensor:
        Held.calls += 1
        return x * Held.calls

    def sets_attribute(x: torch.Tensor) -> torch.Tensor:
        held.calls += 1
        return x + 1

    def writes(x: torch.Tensor) -> torch.Tensor:
        array[0] += 1
        return x + array[0]

    def own_attribute(x: torch.Tensor) -> torch.Tensor:
        own_attribute.calls = getattr(own_attribute, "calls", 0) + 1  # type: ignore[attr-defined]
        return x + 1

    log = Log(lambda sizes, x: sizes.append(x.shape[0]), collections.deque(maxlen=2))
    return {
        "history": appends, "counts": counts_up, "total": adds_up, "count": adds_to_global, "Held": adds_to_class,
        "held": sets_attribute, "array": writes, "own_attribute": own_attribute, "kept": log,
    }  # fmt: skip


def taking() -> dict[str, Any]:
    """Functions by the name of what each takes a value of."""
    listed, cycle, counter = iter([1.0, 2.0, 3.0]), itertools.cycle([1.0, 2.0]), itertools.count()
    generator = (i / 2 for i in range(9))
    both = zip(itertools.count(), itertools.count(1), strict=True)
    mine, numpys = random.Random(0), np.random.default_rng(0)
    return {
        "listed": lambda x: x * next(listed),
        "cycle": lambda x: x * next(cycle),
        "counter": lambda x: x * next(counter),
        "generator": lambda x: x * next(generator),
        "both": lambda x: x * next(both)[0],
        "mine": lambda x: x * mine.random(),
        "numpys": lambda x: x * float(numpys.random()),
        "random": lambda x: x * random.random(),
        "numpy.random": lambda x: x * float(np.random.rand()),
        "kept": Log(lambda values, x: next(values), iter([1, 2, 3, 4])),
    }


@EVERY
def test_changes_are_warned_of(capture: Callable[..., Any]) -> None:
    for name, fn in changing().items():
        with pytest.warns(UserWarning, match=f"changes '{name}'.*program don't do it. Return the value"):
            capture(fn, (X,))


@EVERY
def test_values_that_are_taken_are_warned_of(capture: Callable[..., Any]) -> None:
    for name, fn in taking().items():
        with pytest.warns(UserWarning, match=f"(draws from|takes a value of) '{name}'.*keeps the value of the capture"):
            capture(fn, (X,))
    with torch_pjrt.strict_mode(), pytest.raises(torch_pjrt.CaptureError, match=r"'random'.*in strict mode"):
        capture(taking()["random"], (X,))


class Counted(nn.LSTM):  # replaces its list of weights in each call
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        if self.training:
            self.calls += 1
        return super().forward(x[None])[0]


def test_attributes_of_modules_in_jax() -> None:
    with pytest.warns(UserWarning, match="changes 'Counted'"):
        as_jax(Counted(2, 2), (X,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_jax(Counted(2, 2).eval(), (X,))


@EVERY
def test_values_that_are_only_read_are_not_warned_of(capture: Callable[..., Any]) -> None:
    history, values, mine, array = [1], iter([1.0]), random.Random(), np.ones(2)

    def reads(x: torch.Tensor) -> torch.Tensor:
        mine.setstate(mine.getstate())
        return x * len(history) + Held.calls + count + values.__length_hint__() + float(array[0])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        capture(reads, (X,))


@EVERY
def test_a_tensor_that_is_put_somewhere_is_refused(capture: Callable[..., Any]) -> None:
    history: list[torch.Tensor] = []
    held = Held()

    def sets_global(x: torch.Tensor) -> torch.Tensor:
        global last
        last = x * 2
        return x + 1

    def sets_attribute(x: torch.Tensor) -> torch.Tensor:
        held.calls = x * 2  # type: ignore[assignment]
        return x + 1

    log = Log(lambda kept, x: kept.append(x), [])
    fns = {"history": lambda x: (history.append(x * 2), x + 1)[1], "last": sets_global, "held": sets_attribute}
    for name, fn in {**fns, "kept": log}.items():
        with pytest.raises(torch_pjrt.CaptureError, match=f"puts a tensor into '{name}'.*Return the tensor"):
            capture(fn, (X,))
    assert (history, last, vars(held), log.kept) == ([], None, {}, []), "they are as before"


def test_in_place_calls_return_the_callers_own_tensor() -> None:
    """So `values[key] += x` stores what was there, and changes nothing but the tensor."""

    class Kept:
        def __init__(self) -> None:
            self.weights, self.listed, self.one = {"a": torch.ones(2)}, [torch.ones(2)], torch.ones(2)
            self.model = nn.Linear(2, 2)
            nn.init.ones_(self.model.weight)
            self.parameters = dict(self.model.named_parameters())

        def step(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.weights["a"] -= x
                self.listed[0] *= 3
                self.one += self.weights["a"].clamp_(min=-5)
                torch.add(self.one, x, out=self.one)
                self.parameters["weight"] /= 2
                return self.one + self.model(x) + (self.one is self.one.add_(1))

        def tensors(self) -> list[torch.Tensor]:
            return [self.weights["a"], *self.listed, self.one, self.model.weight.detach()]

    for entry in ("step", "jit"):
        expected, kept = Kept(), Kept()
        kept.model.load_state_dict(expected.model.state_dict())
        call = torch_pjrt.compile_step(kept.step) if entry == "step" else torch_pjrt.jit(kept.step, (X,))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(3):
                torch.testing.assert_close(call(X), expected.step(X))
        torch.testing.assert_close(kept.tensors(), expected.tensors())


@pytest.mark.parametrize("entry", ["step", "file"])
def test_containers_among_the_arguments(entry: str) -> None:
    def sets(d: dict[str, Any]) -> torch.Tensor:
        d["y"] = d["x"] * 2
        return d["x"] + 1

    def pops(d: dict[str, Any]) -> torch.Tensor:
        return d.pop("x") * 2

    def appends(d: Any) -> torch.Tensor:
        d["l"].append(3)
        return d["x"] * 2

    def updates(d: dict[str, Any]) -> torch.Tensor:
        d["x"] += 1
        return d["x"] * 2

    def batch() -> tuple[Any]:
        return ({"x": torch.ones(2), "l": [torch.zeros(1)]},)

    capture = ENTRIES[entry]
    with pytest.raises(torch_pjrt.CaptureError, match=r"puts a tensor into 'd'.*Return the tensor"):
        capture(sets, batch())
    for fn in (pops, appends):
        with pytest.warns(UserWarning, match="changes 'd'"):
            capture(fn, batch())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = batch()
        capture(updates, given)
    assert entry == "file" or given[0]["x"].tolist() == [2.0, 2.0]


def test_objects_among_the_arguments() -> None:
    def counts(o: Held, x: torch.Tensor) -> torch.Tensor:
        o.calls += 1
        return x + 1

    def keeps(o: Any, x: torch.Tensor) -> torch.Tensor:
        o.last = x * 2
        return x + 1

    def takes(o: Any, x: torch.Tensor) -> torch.Tensor:
        return x * next(o)

    def calls(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return module(x)

    step = torch_pjrt.compile_step
    with pytest.warns(UserWarning, match="changes 'o'"):
        step(counts)(Held(), X)
    with pytest.warns(UserWarning, match="takes a value of 'o', an iterator"):
        step(takes)(iter([1, 2]), X)
    with pytest.raises(torch_pjrt.CaptureError, match="puts a tensor into 'o'"):
        step(keeps)(Held(), X)
    with pytest.raises(torch_pjrt.CaptureError, match="attribute 'last' of module"):
        step(keeps)(nn.Linear(2, 2), X)
    modules = nn.Dropout(), nn.Linear(2, 2)
    fast = step(calls)
    for _ in range(3):
        for module in modules:
            torch.testing.assert_close(fast(module.eval(), X), module(X))
    assert fast.captures <= 3
    modules[0].train()
    assert set(fast(modules[0], X).tolist()) <= {0.0, 2.0}


def test_an_optimizers_first_step_has_its_effects_once() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    losses: list[torch.Tensor] = []

    def step(x: torch.Tensor) -> None:
        losses.append(model(x).sum())
        losses[-1].backward()
        optimizer.step()

    torch_pjrt.compile_step(step)(X)
    assert [loss.shape for loss in losses] == [()]
    assert losses[0].item() == losses[0].item()
