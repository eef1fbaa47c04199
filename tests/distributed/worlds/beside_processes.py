"""Each function of torch.distributed returns in a world what it returned in processes, or raises immediately."""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import torch_pjrt
from tests.distributed.table import NOT_IN_A_WORLD, SIZE, Ranks, attempt, table
from torch_pjrt.distributed import rank_values, split

warnings.simplefilter("ignore")
wanted: list[dict[str, Any]] = [torch.load(Path(sys.argv[1], f"{rank}.pt")) for rank in range(SIZE)]
dist.init_process_group("pjrt", rank=0, world_size=SIZE)
world = init_device_mesh("pjrt", (SIZE,))


def of_all(values: Callable[[int], torch.Tensor]) -> torch.Tensor:
    return split(torch.stack([values(rank) for rank in range(SIZE)]), world).squeeze(0)


ranks = Ranks("pjrt", dist.group.WORLD, of_all)
given: dict[str, list[torch.Tensor]] = {}
for name, case in table():
    found = attempt(case, ranks)
    if isinstance(found, str):
        refused = name.startswith(NOT_IN_A_WORLD) and "torchrun" in found
        assert refused or isinstance(wanted[0][name], str), (name, found)
    else:
        given[name] = found
names = list(given)
for first in range(0, len(names), 30):  # larger programs take longer to compile than their parts
    torch_pjrt.sync(tensor for name in names[first : first + 30] for tensor in given[name] if tensor.is_pjrt)
for name, tensors in given.items():
    of_ranks = [rank_values(tensor) if tensor.is_pjrt else [tensor] * SIZE for tensor in tensors]
    for rank, right in enumerate(each[name] for each in wanted):
        if isinstance(right, str):
            # With complex numbers; PyTorch before 2.15 has it for groups of gloo alone.
            assert "PRODUCT" in name or name == "monitored_barrier", (name, right)
            continue
        assert len(of_ranks) == len(right), (name, right)
        for values, one in zip(of_ranks, right, strict=True):
            assert torch.equal(values[rank], one), (name, rank, values[rank], one)
print(len(given))
