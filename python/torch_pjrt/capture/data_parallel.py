"""DistributedDataParallel in captures: the switches of its modules. Its forward and backward are in
``distributed/data_parallel.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel


def unknown(module: DistributedDataParallel) -> Iterator[tuple[Any, str]]:
    """Yields the unsupported settings of a module, with their names; a true value means that it is set."""
    yield module._comm_hooks, "register_comm_hook"
    yield hasattr(module, "buffer_hook"), "a hook for buffers"
    yield module._join_config.enable, "join()"
    yield module.mixed_precision, "mixed_precision (take torch.autocast)"
    yield module._use_python_reducer, "the reducer in Python (torch._dynamo.config.optimize_ddp)"
    yield module._delay_all_reduce_all_params, "delay_all_reduce_named_params"


class DataParallel:
    """The DDP modules of a function. A forward records in each whether the next one broadcasts its buffers."""

    def __init__(self, modules: list[DistributedDataParallel]) -> None:
        self.modules = modules
        self.before: list[bool] = []  # set during a run
        self.after = self._noted()

    @classmethod
    def of(cls, modules: Iterable[torch.nn.Module]) -> DataParallel | None:
        found = [module for module in modules if isinstance(module, DistributedDataParallel)]
        return cls(found) if found else None

    def _noted(self) -> list[bool]:
        return [module.require_forward_param_sync for module in self.modules]

    def _note(self, values: list[bool]) -> None:
        for module, value in zip(self.modules, values, strict=True):
            module.require_forward_param_sync = value

    def settings(self) -> tuple[Any, ...]:
        return tuple(
            (
                module.require_backward_grad_sync,
                module.require_forward_param_sync,
                module.broadcast_buffers,
                frozenset(module.parameters_to_ignore),
                *(bool(is_so) for is_so, _ in unknown(module)),
            )
            for module in self.modules
        )

    def begin(self) -> None:
        pass

    def enter(self, _: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
        self.before = self._noted()

    def settle(self) -> None:
        self.after = self._noted()
        self._note(self.before)

    def exit(self) -> None:
        if self.before:
            self._note(self.before)
        self.before = []

    def end(self) -> None:
        self._note(self.after)
