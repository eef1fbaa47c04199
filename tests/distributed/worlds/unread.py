"""Many steps without a read, with products next to collectives: replicas wait for each other, and none forever."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import torch_pjrt
from torch_pjrt.distributed import rank_values, split

N, WIDTH, STEPS = int(sys.argv[1]), 512, 200
dist.init_process_group("pjrt", rank=0, world_size=N)
world = init_device_mesh("pjrt", (N,))
weight = torch.eye(WIDTH, device="pjrt")
x = split(torch.full((N, 64, WIDTH), 1.0), world).squeeze(0)
with torch.no_grad():
    for _ in range(STEPS):
        y = x @ weight
        dist.all_reduce(y)
        weight = weight + (x.mT @ (y - N)).mean() * 0
        torch_pjrt.sync([weight, y])
for each in rank_values(weight):
    torch.testing.assert_close(each, torch.eye(WIDTH))
torch.testing.assert_close(y.cpu(), torch.full((64, WIDTH), float(N)))
print(torch_pjrt.metrics()["executions"])
