"""Run by one of two processes: compiled functions with collectives. Prints a JSON of the results of each."""

from __future__ import annotations

import json
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives

import torch_pjrt

LATE = 0.3  # seconds; a collective that is not waited for ends later than that


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    group = dist.group.WORLD
    reported = {}

    def reduce(x: torch.Tensor) -> torch.Tensor:
        return collectives.all_reduce(x * 1, "sum", group) * 1

    def gather_and_scatter(x: torch.Tensor) -> torch.Tensor:
        whole = collectives.all_gather_tensor_autograd(x * 2, 0, group)
        part = collectives.reduce_scatter_tensor_autograd(whole.sin() * 3, "sum", 0, group)
        return (part * part).sum()

    def crossed(x: torch.Tensor) -> torch.Tensor:
        """The second collective has fewer operands than the first; all processes start them in this order."""
        first = collectives.all_reduce(reduce(x) + rank, "sum", group)
        return first + collectives.all_reduce(x, "max", group)

    def late() -> None:
        if rank == 1:
            time.sleep(LATE)

    for name in ("aot_eager", "pjrt"):
        reported[name] = []
        for fn in (reduce, crossed):
            torch._dynamo.reset()
            compiled = torch.compile(fn, backend=name)
            for _ in range(2):
                late()
                reported[name].append(compiled(torch.full((2,), rank + 1.0)).tolist())
        torch._dynamo.reset()
        x = (torch.arange(4.0) + rank).requires_grad_()
        late()
        loss = torch.compile(gather_and_scatter, backend=name)(x)
        late()
        loss.backward()
        assert x.grad is not None
        reported[name].append([loss.item(), *x.grad.tolist()])
    reported["captured"] = []
    for capture in (lambda: torch_pjrt.jit(reduce, [torch.ones(2)]), lambda: torch_pjrt.compile_step(reduce)(x)):
        try:
            capture()
        except torch_pjrt.CaptureError as error:
            reported["captured"].append(str(error))
    print(json.dumps(reported))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
