"""torch.pjrt's memory statistics: bytes in the device's buffers, as users of torch.cuda.memory know them."""

from __future__ import annotations

import gc

import pytest
import torch

import torch_pjrt

DEVICE = "pjrt"


def fresh() -> int:
    gc.collect()
    torch.pjrt.synchronize()
    torch.pjrt.reset_peak_memory_stats()
    return torch.pjrt.memory_allocated()


@pytest.mark.host_memory
def test_memory_of_values() -> None:
    before = fresh()
    x = torch.ones(1000, device=DEVICE)
    assert torch.pjrt.memory_allocated() == before  # recorded only
    torch_pjrt.sync(x)
    assert torch.pjrt.memory_allocated() == before + 4000
    view = x[10:]
    del x
    assert torch.pjrt.memory_allocated() == before + 4000
    del view
    assert torch.pjrt.memory_allocated() == before
    # The fill value is an argument of the program, eight bytes of its own.
    assert before + 4000 <= torch.pjrt.max_memory_allocated() <= before + 4008
    torch.pjrt.reset_peak_memory_stats()
    assert torch.pjrt.max_memory_allocated() == before
    y = torch.ones(500).to(DEVICE)  # no program: an upload
    assert torch.pjrt.memory_allocated() == before + 2000
    assert torch.pjrt.memory_reserved() == torch.pjrt.memory_allocated()
    del y


def test_the_summary_of_memory_is_a_table_of_the_statistics() -> None:
    x = torch.ones(1 << 20, device=DEVICE)
    torch_pjrt.sync(x)
    stats = torch.pjrt.memory_stats()
    rows = torch.pjrt.memory_summary(DEVICE).splitlines()
    assert rows[0] == "PJRT memory, device pjrt:0"
    assert rows[1].split() == ["now", "peak", "allocated", "freed"]
    now, unit = rows[2].split()[3:5]
    size = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]
    assert abs(int(now) * size - stats["allocated_bytes.all.current"]) <= size / 2
    assert rows[3].split()[:2] == ["buffers", str(stats["active.all.current"])]
    assert len(rows) == 4 + sum(name.startswith("plugin.") for name in stats)
    assert len(torch.pjrt.memory_summary(abbreviated=True).splitlines()) == 4
    assert torch.pjrt.OutOfMemoryError is torch.OutOfMemoryError


def test_an_update_in_place_takes_no_more_memory() -> None:
    x = torch.ones(1 << 20, device=DEVICE)
    torch_pjrt.sync(x)
    before = fresh()
    for _ in range(3):
        x.add_(1)
        torch_pjrt.sync(x)
    assert torch.pjrt.memory_allocated() == before
    assert torch.pjrt.max_memory_allocated() < before + x.nbytes
    y = x + 1
    torch_pjrt.sync(y)
    assert torch.pjrt.max_memory_allocated() == before + x.nbytes


def test_memory_of_a_training_step() -> None:
    model = torch.nn.Linear(256, 256).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.rand(8, 256).to(DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step()
    step()
    before = fresh()
    parameters = sum(p.nbytes for p in model.parameters())
    for _ in range(3):
        step()
    torch.pjrt.synchronize()
    assert abs(torch.pjrt.memory_allocated() - before) < 4096
    assert torch.pjrt.max_memory_allocated() <= before + 2 * parameters  # gradients old and new


@pytest.mark.host_memory
def test_memory_stats() -> None:
    torch.pjrt.reset_accumulated_memory_stats()
    x = torch.ones(1000).to(DEVICE)
    stats = torch.pjrt.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == 4000
    assert stats["allocation.all.allocated"] == 1
    assert stats["allocated_bytes.all.freed"] == 0
    del x
    stats = torch.pjrt.memory_stats()
    assert stats["allocated_bytes.all.freed"] == 4000
    assert stats["allocation.all.freed"] == 1
    assert not [name for name in stats if name.startswith("plugin.")]  # the CPU plugin reports none
    torch.pjrt.empty_cache()
