"""Context parallelism: attention over shards of a sequence, compared with the whole one on the CPU. Run in a world, or
by each of two processes."""

import os
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import context_parallel_unshard
from torch.distributed.tensor.experimental._context_parallel import (
    _attention as attention,
    _enable_context_parallel_dispatcher,
)
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

import torch_pjrt

IN_A_WORLD = "RANK" not in os.environ
if IN_A_WORLD:
    dist.init_process_group("pjrt", rank=0, world_size=4)
else:
    dist.init_process_group("pjrt", timeout=timedelta(seconds=60))
world = init_device_mesh("pjrt", (dist.get_world_size(),))
pair = init_device_mesh("pjrt", (2, 2), mesh_dim_names=("dp", "cp"))["cp"] if IN_A_WORLD else world
torch.manual_seed(0)
checked = 0
# Balanced, by head and tail; in order, where twice as many parts don't divide; and not causal.
CASES: list[tuple[Any, int, bool]] = [(world, 16, True), (pair, 6, True), (world, 8, False)]
for mesh, length, is_causal in CASES:
    wanted = [torch.randn(2, 3, length, 8, requires_grad=True) for _ in range(3)]
    buffers = [leaf.detach().to("pjrt") for leaf in wanted]
    torch_pjrt.reset_metrics()
    with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2, 2, 2]):
        leaves = [buffer.detach().clone().requires_grad_() for buffer in buffers]
        assert leaves[0].shape[2] == length // mesh.size()
        out = F.scaled_dot_product_attention(*leaves, is_causal=is_causal)
        (out * out).sum().backward()
        gradients = [leaf.grad for leaf in leaves]
        found = context_parallel_unshard(mesh, [out.detach(), *gradients], [2] * 4)  # type: ignore[list-item]
    right = F.scaled_dot_product_attention(*wanted, is_causal=is_causal)
    (right * right).sum().backward()
    torch_pjrt.sync(found)
    for tensor, expected in zip(found, [right.detach(), *(leaf.grad for leaf in wanted)], strict=True):
        torch.testing.assert_close(tensor.cpu(), expected, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(buffer.cpu(), leaf.detach()) for buffer, leaf in zip(buffers, wanted, strict=True))
    assert torch_pjrt.metrics()["host_fallbacks"] == {} or not IN_A_WORLD
    checked += 1


class Flex(torch.nn.Module):
    def forward(self, q: Any, k: Any, v: Any, score_mod: Any = None, block_mask: Any = None) -> Any:
        return flex_attention(q, k, v, score_mod, block_mask)


class Plain(torch.nn.Module):
    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


# FlexAttention has blocks of 128; the mask of a rank's queries differs between ranks.
mesh, length = pair, 512
wanted = [torch.randn(1, 1, length, 4, requires_grad=True) for _ in range(3)]
by_heads_and_tails = attention._create_default_load_balancer(length, 2, torch.device("pjrt"))
block = {"BLOCK_SIZE": (128, 128)} if torch.__version__ >= "2.15" else {}
mask = attention._create_cp_block_mask(
    lambda b, h, q, k: q >= k, 1, 1, length, length, device_mesh=mesh, load_balancer=by_heads_and_tails, **block
)
right = F.scaled_dot_product_attention(*wanted, is_causal=True)
(right * right).sum().backward()
_enable_context_parallel_dispatcher()
kinds = attention._ContextParallel.AttentionType
for module, kind, how in ((Flex(), kinds.FLEX, {"block_mask": mask}), (Plain(), kinds.SDPA, {})):
    shards = attention._context_parallel_shard(
        mesh, [leaf.detach().to("pjrt") for leaf in wanted], [2, 2, 2], load_balancer=by_heads_and_tails
    )
    leaves = [shard.detach().clone().requires_grad_() for shard in shards]
    assert leaves[0].shape[2] == length // 2
    out = parallelize_module(module, mesh, attention._ContextParallel(2, kind))(*leaves, **how)
    (out * out).sum().backward()
    found = context_parallel_unshard(
        mesh, [out.detach(), *(leaf.grad for leaf in leaves)], [2] * 4, load_balancer=by_heads_and_tails
    )
    for tensor, expected in zip(found, [right.detach(), *(leaf.grad for leaf in wanted)], strict=True):
        torch.testing.assert_close(tensor.cpu(), expected, rtol=1e-4, atol=1e-5)
    checked += 1
x = torch.ones(1, 1, 8, 4, device="pjrt")
with (
    context_parallel(world, buffers=[x], buffer_seq_dims=[2]),
    pytest.raises(NotImplementedError, match=r"attn_mask.*is_causal=True"),
):
    F.scaled_dot_product_attention(x, x, x, torch.ones(2, 2, device="pjrt"))
print(checked)
