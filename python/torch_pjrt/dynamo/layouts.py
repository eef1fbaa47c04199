"""Strides that PyTorch's fake tensors give wrong, for tensors on the CPU and the device.

Dynamo and AOTAutograd take the strides of what they capture from decompositions and Meta kernels, and some of these lay a
result out otherwise than the CPU's kernel does. A view, ``stride()`` or ``is_contiguous()`` in a compiled function would
then be another than in eager. Fake tensors on other devices are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._decomp import decomposition_table, meta_table
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_impls import register_op_impl
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

aten = torch.ops.aten
DEVICES = ("cpu", "pjrt")
CHANNEL_SHUFFLE = decomposition_table[aten.channel_shuffle.default]

# Of a call's arguments, the format of its (first) result; none where fake tensors have it right.
Format = Callable[..., torch.memory_format | None]


def _contiguous(*_args: Any) -> torch.memory_format:
    return torch.contiguous_format


def _as_suggested(x: torch.Tensor, *_args: Any) -> torch.memory_format:
    return suggest_memory_format(x)


def _roll(x: torch.Tensor, shifts: Any, dims: Any = (), *_args: Any) -> torch.memory_format:
    # Over no dimensions it is that of the flat tensor, else of pieces that are put together.
    return suggest_memory_format(x) if dims else torch.contiguous_format


def _contiguous_of_complex(x: torch.Tensor, *_args: Any) -> torch.memory_format | None:
    return torch.contiguous_format if x.is_complex() else None


FORMATS: dict[Format, Iterable[torch._ops.OpOverload]] = {
    _roll: (aten.roll.default,),
    _contiguous_of_complex: (aten.angle.default,),
    _contiguous: (
        aten.log_sigmoid_forward.default,
        aten.isin.Tensor_Tensor,
        aten.isin.Tensor_Scalar,
        aten.masked_fill.Scalar,
        aten.masked_fill.Tensor,
    ),
    _as_suggested: (
        aten.channel_shuffle.default,
        aten.native_channel_shuffle.default,
        aten.native_batch_norm.default,
        aten._native_batch_norm_legit.default,
        aten._native_batch_norm_legit.no_stats,
        aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit_no_training.default,
        aten._batch_norm_with_update.default,
        aten._batch_norm_with_update_functional.default,
        aten._batch_norm_no_update.default,
    ),
}


def _laid_out(op: torch._ops.OpOverload, format_of: Format) -> None:
    plain = CHANNEL_SHUFFLE if op is aten.native_channel_shuffle.default else decomposition_table.get(op)
    plain = plain or meta_table[op]

    def fake(mode: FakeTensorMode, _op: Any, *args: Any, **kwargs: Any) -> Any:
        with mode:
            given = plain(*args, **kwargs)
            results = given if isinstance(given, (tuple, list)) else (given,)
            first = results[0]
            known = not free_unbacked_symbols(first)  # of other sizes the strides can't be asked about
            if known and first.device.type in DEVICES and first.layout == torch.strided:
                memory_format = format_of(*args)
                if memory_format is not None:
                    results = (torch.empty_like(first, memory_format=memory_format), *results[1:])
        return tuple(results) if isinstance(given, (tuple, list)) else results[0]

    # An op in this table is not decomposed before implementations for fake tensors are looked up.
    meta_table[op] = fake
    register_op_impl(op)(fake)


def install() -> None:
    for format_of, ops in FORMATS.items():
        for op in ops:
            _laid_out(op, format_of)
