"""The ways that are timed against each other: eager, Inductor, Inductor with max-autotune, and ours."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Generator
from typing import Any

import torch
from worker import Setting, Values

import torch_pjrt
from measure import interleaved

OURS = ("pjrt", "pjrt, compile_step", "pjrt, lazily")
OTHERS = ("eager", "inductor", "max-autotune")
Call = Callable[[], object]


def compiled(way: str, setting: Setting, function: Any) -> Any:
    """Returns the function as torch.compile compiles it in one of the ways; a rehearsal has no time for Inductor."""
    if way in ("eager", "pjrt, compile_step", "pjrt, lazily"):
        return function
    if way == "pjrt":
        return torch.compile(function, backend="pjrt", dynamic=False)
    if setting.tiny:
        return torch.compile(function, backend="aot_eager", dynamic=False)
    return torch.compile(function, dynamic=False, mode="max-autotune" if way == "max-autotune" else None)


def moved(way: str, setting: Setting, thing: Any) -> Any:
    """Returns a copy of a model or a tensor on the way's device."""
    device = "pjrt" if way == "pjrt, lazily" else setting.device
    return copy.deepcopy(thing).to(device) if isinstance(thing, torch.nn.Module) else thing.to(device)


def wait(way: str, setting: Setting) -> None:
    if way == "pjrt, lazily":
        torch_pjrt.sync()
        torch.pjrt.synchronize()
    setting.synchronize()


class Timing:
    """Makes the calls one by one, and then times them alternately. Calls that fail are reported and left out."""

    def __init__(self, setting: Setting, per: int = 1) -> None:
        self.setting, self.per, self.begun = setting, per, time.monotonic()
        self.calls: dict[str, Call] = {}
        self.values: Values = {"unit": "s", "first": {}, "broke": {}, "memory": {}}

    def add(self, way: str, make: Callable[[], Call]) -> None:
        """Makes a call, and calls it until it is compiled: a whole step makes its optimizer's state first.

        After half of the item's time no more calls are made, so that the existing ones will be timed.
        """
        if time.monotonic() - self.begun > self.setting.limit / 2:
            self.values["broke"][way] = "not reached: the ways before it took half of the time"
            return
        try:
            memory = Memory(way, self.setting)
            call = make()

            def work(times: int = self.per) -> None:
                for _ in range(times):
                    result = call()  # noqa: F841  what nobody holds is not computed, lazily
                wait(way, self.setting)

            start = time.perf_counter()
            work(1)
            work(1)
            self.values["first"][way] = time.perf_counter() - start
            memory.restart()
            work(1)
            self.values["memory"] |= memory.reported()
            self.calls[way] = work
        except Exception as error:
            self.values["broke"][way] = f"{type(error).__name__}: {error}"[:500]
        self.setting.report(self.values)

    def timed(self, rounds: int = 7) -> Values:
        if self.setting.tiny:
            taken = interleaved(self.calls, rounds=2, batch_seconds=0.002)
        else:
            taken = interleaved(self.calls, rounds=rounds, batch_seconds=0.05)
        for name, function in (("median", statistics.median), ("least", min)):
            self.values[name] = {way: function(seconds) / self.per for way, seconds in taken.items()}
        if not self.calls:
            raise RuntimeError(f"nothing could be timed: {self.values['broke']}")
        return self.values


class Memory:
    """Peak memory of a call in bytes, above that before it was made: PyTorch's, and the plugin's since its start."""

    def __init__(self, way: str, setting: Setting) -> None:
        self.way, self.counted = way, setting.device == "cuda" and torch.version.cuda is not None
        if self.counted:
            self.before = torch.cuda.memory_allocated()

    def restart(self) -> None:
        if self.counted:
            torch.cuda.reset_peak_memory_stats()

    def reported(self) -> dict[str, Any]:
        if not self.counted:
            return {}
        reported = {"torch": torch.cuda.max_memory_allocated() - self.before}
        if self.way in OURS:
            stats = torch.pjrt.memory_stats()
            reported |= {
                name: stats[name] for name in stats if name in ("plugin.peak_bytes_in_use", "plugin.bytes_in_use")
            }
        return {self.way: reported}


def training_step(
    way: str, setting: Setting, model: torch.nn.Module, loss: Callable[[Any], torch.Tensor], optimizer: Any
) -> Call:
    """Returns a training step. `loss` takes the model, or its compiled form."""
    forward = compiled(way, setting, model)
    stepping = optimizer(model.parameters())

    def step() -> torch.Tensor:
        stepping.zero_grad()
        value = loss(forward)
        value.backward()
        stepping.step()
        return value.detach()

    return torch_pjrt.compile_step(step) if way == "pjrt, compile_step" else step


Timed = Generator[None, None, Values]
