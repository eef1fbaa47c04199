"""Bad input of a world: the error, with the cure."""

import io
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed import collective_utils
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.utils.data import TensorDataset
from torch.utils.data.distributed import DistributedSampler

import torch_pjrt
from torch_pjrt.distributed import split

N = 4
said = 0


def refused(kind: type[BaseException], pattern: str, call: Callable[[], object]) -> None:
    global said
    with pytest.raises(kind, match=pattern):
        call()
    said += 1


def begin(size: int) -> None:
    dist.init_process_group("pjrt", rank=0, world_size=size)


begin(N)
world = init_device_mesh("pjrt", (N,))
refused(ValueError, "twice", lambda: begin(N))
refused(
    RuntimeError,
    r"DistributedSampler.*torch_pjrt\.distributed\.split",
    lambda: DistributedSampler(TensorDataset(torch.ones(8))),
)
assert len(DistributedSampler(TensorDataset(torch.ones(8)), num_replicas=4, rank=1)) == 2
x = split(torch.arange(16.0), world)
pair = dist.new_group([0, 1])
refused(NotImplementedError, r"ranks \[0, 1\] alone.*new_group", lambda: dist.all_reduce(x, group=pair))
dist.new_group([2, 3])
dist.all_reduce(x, group=pair)  # now all ranks are in one of them
refused(NotImplementedError, "send and recv.*torchrun", lambda: dist.send(x, 1))
refused(NotImplementedError, "send and recv.*torchrun", lambda: dist.recv(x, 1))
to_next = dist.P2POp(dist.isend, x, (world.get_local_rank() + 1) % N)
refused(NotImplementedError, "send and recv.*torchrun", lambda: dist.batch_isend_irecv([to_next]))
refused(NotImplementedError, "gather to rank 1.*all_gather", lambda: dist.gather(x, None, 1))
refused(NotImplementedError, "'gloo' needs a process for each of its 4 ranks", lambda: dist.new_group(backend="gloo"))
refused(NotImplementedError, r"'avg' of integers; take the sum", lambda: dist.all_reduce(x.long(), dist.ReduceOp.AVG))
refused(
    NotImplementedError,
    "parts of different sizes.*Pad",
    lambda: funcol.all_to_all_single(x, [1, 1, 1, 1], [2, 1, 1, 0], world.get_group()),
)
splits = [1 + world.get_local_rank() % 2, 1, 1, 1]  # of each rank
for exchange in (dist.all_to_all_single, funcol.all_to_all_single):
    refused(
        NotImplementedError,
        r"all_to_all_single: ranks with parts of their own sizes, \[\[1, 1, 1, 1\], \[2, 1, 1, 1\].*Pad",
        partial(exchange, torch.ones(5, device="pjrt"), x, splits, splits)
        if exchange is dist.all_to_all_single
        else partial(exchange, x, splits, splits, world.get_group()),
    )
refused(TypeError, r"split: got int, of which.*pass tensors", lambda: split(3, world))
refused(TypeError, r"split: got dict, of which.*name: split\(tensor, mesh\)", lambda: split({"x": x}, world))
refused(TypeError, r"split: got a tensor without dimensions", lambda: split(torch.tensor(3), world))
refused(ValueError, "6 doesn't divide among 4 ranks", lambda: split(torch.ones(6), world))
refused(ValueError, "a mesh of 2 dimensions", lambda: split(torch.ones(8), init_device_mesh("pjrt", (2, 2))))
refused(NotImplementedError, r"without ranks \[2, 3\]", lambda: DeviceMesh("pjrt", [0, 1]).get_coordinate())
refused(ValueError, r"mesh with ranks \[7\]: .*0 to 3", lambda: DeviceMesh("pjrt", [0, 1, 2, 7]))
refused(RuntimeError, "world size 4, but found 8 ranks", lambda: init_device_mesh("pjrt", (2, 4)))
refused(
    NotImplementedError,
    r"to_local\(\): a dimension of 6 among 4 ranks.*Take a multiple of 4",
    lambda: distribute_tensor(torch.ones(6), world, [Shard(0)]).to_local(),
)


def sharded_by_process() -> None:
    FullyShardedDataParallel(torch.nn.Linear(4, 4).to("pjrt"), device_id=torch.device("pjrt", 0))


def optimized_by_process() -> None:
    ZeroRedundancyOptimizer(torch.nn.Linear(4, 4).to("pjrt").parameters(), torch.optim.SGD, lr=0.1)


refused(NotImplementedError, "FullyShardedDataParallel: .*all 4 ranks of its world.*fully_shard", sharded_by_process)
refused(NotImplementedError, "ZeroRedundancyOptimizer: .*all 4 ranks of its world.*fully_shard", optimized_by_process)


def export() -> None:
    torch_pjrt.export(lambda t: t * 2, torch.ones(2, device="pjrt"))


refused(Exception, r"a world of 4; export it in a process without one\. Save whole weights \(full_tensor\(\)", export)
refused(RuntimeError, "cpu", lambda: dist.all_reduce(torch.ones(2)))
sharded = distribute_tensor(torch.arange(8.0), world, [Shard(0)])
grid = init_device_mesh("pjrt", (2, 2))
of_another = distribute_tensor(torch.arange(8.0), grid, [Shard(0), Replicate()])
refused(RuntimeError, r"different meshes: got DeviceMesh\(\(4,\).*DeviceMesh\(\(2, 2\)", lambda: sharded + of_another)


def pipeline() -> None:
    stage = PipelineStage(torch.nn.Linear(4, 4).to("pjrt"), 0, 4, torch.device("pjrt"))
    ScheduleGPipe(stage, 2, loss_fn=torch.nn.functional.mse_loss).step(torch.ones(4, 4, device="pjrt"))


refused(NotImplementedError, "pipeline stages, name single ranks.*torchrun, or shard by DTensor", pipeline)

# Python objects: there is one of each, which all ranks share.
objects = [{"step": 3}, "all"]
dist.broadcast_object_list(objects, src=1)
assert objects == [{"step": 3}, "all"]
assert collective_utils.broadcast(lambda: 3, rank=1, pg=world.get_group()) == 3
refused(
    NotImplementedError,
    r"scatter_object_list gives each rank an object of its own.*torch_pjrt\.distributed\.split.*torchrun",
    lambda: dist.scatter_object_list([None], [0, 1, 2, 3]),
)
refused(NotImplementedError, "gather_object to rank 1.*all_gather_object", lambda: dist.gather_object(1, None, 1))


# A part at a place that differs by rank is a copy: written, or read after a change of the whole, it would be wrong.
def stale() -> None:
    part = whole.narrow(0, 2 * dist.get_rank(), 2)[:1]
    whole.view(-1).add_(1)
    torch_pjrt.distributed.rank_values(part + 1)


whole, rows = torch.zeros(8, 3, device="pjrt"), torch.ones(2, 3, device="pjrt")
part = whole.narrow(0, 2 * dist.get_rank(), 2)
inner = whole.t().narrow(1, 2 * world.get_local_rank(), 2).narrow(0, 1, 1).view(-1)
for write in (
    lambda: part.copy_(rows),
    lambda: part[0].copy_(rows.cpu()[0]),
    lambda: part.narrow(0, dist.get_rank() // 2, 1).t().zero_(),
    lambda: torch.add(rows, 1, out=part),
    lambda: torch._foreach_add_([part, rows], 1),
    lambda: inner.add_(1),
    lambda: dist.all_reduce(part),
):
    refused(NotImplementedError, r"start differs by rank.*x\.index_copy_\(dim, start", write)
refused(RuntimeError, r"one integer.*\[0, 2, 4, 6\]", lambda: whole.__setitem__(slice(2 * dist.get_rank(), None), 1))
refused(RuntimeError, "start differs by rank.*after x has changed", stale)
part = whole.narrow(0, 2 * dist.get_rank(), 2)
assert [part.tolist() for part in torch_pjrt.distributed.rank_values(part.clone().mul_(2))] == 4 * [[[2.0] * 3] * 2]
whole.index_copy_(0, 2 * dist.get_rank() + torch.arange(2, device="pjrt"), part + rows)
for rank, value in enumerate(torch_pjrt.distributed.rank_values(whole)):
    assert value.sum(1).tolist() == [6.0 if i // 2 == rank else 3.0 for i in range(8)]


def sparse() -> None:
    torch.nn.parallel.DistributedDataParallel(torch.nn.Embedding(8, 4, sparse=True).to("pjrt"))


refused(NotImplementedError, "DistributedDataParallel with sparse gradients.*sparse=False", sparse)


# The world continues after a device had too little memory.
def large() -> None:
    y = torch.ones(1 << 44, device="pjrt") * 2
    dist.all_reduce(y.sum()).item()


refused(torch.OutOfMemoryError, "Tried to allocate", large)
total = x.sum()
dist.all_reduce(total)
assert total.item() == 2 * (sum(range(8)) + sum(range(8, 16)))
refused(NotImplementedError, r"torch\.save.*full_tensor\(\)", lambda: torch.save({"w": sharded}, io.BytesIO()))
torch.save({"w": sharded.full_tensor()}, io.BytesIO())
print(said)
