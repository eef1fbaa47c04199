"""Trains a tiny Llama with tensor parallel and FSDP2, one process a device, and shows its losses beside one device's.

    torchrun --nproc-per-node 4 examples/llama_torchrun.py

Nothing here is of torch_pjrt but the device's name: it is the program that trains on GPUs. The model is saved in parts
by `torch.distributed.checkpoint`, and read again by a whole model.
"""

import argparse
import os
import tempfile
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 96, 32, 4, 2, 24, 8


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        q, k, v = (f(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True)
        result: torch.Tensor = self.o(y.transpose(1, 2).flatten(2))
        return result


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.down(silu(self.gate(x)) * self.up(x))
        return result


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        result: torch.Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return result


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        cos, sin = angles(tokens.shape[1], tokens.device)
        for block in self.blocks:
            x = block(x, cos, sin)
        result: torch.Tensor = self.head(self.norm(x))
        return result


def angles(length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    half = WIDTH // HEADS // 2
    turns = torch.arange(length, device=device)[:, None] * 10000 ** -(torch.arange(half, device=device) / half)
    return turns.cos().repeat(1, 2), turns.sin().repeat(1, 2)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def parallel(model: Llama, mesh: DeviceMesh) -> Llama:
    """Parallelizes as torchtitan does: sequence parallel between blocks, tensor parallel in them, FSDP2 elsewhere."""
    plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    of_block = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(
            input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)
        ),
        "attention.q": ColwiseParallel(),
        "attention.k": ColwiseParallel(),
        "attention.v": ColwiseParallel(),
        "attention.o": RowwiseParallel(output_layouts=Shard(1)),
        "feed_forward_norm": SequenceParallel(),
        "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "feed_forward.gate": ColwiseParallel(),
        "feed_forward.up": ColwiseParallel(),
        "feed_forward.down": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallelize_module(model, mesh["tp"], plan)
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], of_block)
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    return model


def batch(step: int) -> torch.Tensor:
    """Returns sentences of a language whose next word is a function of the last: ``3 * word + 1``."""
    first = torch.randint(VOCABULARY, (BATCH, 1), generator=torch.Generator().manual_seed(step))
    words = [first]
    for _ in range(LENGTH):
        words.append((3 * words[-1] + 1) % VOCABULARY)
    return torch.cat(words, 1)


def train(model: nn.Module, steps: int, part: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
    """Returns the loss of each step, over the part of its batch that `part` returns."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        tokens = part(batch(step))
        loss = cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps

    device = torch.device("pjrt", int(os.environ["LOCAL_RANK"]))
    torch.accelerator.set_device_index(device.index)
    dist.init_process_group(device_id=device)
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("pjrt", (size // 2, 2), mesh_dim_names=("dp", "tp"))

    torch.manual_seed(0)
    model = parallel(Llama().to(device), mesh)
    part, parts = mesh.get_local_rank("dp"), mesh["dp"].size()
    losses = torch.stack(train(model, steps, lambda tokens: tokens.chunk(parts)[part].to(device)))
    dist.all_reduce(losses, dist.ReduceOp.AVG, group=mesh.get_group("dp"))

    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, src=0)
    checkpoint.save({"model": get_model_state_dict(model)}, checkpoint_id=folder[0])
    whole = {name: p.full_tensor().cpu() for name, p in model.named_parameters() if isinstance(p, DTensor)}

    if rank == 0:
        torch.manual_seed(0)
        alone = Llama().to(device)
        expected = torch.stack(train(alone, steps, lambda tokens: tokens.to(device))).tolist()
        print("step   loss on", size, "processes   on one device")
        for step, (loss, other) in enumerate(zip(losses.tolist(), expected, strict=True)):
            print(f"{step:4}   {loss:19.6f}   {other:13.6f}")
            assert abs(loss - other) < 1e-3
        read = {"model": {name: torch.empty_like(p) for name, p in alone.state_dict().items()}}
        checkpoint.load(read, checkpoint_id=folder[0], no_dist=True)
        for name, wanted in whole.items():
            assert torch.equal(read["model"][name].cpu(), wanted)
        print(f"{len(whole)} parameters in a checkpoint of {size} parts, read by one device")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
