"""Trains a tiny Llama with tensor parallel and FSDP2 on four devices in one process; its losses beside the CPU's.

    python examples/llama_parallel.py

Model, plan and step are those of llama_torchrun.py, which starts a process for each device. Here one process is all
ranks: forward, backward, clipping and optimizer of all of them are one program, and only `split` is not PyTorch's.
"""

import argparse
import time

import torch
import torch.distributed as dist
from llama_torchrun import Llama, parallel, train
from torch.distributed.device_mesh import init_device_mesh

import torch_pjrt
from torch_pjrt.distributed import describe, split


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps

    dist.init_process_group("pjrt", rank=0, world_size=4)
    mesh = init_device_mesh("pjrt", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = parallel(Llama().to("pjrt"), mesh)
    print(describe(model))
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()
    start = time.perf_counter()
    losses = torch.stack(train(model, steps, lambda tokens: split(tokens, mesh["dp"])))
    dist.all_reduce(losses, dist.ReduceOp.AVG, group=mesh.get_group("dp"))
    found = losses.tolist()
    seconds = time.perf_counter() - start
    metrics = torch_pjrt.metrics()

    torch.manual_seed(0)
    expected = torch.stack(train(Llama(), steps, lambda tokens: tokens)).tolist()
    print("\nstep   loss on 4 devices   on the CPU")
    for step, (loss, other) in enumerate(zip(found, expected, strict=True)):
        print(f"{step:4}   {loss:17.6f}   {other:10.6f}")
        assert abs(loss - other) < 1e-3
    counted = ", ".join(f"{name} {count}" for name, count in sorted(metrics["collectives"].items()))
    programs = metrics["graphs_compiled"] + metrics["graphs_loaded_from_disk"]
    print(
        f"\n{steps} steps in {seconds:.1f} s: {metrics['executions']} executions of {programs} programs, "
        f"{sum(metrics['host_fallbacks'].values())} ops on the host\ncollectives: {counted}"
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
