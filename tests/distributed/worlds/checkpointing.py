"""torch.distributed.checkpoint in a world: all shards are written, and read by other meshes and by one device."""

import copy
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, zeros
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils import _pytree as pytree

import torch_pjrt  # noqa: F401
from torch_pjrt.distributed import split

dist.init_process_group("pjrt", rank=0, world_size=4)
world = init_device_mesh("pjrt", (4,))
grid = init_device_mesh("pjrt", (2, 2), mesh_dim_names=("dp", "tp"))
folder = Path(sys.argv[1])
checked = 0
torch.manual_seed(0)
LAYOUTS: list[tuple[Any, list[Any]]] = [
    (world, [Shard(0)]),
    (world, [Shard(1)]),
    (world, [Replicate()]),
    (grid, [Shard(0), Shard(1)]),
    (grid, [Replicate(), Shard(1)]),
    (grid, [Shard(0), Replicate()]),
]
for i, (mesh, placements) in enumerate(LAYOUTS):
    whole = torch.randn(8, 12)
    dcp.save({"w": distribute_tensor(whole, mesh, placements)}, checkpoint_id=folder / str(i))
    alone = {"w": torch.zeros(8, 12)}
    dcp.load(alone, checkpoint_id=folder / str(i))
    assert torch.equal(alone["w"], whole), placements
    for other, target in LAYOUTS:
        read = {"w": zeros(8, 12, device_mesh=other, placements=target)}
        dcp.load(read, checkpoint_id=folder / str(i))
        assert list(read["w"].placements) == target
        assert torch.equal(read["w"].full_tensor().cpu(), whole), (placements, target)
        checked += 1
    dcp.save(alone, checkpoint_id=folder / f"whole{i}")  # from one device to shards
    read = {"w": zeros(8, 12, device_mesh=mesh, placements=placements)}
    dcp.load(read, checkpoint_id=folder / f"whole{i}")
    assert torch.equal(read["w"].full_tensor().cpu(), whole), placements
    checked += 1
# Rows that don't divide: each shard is written without its padding (Note [Ragged]).
UNEVEN: list[tuple[Any, list[Any]]] = [
    (world, [Shard(0)]),
    (grid, [Shard(0), Shard(0)]),
    (grid, [Shard(1), Shard(0)]),
]
whole = torch.randn(9, 5)
for i, (mesh, placements) in enumerate(UNEVEN):
    dcp.save({"w": distribute_tensor(whole, mesh, placements)}, checkpoint_id=folder / f"uneven{i}")
    alone = {"w": torch.zeros(9, 5)}
    dcp.load(alone, checkpoint_id=folder / f"uneven{i}")
    assert torch.equal(alone["w"], whole), placements
    for other, target in UNEVEN:
        read = {"w": zeros(9, 5, device_mesh=other, placements=target)}
        dcp.load(read, checkpoint_id=folder / f"uneven{i}")
        assert torch.equal(read["w"].full_tensor().cpu(), whole), (placements, target)
        checked += 1
few = distribute_tensor(torch.arange(3.0), world, [Shard(0)])  # one rank has no rows
dcp.save({"w": few}, checkpoint_id=folder / "few")
read = {"w": zeros(3, device_mesh=world, placements=[Shard(0)])}
dcp.load(read, checkpoint_id=folder / "few")
assert read["w"].full_tensor().tolist() == [0, 1, 2]


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)).to("pjrt")
    parallelize_module(model, grid["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return fully_shard(model, mesh=grid["dp"])


def step(model: nn.Module, by: torch.optim.Optimizer) -> None:
    by.zero_grad()
    (model(split(torch.ones(8, 16), grid["dp"])) ** 2).mean().backward()
    by.step()


def state(model: nn.Module, by: torch.optim.Optimizer) -> dict[str, Any]:
    of_model, of_optimizer = get_state_dict(model, by)
    return {"model": of_model, "optimizer": of_optimizer}


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), 0.01)


model = network(1)
by = adam(model)
for _ in range(2):
    step(model, by)
dcp.save(state(model, by), checkpoint_id=folder / "training")
again = network(2)
by_again = adam(again)
saved = state(again, by_again)
dcp.load(saved, checkpoint_id=folder / "training")
set_state_dict(again, by_again, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
for one, optimizer in ((model, by), (again, by_again)):
    step(one, optimizer)
for (name, p), q in zip(model.named_parameters(), again.parameters(), strict=True):
    assert isinstance(p, DTensor)
    assert isinstance(q, DTensor)
    torch.testing.assert_close(q.full_tensor(), p.full_tensor(), rtol=0, atol=0, msg=name)
    checked += 1


# A whole tensor of rank 0 is broadcast, and each rank takes its part.
full = StateDictOptions(full_state_dict=True, cpu_offload=True)
sent = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
wholes = get_state_dict(model, by, options=full)
other = network(3)
by_other = adam(other)
model_state, optimizer_state = copy.deepcopy(wholes)
set_state_dict(other, by_other, model_state_dict=model_state, optim_state_dict=optimizer_state, options=sent)
for ours, right in zip(get_state_dict(other, by_other, options=full), wholes, strict=True):
    for one, wanted in zip(pytree.tree_leaves(ours), pytree.tree_leaves(right), strict=True):
        assert torch.equal(one, wanted) if isinstance(one, torch.Tensor) else one == wanted
        checked += 1


def load(i: int) -> None:
    dcp.load(in_threads[i], checkpoint_id=folder / str(i))


# Loads in several threads, whose reads alternate.
in_threads = [{"w": zeros(8, 12, device_mesh=mesh, placements=placements)} for mesh, placements in LAYOUTS]
barrier = threading.Barrier(len(LAYOUTS))
read_data = dcp.FileSystemReader.read_data


def meet(self: Any, *args: Any) -> Any:
    barrier.wait()  # all have begun, and none has ended
    return read_data(self, *args)


dcp.FileSystemReader.read_data = meet  # type: ignore[method-assign]
threads = [threading.Thread(target=load, args=(i,)) for i in range(len(LAYOUTS))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
dcp.FileSystemReader.read_data = read_data  # type: ignore[method-assign]
torch.manual_seed(0)
for read in in_threads:
    assert torch.equal(read["w"].full_tensor().cpu(), torch.randn(8, 12))
    checked += 1
sharded = distribute_tensor(torch.arange(8.0), world, [Shard(0)])
with pytest.raises(RuntimeError, match=r"copy to the host: the 4 ranks of this world"):
    sharded.cpu()
equal = zeros(8, device_mesh=world, placements=[Shard(0)]).cpu()
with pytest.raises(NotImplementedError, match=r"a copy on the CPU.*checkpoint\.save writes all of them"):
    equal.__create_chunk_list__()
print(checked)
