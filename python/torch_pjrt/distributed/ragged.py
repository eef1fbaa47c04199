"""Shards of a dimension that doesn't divide.

Note [Ragged]: a tensor of a world has one shape for all ranks. A dimension of n on N ranks therefore has ceil(n / N)
rows on each, the size of torch.chunk's first chunks. Rows behind the n-th, on the last ranks, are *padding* with
arbitrary values. Redistribution removes the padding, as PyTorch removes the padding of its collectives. An operator
that maps rows to rows runs on shards with padding. Where DTensor would add rows up, padding is set to zero first; where
it would reduce or reorder them in other ways, the rows are gathered first. Code that reads shards outside of DTensor's
operators is refused.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Set
from typing import Any, NoReturn

import torch
from torch.utils import _pytree as pytree

from torch_pjrt import _C
from torch_pjrt.adapt.after_import import after_import
from torch_pjrt.distributed.rank import PerRank, per_rank

aten = torch.ops.aten
# Operators that select among the n rows by index, and never read padding.
BY_INDEX = (aten.embedding.default,)
# Sums, to which rows of zeros add nothing.
SUMS = (
    aten.sum.default, aten.sum.dim_IntList, aten.mm.default, aten.bmm.default, aten.addmm.default,
    aten.native_layer_norm_backward.default, aten.embedding_dense_backward.default,
)  # fmt: skip
NORMS = (aten.linalg_vector_norm.default, aten._foreach_norm.Scalar)  # sums as well, for positive orders


def refuse(size: int, chunks: int, what: str) -> NoReturn:
    """Raises NotImplementedError: ``what`` can't take shards with padding."""
    raise NotImplementedError(
        f"{what}: a dimension of {size} among {chunks} ranks, whose shards have rows of padding, as in a world in one "
        f"process all ranks run one program. Take a multiple of {chunks}, pad it, or redistribute to Replicate() first"
    )


def ragged(spec: Any) -> dict[int, tuple[int, int]]:
    """Returns the mesh dimensions whose shards have padding, with the tensor dimension that they shard and its size."""
    if spec.tensor_meta is None or spec.mesh.device_type != "pjrt":
        return {}
    found: dict[int, tuple[int, int]] = {}
    by_dim: dict[int, list[int]] = {}
    for mesh_dim, placement in enumerate(spec.placements):
        dim = getattr(placement, "dim", None)  # set for Shard and _StridedShard
        if dim is not None:
            by_dim.setdefault(dim, []).append(mesh_dim)
    for dim, mesh_dims in by_dim.items():
        size = spec.tensor_meta.shape[dim]
        if isinstance(size, int) and size % math.prod(spec.mesh.size(each) for each in mesh_dims):
            found.update((each, (dim, size)) for each in mesh_dims)
    return found


def chunks_of(spec: Any, dim: int) -> int:
    """Returns the number of ranks that share a dimension."""
    sizes = (spec.mesh.size(i) for i, placement in enumerate(spec.placements) if getattr(placement, "dim", None) == dim)
    return math.prod(sizes)


def is_plain(placement: Any) -> bool:
    """Whether it is a Shard, and not a _StridedShard."""
    from torch.distributed.tensor import Shard

    return type(placement) is Shard


def _specs(values: Any) -> list[Any]:
    from torch.distributed.tensor._dtensor_spec import DTensorSpec

    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, DTensorSpec)]


Call = tuple[list[Any], list[Any]]  # the specs of its arguments and of its results


def _calls(schema: Any, args: Any, given: Any) -> list[Call]:
    """Returns the calls on single tensors that an operator makes: an operator of lists makes one for each element."""
    if schema.op in BY_INDEX:
        args = args[1:]
    if not schema.op._schema.name.startswith(("aten::_foreach_", "aten::_fused_")):
        return [(_specs((args, schema.kwargs_schema)), _specs(given))]
    lists = [values for values in (*args, *schema.kwargs_schema.values()) if _is_list(values)]
    results = given if _is_list(given) else []
    count = max(map(len, lists), default=0)
    return [(_specs([each[i] for each in lists if i < len(each)]), _specs(results[i : i + 1])) for i in range(count)]


def _is_list(values: Any) -> bool:
    return isinstance(values, (list, tuple)) and bool(_specs(values))


def _like(args: Any, whole: Any) -> Any:
    """Returns the arguments, which PyTorch may have flattened, in the structure of ``whole``."""
    leaves, form = pytree.tree_leaves(args), pytree.tree_structure(whole)
    return pytree.tree_unflatten(leaves, form) if len(leaves) == form.num_leaves else args


def _mixed(schema: Any, args: Any, given: Any) -> set[int]:
    """Returns the mesh dimensions along which the operator would mix padding with the rows of a result."""
    mixed: set[int] = set()
    for takes, gives in _calls(schema, args, given):
        padded: dict[int, set[int]] = {}
        for spec in takes:
            for mesh_dim, (_, size) in ragged(spec).items():
                padded.setdefault(mesh_dim, set()).add(size)
        mixed |= {mesh_dim for mesh_dim, sizes in padded.items() if len(sizes) > 1}
        if not gives and not schema.is_inplace_op() and not schema.is_out_variant_op():
            mixed |= padded.keys()  # the result is a bool or a scalar of all elements
        for spec in gives:
            kept = {mesh_dim: size for mesh_dim, (_, size) in ragged(spec).items()}
            mixed |= {mesh_dim for mesh_dim, sizes in padded.items() if kept.get(mesh_dim) not in sizes}
    return mixed


def _gathered(spec: Any, mesh_dims: Set[int]) -> Any:
    from torch.distributed.tensor import Replicate

    if not mesh_dims & ragged(spec).keys():
        return spec
    placements = tuple(
        Replicate() if mesh_dim in mesh_dims and hasattr(placement, "dim") else placement
        for mesh_dim, placement in enumerate(spec.placements)
    )
    return type(spec)(spec.mesh, placements, tensor_meta=spec.tensor_meta)


def _refuse_call(op: Any, specs: list[Any], mesh_dims: set[int]) -> NoReturn:
    for spec in specs:
        for mesh_dim, (dim, size) in ragged(spec).items():
            if mesh_dim in mesh_dims:
                refuse(size, chunks_of(spec, dim), str(op))
    raise AssertionError(f"{op} takes no shards with padding")


def _check_operators(of_tensors: Any) -> None:
    from torch.distributed.tensor._dtensor_spec import DTensorSpec

    propagator = of_tensors.DTensor._op_dispatcher.sharding_propagator
    inner = propagator.propagate_op_sharding_non_cached

    def sharding_of(schema: Any) -> Any:
        output = inner(schema)
        gathered: set[int] = set()
        while True:
            takes = output.redistribute_schema if output.needs_redistribute else schema
            specs = _specs((takes.args_schema, takes.kwargs_schema))
            if not any(map(ragged, specs)):
                return output
            mixed = _mixed(schema, _like(takes.args_schema, schema.args_schema), output.output_spec)
            if not mixed:
                return output
            if _adds_zeros(schema) and all(map(_is_plain_everywhere, specs)):
                used = dataclasses.replace(takes)
                used.clears_padding = True
                return dataclasses.replace(output, redistribute_schema=used, needs_redistribute=True)
            in_kwargs = any(mixed & ragged(spec).keys() for spec in _specs(schema.kwargs_schema))
            if mixed <= gathered or in_kwargs or schema.is_inplace_op() or schema.is_out_variant_op():
                _refuse_call(schema.op, specs, mixed)
            gathered |= mixed
            args = pytree.tree_map_only(
                DTensorSpec, functools.partial(_gathered, mesh_dims=frozenset(gathered)), schema.args_schema
            )
            used = dataclasses.replace(schema, args_schema=args)
            output = inner(used)
            if not output.needs_redistribute:
                output = dataclasses.replace(output, redistribute_schema=used, needs_redistribute=True)

    propagator.propagate_op_sharding_non_cached = sharding_of
    propagator.propagate_op_sharding = type(propagator.propagate_op_sharding)(sharding_of)


def _adds_zeros(schema: Any) -> bool:
    if schema.op in NORMS:
        order = schema.args_schema[1] if len(schema.args_schema) > 1 else schema.kwargs_schema.get("ord", 2)
        return bool(order > 0)
    return schema.op in SUMS


def _is_plain_everywhere(spec: Any) -> bool:
    return all(is_plain(placement) or not hasattr(placement, "dim") for placement in spec.placements)


def _padding(spec: Any) -> Iterator[torch.Tensor]:
    """Yields masks of a local tensor's padding, which differ between ranks."""
    for dim in {dim for dim, _ in ragged(spec).values()}:
        of_ranks = [rows_of(spec, rank)[dim] for rank in range(_C.world_size())]
        counts = per_rank(rows.count for rows in of_ranks)
        rows = torch.arange(of_ranks[0].padded, device="pjrt")
        mask = rows >= (counts.tensor() if isinstance(counts, PerRank) else counts)
        yield mask.view([-1] + [1] * (len(spec.tensor_meta.shape) - dim - 1))


def _clear_arguments(of_dispatch: Any) -> None:
    kind = of_dispatch.OpDispatcher
    inner = kind.redistribute_local_args

    @functools.wraps(inner)
    def redistribute_local_args(called: Any, schema: Any, *how: Any) -> None:
        inner(called, schema, *how)
        if not getattr(schema, "clears_padding", False):
            return
        local = list(called.local_args)
        specs = pytree.tree_leaves(schema.args_schema) if called.args_tree_spec is not None else schema.args_schema
        for i, spec in enumerate(specs):
            if isinstance(local[i], torch.Tensor) and hasattr(spec, "tensor_meta"):
                for mask in _padding(spec):
                    local[i] = local[i].masked_fill(mask, 0)
        called.local_args = tuple(local)

    kind.redistribute_local_args = staticmethod(redistribute_local_args)


def _cleared(tensor: Any) -> Any:
    """Sets the tensor's padding to zero, and returns the tensor."""
    for dim, size in ragged(tensor._spec).values():
        if not _is_plain_everywhere(tensor._spec):
            refuse(size, chunks_of(tensor._spec, dim), "shards of a mesh of FSDP2 and tensor parallel")
    with torch.no_grad():
        for mask in _padding(tensor._spec):
            tensor._local_tensor.masked_fill_(mask, 0)
    return tensor


def _gather_for(handler: Any) -> Any:
    """Wraps DTensor's handler of an operator, which reads shards, so that it gets none with padding."""
    from torch.distributed.tensor import DTensor

    @functools.wraps(handler)
    def handle(op: Any, args: Any, kwargs: Any) -> Any:
        def gathered(tensor: Any) -> Any:
            if not ragged(tensor._spec):
                return tensor
            if op is aten._amp_foreach_non_finite_check_and_unscale_.default:
                return _cleared(tensor)
            if op._schema.is_mutable:
                _refuse_call(op, [tensor._spec], set(ragged(tensor._spec)))
            return tensor.redistribute(placements=_gathered(tensor._spec, set(ragged(tensor._spec))).placements)

        return handler(op, *pytree.tree_map_only(DTensor, gathered, (args, kwargs)))

    return handle


def _check_handlers(of_tensors: Any) -> None:
    handlers = of_tensors.DTensor._op_dispatcher._custom_op_handlers
    looking = (aten.is_same_size, aten.is_pinned, aten.as_strided)  # handlers that read sizes only
    for op, handler in list(handlers.items()):
        if op.overloadpacket not in looking:
            handlers[op] = _gather_for(handler)


def _refuse_loss(of_losses: Any) -> None:
    def refusing(handler: Any) -> Any:
        @functools.wraps(handler)
        def handle(op: Any, args: Any, kwargs: Any) -> Any:
            for tensor in args:
                if padded := ragged(getattr(tensor, "_spec", _NONE)):
                    _refuse_call(f"loss_parallel's {op}", [tensor._spec], set(padded))
            return handler(op, args, kwargs)

        return handle

    ops = of_losses.customized_loss_ops
    ops.update({op: refusing(handler) for op, handler in ops.items()})


def _refuse_local(of_tensors: Any) -> None:
    inner = of_tensors.DTensor.to_local

    @functools.wraps(inner)
    def to_local(self: Any, **how: Any) -> Any:
        for dim, size in ragged(self._spec).values():
            refuse(size, chunks_of(self._spec, dim), "to_local()")
        return inner(self, **how)

    of_tensors.DTensor.to_local = to_local


@dataclasses.dataclass
class Rows:
    """The rows of one rank in a dimension of the whole tensor: the first, their number, and the number with padding."""

    first: int
    count: int
    padded: int


def rows_of(spec: Any, rank: int) -> list[Rows]:
    """Returns a rank's rows in each dimension."""
    found = [Rows(0, size, size) for size in spec.tensor_meta.shape]
    sharded = [(i, placement) for i, placement in enumerate(spec.placements) if hasattr(placement, "dim")]
    # FSDP2 shards what tensor parallelism has sharded, though its mesh dimension comes first.
    for mesh_dim, placement in sorted(sharded, key=lambda each: not is_plain(each[1])):
        chunks, place = spec.mesh.size(mesh_dim), spec.mesh._sym_get_coordinate(mesh_dim)
        before = [i for i, other in sharded if i != mesh_dim and other.dim == placement.dim]
        if not is_plain(placement) and (
            min(before, default=0) < mesh_dim or placement.split_factor != math.prod(map(spec.mesh.size, before))
        ):
            refuse(spec.tensor_meta.shape[placement.dim], chunks_of(spec, placement.dim), f"shards of {placement}")
        rows, own = found[placement.dim], place.values[rank] if isinstance(place, PerRank) else place
        size = -(-rows.padded // chunks)
        begin = min(own * size, rows.count)
        found[placement.dim] = Rows(rows.first + begin, min(size, rows.count - begin), size)
    return found


_NONE = type("NoSpec", (), {"tensor_meta": None})()


def install() -> None:
    """Installs the patches, once a world has begun and before the handlers that take shards without a check."""
    after_import("torch.distributed.tensor", _check_operators)
    after_import("torch.distributed.tensor._dispatch", _clear_arguments)
    after_import("torch.distributed.tensor", _check_handlers)
    after_import("torch.distributed.tensor", _refuse_local)
    after_import("torch.distributed.tensor.parallel.loss", _refuse_loss)
