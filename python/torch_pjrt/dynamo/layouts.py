"""Strides that PyTorch's fake tensors have wrong, for tensors on the CPU and the device.

Dynamo and AOTAutograd take the strides of captured values from decompositions and Meta kernels, some of which have
other strides than the CPU's kernels. A view, ``stride()`` or ``is_contiguous()`` in a compiled function would then
differ from eager mode. Fake tensors on other devices are left unchanged, and calls of compiled functions run none of
this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._decomp import decomposition_table, meta_table
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_impls import op_implementations_dict, register_op_impl
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from torch_pjrt.dynamo.own_kernels import onednn_as_in_eager

aten = torch.ops.aten
DEVICES = ("cpu", "pjrt")
# Composites with a view that some layouts don't allow, and decompositions like the CPU's kernels.
PLAIN = {aten.native_channel_shuffle.default: decomposition_table[aten.channel_shuffle.default]}

# Takes a call's (first) result and its arguments, and returns the result in the CPU's layout.
Layout = Callable[..., torch.Tensor]


def _contiguous(result: torch.Tensor, *_args: Any) -> torch.Tensor:
    return torch.empty_like(result, memory_format=torch.contiguous_format)


def _as_suggested(result: torch.Tensor, x: torch.Tensor, *_args: Any) -> torch.Tensor:
    return torch.empty_like(result, memory_format=suggest_memory_format(x))


def _gradient_as_input(result: torch.Tensor, _grad: torch.Tensor, x: torch.Tensor, *_args: Any) -> torch.Tensor:
    return _as_suggested(result, x)


def _roll(result: torch.Tensor, x: torch.Tensor, _shifts: Any, dims: Any = (), *_args: Any) -> torch.Tensor:
    """Without dimensions the result is that of the flat tensor; otherwise it is concatenated from pieces."""
    return _as_suggested(result, x) if dims else _contiguous(result)


def _angle(result: torch.Tensor, x: torch.Tensor, *_args: Any) -> torch.Tensor:
    return _contiguous(result) if x.is_complex() else result


def _elementwise(result: torch.Tensor, x: Any, y: Any, *_args: Any) -> torch.Tensor:
    return torch.empty_like(torch.add(x, y), dtype=result.dtype)


LAYOUTS: dict[Layout, Iterable[torch._ops.OpOverload]] = {
    _roll: (aten.roll.default,),
    _angle: (aten.angle.default,),
    _contiguous: (
        aten.log_sigmoid_forward.default,
        aten.isin.Tensor_Tensor,
        aten.isin.Tensor_Scalar,
        aten.masked_fill.Scalar,
        aten.masked_fill.Tensor,
        aten.normal.Tensor_Tensor,
        aten.mse_loss_backward.default,
        aten.huber_loss_backward.default,
        aten.smooth_l1_loss_backward.default,
    ),
    _as_suggested: (
        aten.channel_shuffle.default,
        aten.native_channel_shuffle.default,
        aten.max_unpool2d.default,
        aten.native_group_norm.default,
        aten.native_batch_norm.default,
        aten._native_batch_norm_legit.default,
        aten._native_batch_norm_legit.no_stats,
        aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit_no_training.default,
        aten._batch_norm_with_update.default,
        aten._batch_norm_with_update_functional.default,
        aten._batch_norm_no_update.default,
    ),
    _gradient_as_input: (
        aten.native_batch_norm_backward.default,
        aten.native_group_norm_backward.default,
        aten.replication_pad2d_backward.default,
        aten.replication_pad3d_backward.default,
    ),
    _elementwise: (
        aten.native_dropout_backward.default,
        aten.copysign.Tensor,
        aten.floor_divide.default,
        aten.div.Tensor_mode,
    ),
}


def _lay_out(op: torch._ops.OpOverload, layout: Layout) -> None:
    plain = PLAIN.get(op) or decomposition_table.get(op) or meta_table[op]

    def fake(mode: FakeTensorMode, _op: Any, *args: Any, **kwargs: Any) -> Any:
        with mode:
            given = plain(*args, **kwargs)
            first, *others = given if isinstance(given, (tuple, list)) else (given,)
            known = isinstance(first, torch.Tensor) and not free_unbacked_symbols(first)
            if known and first.device.type in DEVICES and first.layout == torch.strided:
                first = layout(first, *args)
        return (first, *others) if isinstance(given, (tuple, list)) else first

    # An op in this table is not decomposed before the implementations for fake tensors are looked up.
    meta_table[op] = fake
    register_op_impl(op)(fake)


def _lay_out_as_the_cpus_libraries(op: torch._ops.OpOverload) -> None:
    """Patches an implementation that asks which library eager mode calls on a device, for which this device is new."""
    plain = op_implementations_dict[op]

    def fake(mode: FakeTensorMode, called: Any, *args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        device = next(leaf.fake_device for leaf in leaves if isinstance(leaf, FakeTensor))

        def on(device: Any) -> Callable[[Any], Any]:
            return lambda x: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)

        with onednn_as_in_eager():
            if device.type != "pjrt":
                return plain(mode, called, *args, **kwargs)
            with mode:
                args, kwargs = pytree.tree_map_only(torch.Tensor, on("cpu"), (args, kwargs))
            results = plain(mode, called, *args, **kwargs)
            with mode:
                return pytree.tree_map_only(torch.Tensor, on(device), results)

    op_implementations_dict[op] = fake


def install() -> None:
    for op in (aten.convolution.default, aten._convolution.default, aten.convolution_backward.default):
        _lay_out_as_the_cpus_libraries(op)
    for layout, ops in LAYOUTS.items():
        for op in ops:
            _lay_out(op, layout)
