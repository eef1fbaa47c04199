"""CPU eager's results of a model: in its dtype, in float64, and for inputs that differ in their last bits."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import torch

from zoo.model import Built, Model, cast, seeded
from zoo.values import FLOOR, Values, difference, has_no_right_digit, host, leaves

STEPS, RATE = 2, 0.01


class Inapplicable(Exception):
    """Raised if the cell has no meaning: there is nothing to differentiate, or eager itself raises."""


def loss_of(result: Any) -> torch.Tensor:
    """Returns a number that depends on every floating-point element of the result, each with its own weight."""
    total = None
    for _, leaf in leaves(result):
        leaf = torch.view_as_real(leaf) if leaf.is_complex() else leaf
        if not leaf.is_floating_point() or not leaf.requires_grad or leaf.numel() == 0:
            continue
        flat = leaf.to_dense().reshape(-1) if leaf.layout != torch.strided else leaf.reshape(-1)
        flat = flat if flat.dtype == torch.float64 else flat.float()
        weights = torch.arange(flat.numel(), device=flat.device, dtype=flat.dtype).mul(0.7).cos()
        part = (flat * weights).mean()
        total = part if total is None else total + part
    if total is None:
        raise Inapplicable("no result needs a gradient")
    return total


def step_of(made: Built, call: Callable[..., Any] | None = None) -> Callable[..., torch.Tensor]:
    """Returns a training step by plain gradient descent, as a function of the model's arguments."""
    model = made.module if call is None else call
    parameters = list(made.module.parameters())
    optimizer = torch.optim.SGD(parameters, lr=RATE) if parameters else None

    def step(*args: Any, **kwargs: Any) -> torch.Tensor:
        if optimizer:
            optimizer.zero_grad()
        loss = loss_of(model(*args, **kwargs))
        loss.backward()
        if optimizer:
            optimizer.step()
        return loss.detach()

    return step


def after_step(made: Built, loss: Any) -> Values:
    """Returns the loss, and the values that a step has changed: parameters, buffers, gradients."""
    found = host({"loss": loss})
    for kind, tensors in (("parameter", made.module.named_parameters()), ("buffer", made.module.named_buffers())):
        found |= {f"{kind} {name}": value for key, tensor in tensors for name, value in host({key: tensor}).items()}
    named = {f"gradient {name}": p.grad for name, p in made.module.named_parameters() if p.grad is not None}
    return found | host(named)


def infer(made: Built) -> Any:
    with torch.no_grad():
        return made.module(*made.args, **made.kwargs)


def run(made: Built, what: str, seed: int = 1) -> Values:
    """Returns the results of a forward call in evaluation mode, or the state after two training steps."""
    seeded(seed)
    if what == "forward":
        made.module.eval()
        return host(infer(made))
    step = step_of(made)
    for _ in range(STEPS):
        loss = step(*made.args, **made.kwargs)
    return after_step(made, loss)


def jittered(made: Built, seed: int) -> Built:
    """Returns the module with parameters and inputs that differ in their last bits."""
    seeded(seed)
    inputs = copy.deepcopy((made.args, made.kwargs))
    for _, x in [*made.module.named_parameters(), *leaves(inputs)]:
        if x.is_floating_point() and x.layout == torch.strided:
            x.data.mul_(1 + (torch.randint(-1, 2, x.shape) * torch.finfo(x.dtype).eps).to(x.dtype))
    return Built(made.module, *inputs)


class Reference:
    """CPU eager's results of one model. Expensive ones are computed on first use."""

    def __init__(self, model: Model, what: str, dtype: torch.dtype) -> None:
        self.model, self.what, self.dtype = model, what, dtype
        made = model.built(dtype)
        try:
            self.eager = [run(made, what)]
        except Inapplicable:
            raise
        except Exception as error:
            raise Inapplicable(
                f"eager: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            ) from error
        self.made = made  # for the timings
        self._true: Values | None = None
        self._draws: bool | None = None

    @property
    def draws(self) -> bool:
        """Whether results depend on random numbers, so that there is nothing to compare with."""
        if self._draws is None:
            other = run(self.model.built(self.dtype), self.what, seed=2)
            self._draws = bool(difference(other, self.eager[:1], self.eager[0], FLOOR.get(self.dtype, 0.0)))
        return self._draws

    @property
    def true(self) -> Values | None:
        """Returns the results in float64; None if the model can't be computed in float64."""
        if self._true is None:
            made = self.model.built(self.dtype)
            try:
                double = Built(made.module.double(), *cast((made.args, made.kwargs), torch.float64))
                found = run(double, self.what)
            except Exception:
                found = {}
            same = found.keys() == self.eager[0].keys()
            self._true = found if same and all(found[k].shape == v.shape for k, v in self.eager[0].items()) else {}
        return self._true or None

    def wrong(self, ours: Values) -> str:
        """Returns a description of the differences from eager, or ""."""
        floor = FLOOR.get(self.dtype, 0.0)
        true = self.true
        if true is None:
            true, floor = self.eager[0], 10 * floor
        ours = {name: x for name, x in ours.items() if name in true or not is_zero_gradient(name, x)}
        words = difference(ours, [comparable(each, ours) for each in self.eager], true, floor)
        if words and len(self.eager) == 1:
            # If a model amplifies rounding, eager's own results of nearly equal inputs differ as much.
            for seed in (7, 8):
                self.eager.append(run(jittered(self.model.built(self.dtype), seed), self.what))
            words = difference(ours, [comparable(each, ours) for each in self.eager], true, floor)
        if words and has_no_right_digit(self.eager, true, floor):
            raise Inapplicable("eager: differences in the last bits of the inputs change the results as a whole")
        return "" if words and self.draws else words

    def seconds(self) -> float:
        """Returns the minimal processor time of a call in eager mode."""
        if self.what == "forward":
            return least(lambda: infer(self.made))
        step = step_of(self.made)
        return least(lambda: step(*self.made.args, **self.made.kwargs))


def comparable(eager: Values, ours: Values) -> Values:
    """Returns eager's results, without gradients if the entry point returns none, as a file does."""
    has_gradients = any(name.startswith("gradient ") for name in ours)
    return {name: value for name, value in eager.items() if has_gradients or not name.startswith("gradient ")}


def is_zero_gradient(name: str, value: torch.Tensor) -> bool:
    """Whether it is a gradient of JAX's for a value on which nothing depends; PyTorch has none."""
    return name.startswith("gradient ") and not value.any()


def least(call: Callable[[], object], rounds: int = 5) -> float:
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return min(taken)
