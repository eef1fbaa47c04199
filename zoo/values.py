"""Collects the tensors of a structure, and compares their errors against float64 with those of CPU eager."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

Values = dict[str, torch.Tensor]

# Two roundings of one result may differ by this share of its maximum, even if eager's errors are smaller.
FLOOR = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
BESIDE = 0.1  # of the floor, relative to the maximum of all results: for gradients that are zero except for rounding


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the tensors in a structure of lists, dicts, data classes and plain objects, such as caches of keys."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for i, each in enumerate(value):
            yield from leaves(each, f"{name}.{i}" if name else str(i))
    elif dataclasses.is_dataclass(value) or type(value).__module__.split(".")[0] in (
        "transformers",
        "diffusers",
        "timm",
    ):
        for key, each in vars(value).items():
            if not key.startswith("_"):
                yield from leaves(each, f"{name}.{key}" if name else key)


def host(value: Any) -> Values:
    """Returns the tensors of a structure, copied to the CPU, because the originals may be written later."""
    found: Values = {}
    for name, tensor in leaves(value):
        tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        tensor = tensor.detach()
        tensor = tensor.to_dense() if tensor.layout != torch.strided else tensor
        found[name] = tensor.to("cpu", copy=True).resolve_conj().resolve_neg()
    return found


def worst(values: Values, true: Values, name: str) -> float:
    """Returns the maximal error of one tensor; infinite where only one of both is finite."""
    ours, wanted = (
        each.to(torch.complex128 if each.is_complex() else torch.float64) for each in (values[name], true[name])
    )
    if ours.numel() == 0:
        return 0.0
    both_odd = (ours == wanted) | (ours.isnan() & wanted.isnan())
    distance = (ours - wanted).abs().masked_fill(both_odd, 0.0)
    return distance.nan_to_num(nan=math.inf).max().item()


def size(value: torch.Tensor) -> float:
    magnitude = value.abs() if value.is_complex() else value.double().abs()
    finite = magnitude.double().nan_to_num(nan=0.0, posinf=0.0)
    return finite.max().item() if finite.numel() else 0.0


def difference(ours: Values, eager: list[Values], true: Values, floor: float) -> str:
    """Returns a description of the differences of ours, or "".

    Args:
        eager: CPU eager's results, of one or more runs whose inputs differ in their last bits.
    """
    wanted = eager[0]
    if len(ours) != len(wanted):
        return f"{len(ours)} tensors instead of {len(wanted)}: {', '.join(sorted(set(ours) ^ set(wanted)))[:120]}"
    if set(ours) != set(wanted):  # a file's results may have other names
        ours = dict(zip(wanted, ours.values(), strict=True))
    largest = max((size(tensor) for tensor in true.values()), default=0.0)
    for name, tensor in wanted.items():
        if ours[name].dtype != tensor.dtype or ours[name].shape != tensor.shape:
            return f"{name}: {form(ours[name])} instead of {form(tensor)}"
        if not (tensor.is_floating_point() or tensor.is_complex()):
            if all(not torch.equal(ours[name], run[name]) for run in eager):
                return f"{name}: other integers"
            continue
        error = worst(ours, true, name)
        own = max(worst(run, true, name) for run in eager)
        allowed = 2 * own + floor * size(true[name]) + BESIDE * floor * largest + 1e-30
        if not error <= allowed:
            return f"{name}: off by {error:.3g} of {size(true[name]):.3g}, eager by {own:.3g}"
    return ""


def has_no_right_digit(eager: list[Values], true: Values, floor: float) -> bool:
    """Whether a tensor of eager's is off by half of its maximum, and is more than rounding of others."""
    largest = max((size(tensor) for tensor in true.values()), default=0.0)
    return any(
        size(true[name]) > BESIDE * floor * largest
        and max(worst(run, true, name) for run in eager) > size(true[name]) / 2
        for name, tensor in eager[0].items()
        if tensor.is_floating_point() or tensor.is_complex()
    )


def form(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
