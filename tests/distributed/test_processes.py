"""Ranks that are processes: each way to start them, each collective compared with gloo's on the CPU, and training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fresh, ranks

HERE = Path(__file__).parent
QUICK = {"TORCH_PJRT_XLA_OPTIONS": "xla_backend_optimization_level=0"}


@pytest.mark.host_memory
@pytest.mark.parametrize(
    ("how", "size", "backend"),
    [
        ("none", 2, "undefined"),  # PyTorch's own word for it
        ("device", 2, "pjrt"),
        ("pjrt", 2, "pjrt"),
        ("pjrt", 4, "pjrt"),
        ("gloo", 2, "gloo"),
        ("cpu:gloo,pjrt:gloo", 2, "cpu:gloo,pjrt:gloo"),
        ("cpu:gloo,pjrt:pjrt", 2, "cpu:gloo,pjrt:pjrt"),
    ],
)
@pytest.mark.sampled(2)
def test_collectives(server: fresh.Server, how: str, size: int, backend: str) -> None:
    """Each process compares its results bit by bit."""
    for reported in ranks.run(server, HERE / "collectives.py", size, how):
        assert reported["backend"] == backend
        assert set(reported["counted"]) >= {
            "c10d::allreduce_",
            "c10d::allreduce_coalesced_",
            "c10d::reduce_",
            "c10d::_reduce_scatter_base_",
            "c10d::_allgather_base_",
            "c10d::allgather_",
            "c10d::broadcast_",
            "c10d::alltoall_base_",
            "c10d::scatter_",
            "c10d::gather_",
            "c10d::send",
            "c10d::recv_",
        }


@pytest.mark.host_memory
def test_collectives_that_are_checked(server: fresh.Server) -> None:
    """With this setting PyTorch wraps each backend in a group of its own."""
    for reported in ranks.run(server, HERE / "collectives.py", 2, "pjrt", TORCH_DISTRIBUTED_DEBUG="DETAIL"):
        assert reported["counted"]["c10d::allreduce_"] > 0


@pytest.mark.host_memory
@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.thorough)])
def test_training(server: fresh.Server, tmp_path: Path, size: int) -> None:
    """Parameters are compared with those of whole batches on the CPU, and a checkpoint is loaded by another mesh. A
    step is only cut by its collectives, and ends once."""
    for reported in ranks.run(server, HERE / "training.py", size, tmp_path):
        assert len(reported) == {2: 15, 4: 14}[size]
        assert reported["DDP"] == {"syncs": 2, "c10d::allreduce_": 1}
        assert {"c10d::_allgather_base_", "c10d::_reduce_scatter_base_"} <= set(reported["FSDP2"])
        for way, counted in reported.items():
            if way == "FSDP2 offloaded" or way.endswith(" compiled"):
                continue  # the one steps on the CPU, the others' programs end at their graphs' breaks
            assert counted.pop("syncs") <= sum(counted.values()) + 1, way


@pytest.mark.host_memory
@pytest.mark.parametrize("in_a_world", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_checkpoints_of_uneven_shards(server: fresh.Server, tmp_path: Path, in_a_world: bool) -> None:
    if in_a_world:
        job = fresh.Job((HERE / "saving.py").read_text(), (tmp_path,), {"TORCH_PJRT_CPU_DEVICES": "4", **QUICK})
        found = [int(result.out.splitlines()[-1]) for result in server.run(job)]
    else:
        found = ranks.run(server, HERE / "saving.py", 4, tmp_path, **QUICK)
    assert found[0] == 64


@pytest.mark.host_memory
def test_context_parallel(server: fresh.Server) -> None:
    assert ranks.run(server, HERE / "worlds/attending.py", 2, **QUICK) == [5, 5]


HYBRID = """
import json
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

import torch_pjrt

dist.init_process_group()
layer = torch.nn.Linear(2, 2, bias=False).to("pjrt")
torch.nn.init.zeros_(layer.weight)
options = {"auto_wrap_policy": ModuleWrapPolicy({torch.nn.Linear}), "use_orig_params": True}
model = FullyShardedDataParallel(layer, sharding_strategy=ShardingStrategy.HYBRID_SHARD, **options)
optimizer = torch.optim.SGD(model.parameters(), lr=1)
model(torch.full((1, 2), 1.0 + dist.get_rank(), device="pjrt")).sum().backward()
optimizer.step()
with FullyShardedDataParallel.summon_full_params(model):
    print(json.dumps([torch.pjrt.device_count(), model.process_group.size(), model.weight.tolist()]))
"""


@pytest.mark.host_memory
def test_hybrid_shards_of_processes_with_one_device_each(server: fresh.Server, tmp_path: Path) -> None:
    """FSDP shards among the processes of the host, and adds up their gradients."""
    (tmp_path / "hybrid.py").write_text(HYBRID)
    for reported in ranks.run(server, tmp_path / "hybrid.py", 2, TORCH_PJRT_CPU_DEVICES="1", LOCAL_RANK="0"):
        assert reported == [1, 2, [[-1.5, -1.5], [-1.5, -1.5]]]
