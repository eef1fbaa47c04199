"""State that ``torch.distributed`` keeps outside of modules: tensors that a capture must see, and switches on which a
call depends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from torch_pjrt.capture.data_parallel import DataParallel
from torch_pjrt.capture.fully_sharded import FullySharded

StandIn = Callable[[torch.Tensor], torch.Tensor | None]  # None for parameters of modules that the function lacks


class Beside(Protocol):
    """State of one kind of multi-rank training, for the modules of a function."""

    def settings(self) -> tuple[Any, ...]:
        """Returns the settings, besides ``training``, on which a call's program depends."""

    def begin(self) -> None:
        """Called before a capture, and before each call of a program."""

    def enter(self, stand_in: StandIn) -> None:
        """Called when a run of the function begins; ``stand_in`` returns a parameter's placeholder."""

    def settle(self) -> None:
        """Called after the function has returned, while recording continues. Raises CaptureError for refused state."""

    def exit(self) -> None:
        """Restores the state before the run, if it was entered."""

    def end(self) -> None:
        """Called after each call of a program."""


def beside(modules: Sequence[torch.nn.Module]) -> tuple[Beside, ...]:
    """Returns the state of these modules; empty for modules that run on one rank."""
    kinds: tuple[Any, ...] = (FullySharded, DataParallel)
    return tuple(found for kind in kinds if (found := kind.of(modules)) is not None)
