"""Worlds that can't begin: the error, and that the device is unchanged."""

import sys

import pytest
import torch
import torch.distributed as dist

import torch_pjrt  # noqa: F401

CASES = {
    "large": (8, r"a world of 8 ranks.*needs as many devices.*shows 4.*TORCH_PJRT_CPU_DEVICES"),
    "late": (4, r"has to begin before the device is used.*Call init_process_group first"),
}
if sys.argv[1] == "counted":  # libraries do it first
    assert torch.pjrt.device_count() == 4
    assert torch.pjrt.get_device_properties(1).total_memory > 0
    dist.init_process_group("pjrt", rank=0, world_size=3)
    x = torch.ones(2, device="pjrt")
    dist.all_reduce(x)
    assert x.tolist() == [3, 3]
    sys.exit()
size, said = CASES[sys.argv[1]]
if sys.argv[1] == "late":
    kept = torch.ones(2, device="pjrt")
    assert kept.tolist() == [1, 1]
with pytest.raises(RuntimeError, match=said):
    dist.init_process_group("pjrt", rank=0, world_size=size)
assert not dist.is_initialized()
assert torch.ones(2, device="pjrt:1").sum().item() == 2
