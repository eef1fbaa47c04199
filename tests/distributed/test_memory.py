"""Collectives make no copies in addition to gloo's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.peak import growth

ELEMENTS = 1 << 24
NBYTES = 4 * ELEMENTS


@pytest.fixture(autouse=True)
def world(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("pjrt", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def gathered(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    dist.all_gather_into_tensor(out, x)
    return out


def reduced(x: torch.Tensor) -> torch.Tensor:
    out = x.clone()  # on the device one of the copies is none
    dist.all_reduce(out)
    return out


@pytest.mark.host_memory
@pytest.mark.parametrize("collective", [gathered, reduced])
def test_memory_is_the_devices(collective: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x, y = torch.ones(ELEMENTS), torch.ones(ELEMENTS, device="pjrt")
    y.sum().item()
    small = torch.ones(4, device="pjrt")
    collective(small).tolist()
    kept = []

    def on_cpu() -> torch.Tensor:
        kept.append(collective(x))
        return small

    wanted = growth(on_cpu)
    found = growth(lambda: collective(y))
    assert wanted > NBYTES * 0.9
    assert found < wanted + NBYTES // 4
