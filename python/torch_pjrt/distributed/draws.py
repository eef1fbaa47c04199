"""Random numbers of a sharded DTensor: each shard has its own, and replicas of a shard have equal ones.

A program draws with one key for all ranks. The numbers of all shards are drawn, and each rank takes those of its shard.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torch_pjrt.adapt.after_import import after_import
from torch_pjrt.distributed.operators import of_shards
from torch_pjrt.distributed.rank import PerRank, select


class _OfAllShards(TorchDispatchMode):
    """Calls random ops once for each of ``shards``, with the generator of the user's call if it has one, and selects
    the result for each rank by its ``index``."""

    def __init__(self, shards: int, index: PerRank, generator: torch.Generator | None) -> None:
        super().__init__()
        self._shards, self._index, self._generator = shards, index, generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        if self._generator is not None:  # DTensor has removed it from the call
            kwargs = {**kwargs, "generator": self._generator}

        def own(*of_shards: Any) -> Any:
            if not isinstance(of_shards[0], torch.Tensor):
                return of_shards[0]
            return select(torch.stack(of_shards), 0, self._index).contiguous()

        arguments = func._schema.arguments[: len(args)]
        written = [i for i, each in enumerate(arguments) if each.alias_info is not None and each.alias_info.is_write]
        results, writes = [], []
        for _ in range(self._shards):
            given = [arg.clone() if i in written else arg for i, arg in enumerate(args)]
            results.append(func(*given, **kwargs))
            writes.append([given[i] for i in written])
        for i, drawn in zip(written, zip(*writes, strict=True), strict=True):
            args[i].copy_(own(*drawn))
        is_in_place = any(each.alias_info is not None for each in func._schema.returns)
        return args[written[0]] if is_in_place else pytree.tree_map(own, *results)


def _shard_index(random: Any, spec: Any) -> tuple[Any, int]:
    """Returns the index of each rank's shard, and the number of shards."""
    places = [spec.mesh._sym_get_coordinate(dim) for dim in range(spec.mesh.ndim)]
    indices, counts = random._calc_shard_info(places, spec)
    index, stride = 0, 1
    for place, count in zip(reversed(indices), reversed(counts), strict=True):
        index, stride = index + place * stride, stride * count
    return index, math.prod(counts)


def _for_all_ranks(random: Any, spec: Any, generator: Any = None) -> _OfAllShards | None:
    """Returns the mode in which one program draws for all ranks; None where each rank draws as DTensor does."""
    index, shards = _shard_index(random, spec)
    is_ours = spec.mesh.device_type == "pjrt" and isinstance(index, PerRank)
    return _OfAllShards(shards, index, generator) if is_ours else None


def _draw(random: Any) -> None:
    kind = random.OffsetBasedRNGTracker
    inner = kind._distribute_region

    @functools.wraps(inner)
    @contextlib.contextmanager
    def _distribute_region(self: Any, spec: Any, generator: Any = None) -> Iterator[None]:
        with _for_all_ranks(random, spec, generator) or inner(self, spec, generator):
            yield

    kind._distribute_region = _distribute_region
    after_import("torch.distributed.tensor._dispatch", functools.partial(_draw_by_operator, random, kind))


def _draw_by_operator(random: Any, kind: Any, dispatch: Any) -> None:
    """Newer versions of DTensor draw through an operator, which takes offsets of the generator instead of a region;
    torch 2.15 does so for all tensors of an accelerator."""
    if not hasattr(dispatch, "run_dtensor_rng_op"):
        return
    compute, run = kind._compute_rng_offsets, dispatch.run_dtensor_rng_op

    def _compute_rng_offsets(self: Any, spec: Any) -> Any:
        of_all = _for_all_ranks(random, spec)
        return (of_all, None) if of_all else compute(self, spec)

    def run_dtensor_rng_op(start: Any, end: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(start, _OfAllShards):
            return run(start, end, op, *args, **kwargs)
        with start:
            return op(*args, **kwargs)

    kind._compute_rng_offsets, dispatch.run_dtensor_rng_op = _compute_rng_offsets, run_dtensor_rng_op


def _unknown(dispatcher: Any) -> Iterator[Any]:
    """Yields ATen's random ops that DTensor doesn't know as random. DTensor runs them if it has placements for them or
    for the ops of their decomposition."""
    implicit = torch._C.DispatchKey.CompositeImplicitAutograd
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, of = name.partition("::")
        packet, _, overload = of.partition(".")
        op = (
            getattr(getattr(torch.ops.aten, packet, None), overload or "default", None) if namespace == "aten" else None
        )
        if op is None or torch.Tag.nondeterministic_seeded not in op.tags or op in dispatcher._random_ops:
            continue
        if not op.has_kernel_for_dispatch_key(implicit):
            yield op


def _draws(op: Any, args: Any, kwargs: Any) -> bool:
    """Whether this call draws: attention has no dropout by default, and ``rrelu`` draws in training only."""
    names = [argument.name for argument in op._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if "dropout_p" in names:
        return bool(given.get("dropout_p", 0.0))
    return bool(given.get("training", False)) if "training" in names else True


def _check_written(op: Any, args: Any, redistributed: Any) -> None:
    """Raises if an argument that is written in place would be replaced by a copy with other placements."""
    for argument, given, taken in zip(op._schema.arguments, args, redistributed.args_schema, strict=False):
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        if is_written and taken.placements != given.placements:
            raise RuntimeError(
                f"{op}: in-place operations that require placement changes are not supported: '{argument.name}' has "
                f"{given.placements}; redistribute it to {taken.placements} first"
            )


def _draw_of_unknown(of_tensors: Any) -> None:
    from torch.distributed.tensor import _random as random

    def handler(op: Any, args: Any, kwargs: Any) -> Any:
        dispatcher = of_tensors.DTensor._op_dispatcher
        called, local = of_shards(dispatcher, op, args, kwargs, functools.partial(_check_written, op, args))
        output = called.output_sharding
        spec = (output.redistribute_schema if output.needs_redistribute else called.schema).args_spec[0]
        index, shards = _shard_index(random, spec)
        generator = called.local_kwargs.pop("generator", None)
        if spec.mesh.device_type == "pjrt" and isinstance(index, PerRank) and _draws(op, args, kwargs):
            if "out" in kwargs:
                raise NotImplementedError(f"{op} of shards: leave out= out, and copy the result")
            with _OfAllShards(shards, index, generator):
                results = op(*local, **called.local_kwargs)
        else:
            results = op(*local, **called.local_kwargs, **({} if generator is None else {"generator": generator}))
        return args[0] if op._schema.name.endswith("_") else dispatcher.wrap(results, output.output_spec)

    dispatcher = of_tensors.DTensor._op_dispatcher
    dispatcher._custom_op_handlers.update(dict.fromkeys(_unknown(dispatcher), handler))


def install() -> None:
    """Installs the patches; called once a world has begun."""
    after_import("torch.distributed.tensor._random", _draw)
    after_import("torch.distributed.tensor", _draw_of_unknown)
