"""A world in one process: a step of Llama on four devices against one device, launches, collectives, memory.

Each way is a process of its own, because a world has to begin before its device is used; they take turns, on the same
cores.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":  # a process for one way, which measure() started
    sys.path[:0] = [str(ROOT / "bench"), str(ROOT)]

from world import trainers  # noqa: E402
from world.llama import llama, train  # noqa: E402
from world.worker import Worker, serve  # noqa: E402

from measure import Result, compare_timed, count, seconds  # noqa: E402

RANKS, ROUNDS = 4, 9
BYTES = {"4 kB": 1 << 12, "256 kB": 1 << 18, "16 MB": 1 << 24}  # per device


def step_of(model: Any, tokens: Any, captured: bool = False) -> Callable[[], object]:
    """Returns a training step; with `captured`, by compile_step."""
    import torch

    import torch_pjrt

    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)

    def step() -> None:
        train(model, optimizer, tokens)

    call = torch_pjrt.compile_step(step) if captured else step
    return lambda: (call(), torch.pjrt.synchronize())


def facts_of(step: Callable[[], object]) -> dict[str, int]:
    """Returns the counters of five steps after two that compile."""
    import torch_pjrt

    step()
    step()
    torch_pjrt.reset_metrics()
    for _ in range(5):
        step()
    reported = torch_pjrt.metrics()
    return {name: reported[name] for name in ("graphs_compiled", "executions", "syncs")}


def alone() -> tuple[Callable[[], object], dict[str, Any]]:
    import torch

    torch.manual_seed(0)
    made = llama()
    step = step_of(made.Llama().to("pjrt"), made.batch(0).to("pjrt"))
    return step, facts_of(step)


def share_of(model: Any) -> float:
    """Returns the bytes of parameters per device, relative to an even division among devices."""
    local = sum(p.to_local().nbytes for p in model.parameters())
    return RANKS * local / sum(p.numel() * p.element_size() for p in model.parameters())


def world(captured: bool = False) -> tuple[Callable[[], object], dict[str, Any]]:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from torch_pjrt.distributed import split

    dist.init_process_group("pjrt", rank=0, world_size=RANKS)
    mesh = init_device_mesh("pjrt", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    made = llama()
    step = step_of(made.parallel(made.Llama().to("pjrt"), mesh), split(made.batch(0), mesh["dp"]), captured)
    reported: dict[str, Any] = facts_of(step)
    if captured:
        return step, reported
    flat = init_device_mesh("pjrt", (RANKS,))
    model = made.Llama().to("pjrt")
    for block in model.blocks:
        fully_shard(block, mesh=flat)
    reported["share"] = share_of(fully_shard(model, mesh=flat))
    reported["launches"] = launches(flat)
    return step, reported


def launches(mesh: Any) -> dict[str, list[tuple[float, float]]]:
    """Times a small program and each collective by size: pairs of our seconds and bare PJRT's, alternately."""
    import torch
    from networks import bare, steady_program

    import torch_pjrt
    from torch_pjrt.distributed import split

    group, ops = mesh.get_group().group_name, torch.ops._c10d_functional
    calls: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "all_reduce": lambda x: ops.all_reduce(x, "sum", group),
        "all_gather": lambda x: ops.all_gather_into_tensor(x, RANKS, group),
        "reduce_scatter": lambda x: ops.reduce_scatter_tensor(x, "sum", RANKS, group),
        "all_to_all": lambda x: ops.all_to_all_single(x, [len(x) // RANKS] * RANKS, [len(x) // RANKS] * RANKS, group),
    }
    pairs: dict[str, list[tuple[float, float]]] = {}

    def time_both(name: str, ours: Callable[[], object]) -> None:
        program = bare(steady_program(ours))
        for _ in range(20):
            program.execute()
        repeat = max(1, min(100, int(0.05 / max(seconds(ours, 3), 1e-6))))
        pairs[name] = [
            (seconds(ours, repeat), sum(program.execute() for _ in range(repeat)) / repeat) for _ in range(ROUNDS)
        ]

    def run(call: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Callable[[], object]:
        def work() -> None:
            torch_pjrt.sync([call(x)])
            torch.pjrt.synchronize()

        return work

    small = split(torch.randn(RANKS * 8), mesh)
    torch_pjrt.sync([small])
    time_both("a launch of x + 1", run(lambda x: x + 1, small))
    for name, call in calls.items():
        for size, nbytes in BYTES.items():
            x = split(torch.randn(nbytes), mesh)
            torch_pjrt.sync([x])
            time_both(f"{name}, {size} a device", run(call, x))
    return pairs


def work(way: str) -> None:
    step, reported = alone() if way == "alone" else world(captured=way == "captured")
    print(json.dumps(reported), flush=True)
    serve(step)


def measure() -> list[Result]:
    workers = {
        "world": Worker(__file__, "world"),
        "captured": Worker(__file__, "captured"),
        "one device": Worker(__file__, "alone"),
        "one device, by XLA alone": Worker(__file__, "alone", TORCH_PJRT_LIBRARY_KERNELS="0"),
    }
    try:
        ours, captured = workers.pop("world"), workers.pop("captured")
        reported = ours.reported
        results = [
            compare_timed(
                "Llama's step, 2 x 2 devices, by compile_step",
                lambda: (captured.step(), ours.step()),
                None,
                against="recorded in each step",
                rounds=ROUNDS,
            )
        ]
        results.append(count("executions of 5 captured steps", captured.reported["executions"], 5, "programs"))
        for against, other in workers.items():
            both = lambda other=other: (ours.step(), other.step())  # noqa: E731
            target = 1.3 if against == "one device" else None
            results.append(compare_timed("Llama's step, 2 x 2 devices", both, target, against=against, rounds=ROUNDS))
        results.append(count("compiles of steps after the second", reported["graphs_compiled"], 0, "programs"))
        results.append(count("executions of 5 steps", reported["executions"], 5, "programs"))
        share = reported["share"]
        results.append(
            Result("FSDP2 parameters a device, of the ideal share", share, 1, share, 1.1, "x", against="1 / 4 of all")
        )
        for name, pairs in reported["launches"].items():
            turns = iter(pairs)
            target = 1.2 if "launch" in name else None
            timed = lambda turns=turns: tuple(next(turns))  # noqa: E731
            results.append(compare_timed(name, timed, target, against="bare PJRT", rounds=len(pairs)))
        return [*results, *trainers.measure()]
    finally:
        for worker in (ours, captured, *workers.values()):
            worker.close()


if __name__ == "__main__":
    work(sys.argv[1])
