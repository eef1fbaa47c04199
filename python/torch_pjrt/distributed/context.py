"""Context parallelism: attention whose sequence is sharded over the ranks of a mesh (``context_parallel``).

PyTorch's ring is made of CUDA's attention kernels, and branches in Python on the rank, to leave out blocks that a
causal mask hides. All ranks of a world run one program. So here each rank gathers the keys and values of all, and masks
by the positions of its queries, whether ranks are a world's or processes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import _functional_collectives as functional

from torch_pjrt.distributed.rank import PerRank, select

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

# The function's name in torch 2.13, and its name before.
_all_gather: Any = getattr(functional, "all_gather_single_autograd", None) or functional.all_gather_tensor_autograd


def _places(attention: Any, mesh: DeviceMesh, length: int) -> torch.Tensor:
    """Returns the positions of the gathered keys in the sequence, of shape (length,). If PyTorch balances the work of a
    causal mask, a rank has one part from the sequence's head and one from its tail."""
    balancer = attention._create_default_load_balancer(length, mesh.size(), torch.device("pjrt"))
    if balancer is None:
        return torch.arange(length, device="pjrt")
    return balancer._generate_indices()[0]


def _of_shards(attention: Any, mesh: DeviceMesh, inner: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Returns ``scaled_dot_product_attention`` for shards of shape (batch, heads, sequence / ranks, width)."""

    @functools.wraps(inner)
    def scaled_dot_product_attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **how: Any,
    ) -> torch.Tensor:
        if attn_mask is not None:
            raise NotImplementedError(
                "context_parallel: scaled_dot_product_attention with attn_mask, as in PyTorch; pass is_causal=True, or "
                "leave context_parallel out"
            )
        keys, values = (_all_gather(t.contiguous(), 2, mesh) for t in (key, value))
        mask = None
        if is_causal:
            if query.size(2) != key.size(2):
                raise NotImplementedError("is_causal requires the same query and context sequence lengths")
            places = _places(attention, mesh, keys.size(2))
            own = select(places.view(mesh.size(), -1), 0, mesh.get_local_rank())
            mask = own.unsqueeze(1) >= places
        return inner(query, keys, values, mask, dropout_p, False, **how)

    return scaled_dot_product_attention


class _OnMesh:
    """A mesh for making masks, whose rank is a tensor: Dynamo traces mask functions, and doesn't know PerRank."""

    device_type = "pjrt"

    def __init__(self, mesh: DeviceMesh) -> None:
        self._mesh = mesh

    def size(self) -> int:
        return self._mesh.size()

    def get_local_rank(self) -> Any:
        rank = self._mesh.get_local_rank()
        return rank.tensor() if isinstance(rank, PerRank) else rank


def _mask_by_rank(attention: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
    """Patches FlexAttention's mask for the queries of a rank."""
    from torch.nn.attention.flex_attention import create_block_mask

    signature = inspect.signature(inner)

    @functools.wraps(inner)
    def _create_cp_block_mask(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)  # torch 2.15 has BLOCK_SIZE before the mesh
        mesh = given.arguments["device_mesh"]
        if mesh.device_type != "pjrt":
            return inner(*args, **kwargs)
        given.arguments["device_mesh"] = _OnMesh(mesh)
        compiled = attention._compiled_create_block_mask
        attention._compiled_create_block_mask = create_block_mask  # the recorded calls are one program already
        try:
            return inner(*given.args, **given.kwargs)
        finally:
            attention._compiled_create_block_mask = compiled

    return _create_cp_block_mask


@contextmanager
def _gathering(attention: Any, mesh: DeviceMesh) -> Iterator[None]:
    inner = torch.nn.functional.scaled_dot_product_attention
    torch.nn.functional.scaled_dot_product_attention = _of_shards(attention, mesh, inner)
    try:
        yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = inner


def install(attention: Any) -> None:
    """Patches PyTorch's module of context parallelism, for meshes of this device."""
    enable = attention._enable_context_parallel_dispatcher_impl
    disable = attention._disable_context_parallel_dispatcher_impl
    apply = attention._ContextParallel._apply
    entered: list[Any] = []

    @functools.wraps(enable)
    def _enable_context_parallel_dispatcher_impl(seq_dim: int, mesh: DeviceMesh) -> None:
        if attention._dispatch_mode != attention._DispatchMode.MONKEY_PATCH or mesh.device_type != "pjrt":
            return enable(seq_dim, mesh)
        entered.append(_gathering(attention, mesh))
        entered[-1].__enter__()

    @functools.wraps(disable)
    def _disable_context_parallel_dispatcher_impl() -> None:
        if not entered:
            return disable()
        entered.pop().__exit__(None, None, None)

    @functools.wraps(apply)
    def _apply(self: Any, module: torch.nn.Module, mesh: DeviceMesh) -> torch.nn.Module:
        if self.attention_type != self.AttentionType.SDPA or mesh.device_type != "pjrt":
            wrapped: torch.nn.Module = apply(self, module, mesh)
            return wrapped
        forward = module.forward

        @functools.wraps(forward)
        def of_shards(*args: Any, **kwargs: Any) -> Any:
            with _gathering(attention, mesh):
                return forward(*args, **kwargs)

        module.forward = of_shards
        return module

    attention._create_cp_block_mask = _mask_by_rank(attention, attention._create_cp_block_mask)
    attention._enable_context_parallel_dispatcher_impl = _enable_context_parallel_dispatcher_impl
    attention._disable_context_parallel_dispatcher_impl = _disable_context_parallel_dispatcher_impl
    attention._ContextParallel._apply = _apply
