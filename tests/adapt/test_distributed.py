"""The device's registration with torch.distributed."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist


def test_a_backend_has_its_name() -> None:
    assert dist.Backend.default_device_backend_map["pjrt"] == "pjrt"
    assert dist.get_default_backend_for_device(torch.device("pjrt")) == "pjrt"
    assert dist.Backend.default_device_backend_map["cpu"] == "gloo"
    import torch.testing._internal.distributed._tensor.common_dtensor as helpers  # asks when it is imported

    assert helpers.PG_BACKEND


@pytest.mark.parametrize("backend", ["pjrt", None])
def test_a_world_of_one_process(tmp_path: Path, backend: str | None) -> None:
    dist.init_process_group(backend, init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        for device in ("cpu", "pjrt"):
            x = torch.ones(2, device=device)
            dist.all_reduce(x)
            assert x.tolist() == [1, 1]
    finally:
        dist.destroy_process_group()


def test_a_later_group_of_the_devices(tmp_path: Path) -> None:
    """The backend is asked for by a group that isn't the default one."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        x = torch.ones(2, device="pjrt")
        dist.all_reduce(x, group=dist.new_group([0], backend="pjrt"))
        assert x.tolist() == [1, 1]
    finally:
        dist.destroy_process_group()


def test_it_is_begun_once(tmp_path: Path) -> None:
    dist.init_process_group("pjrt", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="trying to initialize the default process group twice"):
            dist.init_process_group("pjrt", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (
            "ProcessGroup",
            "_device_types _get_backend _register_backend _set_group_name _set_group_desc group_name group_desc "
            "BackendType.GLOO BackendType.CUSTOM",
        ),
        ("_DistributedBackendOptions", "store group_rank group_size timeout global_ranks_in_group"),
        ("_ProcessGroupWrapper", "wrapped_pg"),
    ],
    ids=lambda given: given.split()[0],
)
def test_what_is_read_of_c10d_is_there(owner: str, names: str) -> None:
    """Names of c10d that the package reads exist: if PyTorch renames one, this test names it."""
    from torch._C import _distributed_c10d

    for name in names.split():
        operator.attrgetter(f"{owner}.{name}")(_distributed_c10d)
