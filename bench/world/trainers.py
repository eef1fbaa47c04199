"""Steps of trainers, in processor time: FSDP2 in two processes beside gloo's, and torchtitan's debug model on one
device beside the CPU, if torchtitan is installed.

torchtitan has no device for the CPU, and its FlexAttention no backward there: the CPU's process passes for a device,
and computes attention as PyTorch's own formula of FlexAttention does.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":  # a process for one way, which measure() started
    sys.path[:0] = [str(ROOT / "bench"), str(ROOT), str(ROOT / "examples/trainers")]

from world.llama import llama, train  # noqa: E402
from world.worker import Worker, serve, step_of_all  # noqa: E402

from measure import Result, compare_timed, count  # noqa: E402

WARM, ROUNDS = 8, 9
EXECUTIONS = 8  # of a step of torchtitan, at most


def counted() -> int:
    """Returns the executions so far; 0 on the CPU."""
    device = sys.modules.get("torch_pjrt")
    return int(device.metrics()["executions"]) if device else 0


def sharded(device: str) -> None:
    """Serves steps of a Llama in FSDP2 on the device."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    made = llama()
    dist.init_process_group("gloo" if device == "cpu" else None)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    torch.manual_seed(0)
    model = made.Llama().to(device)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    tokens = made.batch(0).chunk(dist.get_world_size())[dist.get_rank()].to(device)

    def step() -> None:
        train(model, optimizer, tokens).item()

    for _ in range(WARM):
        step()
    print(json.dumps({}), flush=True)
    serve(step, time.process_time)


def pass_for_a_device() -> None:
    """Makes torchtitan take the CPU for its device."""
    import torch
    import torch._utils
    import torch.distributed as dist
    from torch.nn.attention import flex_attention as flex

    nothing = dict.fromkeys(("active_bytes.all.peak", "reserved_bytes.all.peak", "num_alloc_retries", "num_ooms"), 0)
    device = ModuleType("device")
    device.__dict__.update(
        vars(torch.cpu),
        get_device_name=lambda *_: "CPU",
        get_device_properties=lambda *_: SimpleNamespace(total_memory=1 << 34),
        memory_stats=lambda *_: nothing,
        reset_peak_memory_stats=lambda *_: None,
        empty_cache=lambda: None,
    )
    torch._utils._get_available_device_type = lambda: "cpu"
    torch._utils._get_device_module = lambda _: device
    barrier = dist.barrier
    dist.barrier = lambda *args, device_ids=None, **kwargs: barrier(*args, **kwargs)
    from torchtitan.models.common import attention

    flex._validate_device = lambda *_: None
    attention.FlexAttention._compiled_flex_attn = staticmethod(flex.flex_attention)
    attention._compiled_create_block_mask = flex.create_block_mask


def torchtitan(device: str) -> None:
    """Serves steps of torchtitan's trainer."""
    if device == "cpu":
        pass_for_a_device()
    from torchtitan.trainer import Trainer

    inner, done = Trainer.train_step, [0]

    def train_step(self: Any, *args: Any) -> None:
        inner(self, *args)
        done[0] += 1
        if done[0] < WARM:
            return
        before = counted()
        inner(self, *args)
        print(json.dumps({"executions": counted() - before}), flush=True)
        serve(lambda: inner(self, *args), time.process_time)
        os._exit(0)

    Trainer.train_step = train_step
    import torchtitan_llama

    sys.argv[1:] = ["--steps", "100000", "--folder", tempfile.mkdtemp()]
    with contextlib.redirect_stderr(open(os.devnull, "w")):
        torchtitan_llama.main()


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return str(probe.getsockname()[1])


def in_two(way: str, device: str, **more: str) -> list[Worker]:
    same = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": free_port(), **more}
    return [Worker(__file__, way, device, RANK=rank, LOCAL_RANK=rank, **same) for rank in "01"]


def measure() -> list[Result]:
    on_cpu = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    common = {"OMP_NUM_THREADS": "1"}

    def compared(name: str, ours: list[Worker], theirs: list[Worker], against: str) -> Result:
        for worker in (*ours, *theirs):
            assert worker.reported is not None  # they have begun
        try:
            return compare_timed(
                name, lambda: (step_of_all(ours), step_of_all(theirs)), 1.0, against=against, rounds=ROUNDS
            )
        finally:
            for worker in (*ours, *theirs):
                worker.close()

    results = [
        compared(
            "FSDP2 of Llama, two processes: processor time of a step",
            in_two("sharded", "pjrt", **common),
            in_two("sharded", "cpu", **common, **on_cpu),
            "gloo",
        )
    ]
    if importlib.util.find_spec("torchtitan") is None:
        print("bench: torchtitan is not installed: its rows are left out")
        return results
    ours = Worker(__file__, "torchtitan", "pjrt", **common)
    theirs = Worker(__file__, "torchtitan", "cpu", **common, **on_cpu)
    executions = ours.reported["executions"]
    results.append(compared("torchtitan's debug model: processor time of a step", [ours], [theirs], "eager CPU"))
    results.append(count("executions of a step of torchtitan's debug model", executions, EXECUTIONS, "programs"))
    return results


if __name__ == "__main__":
    {"sharded": sharded, "torchtitan": torchtitan}[sys.argv[1]](sys.argv[2])
