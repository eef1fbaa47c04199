"""What torch.distributed is told of the device."""

from __future__ import annotations

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
def test_it_says_that_there_are_no_collectives(tmp_path: Path, backend: str | None) -> None:
    with pytest.raises(NotImplementedError, match=r"no collectives on device 'pjrt'.*init_process_group\('gloo'\)"):
        dist.init_process_group(backend, init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
