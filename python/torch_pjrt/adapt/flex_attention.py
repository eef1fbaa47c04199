"""``torch.nn.attention.flex_attention`` has a list of the devices that it accepts."""

from __future__ import annotations

from types import ModuleType

from torch_pjrt.adapt.after_import import after_import


def _accept_the_device(flex_attention: ModuleType) -> None:
    """The list is a constant of a function's code. Another function in its place would cut the graphs of Dynamo, which
    reads PyTorch's code and skips ours."""
    code = flex_attention._validate_device.__code__
    constants = (c | {"pjrt"} if isinstance(c, frozenset) and "cuda" in c else c for c in code.co_consts)
    flex_attention._validate_device.__code__ = code.replace(co_consts=tuple(constants))


def install() -> None:
    after_import("torch.nn.attention.flex_attention", _accept_the_device)
