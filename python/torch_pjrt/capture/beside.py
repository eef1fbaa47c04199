"""What ``torch.distributed`` keeps of modules beside them: tensors that a capture has to see, and switches that decide
what a call does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from torch_pjrt.capture.data_parallel import DataParallel
from torch_pjrt.capture.fully_sharded import FullySharded

StandIn = Callable[[torch.Tensor], torch.Tensor | None]  # None: of a parameter of no module of the function's


class Beside(Protocol):
    """Of a function's modules, what one way to train them on several ranks keeps."""

    def settings(self) -> tuple[Any, ...]:
        """What decides beside ``training`` which program a call is."""

    def begin(self) -> None:
        """Before a capture, and before each call of a program."""

    def enter(self, stand_in: StandIn) -> None:
        """A run of the function begins; ``stand_in`` gives what stands for a parameter in it."""

    def settle(self) -> None:
        """The function has returned, and what it records is recorded still. Raises CaptureError for what it left."""

    def exit(self) -> None:
        """All is as before the run, if it was entered."""

    def end(self) -> None:
        """After each call of a program."""


def beside(modules: Sequence[torch.nn.Module]) -> tuple[Beside, ...]:
    """Nothing, of modules that run on one rank."""
    kinds: tuple[Any, ...] = (FullySharded, DataParallel)
    return tuple(found for kind in kinds if (found := kind.of(modules)) is not None)
