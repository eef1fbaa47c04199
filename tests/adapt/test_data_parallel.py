"""nn.DataParallel, which takes the device for any module, also one on the CPU."""

from __future__ import annotations

import pytest

from tests.fresh import Job, Server

PROGRAM = """
import copy
import torch
from torch import nn

torch.manual_seed(0)
reference = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).eval()
module = copy.deepcopy(reference)
if torch.pjrt.device_count() > 1:
    module.to("pjrt")
parallel = nn.DataParallel(module)
assert parallel.device_ids == list(range(torch.pjrt.device_count()))
for rows in (6, 5, 1):
    for device in ("cpu", "pjrt"):
        parallel.zero_grad()
        reference.zero_grad()
        expected_x = torch.randn(rows, 4, requires_grad=True)
        x = expected_x.detach().to(device).requires_grad_()
        result, expected = parallel(x), reference(expected_x)
        assert result.device == torch.device("pjrt:0")
        result.square().sum().backward()
        expected.square().sum().backward()
        for a, b in zip((result, x.grad, *(p.grad for p in parallel.parameters())),
                        (expected, expected_x.grad, *(p.grad for p in reference.parameters()))):
            torch.testing.assert_close(a.cpu(), b)
parallel.train()
optimizer = torch.optim.SGD(parallel.parameters(), 0.1)
before = module[0].weight.tolist()
parallel(torch.randn(8, 4)).sum().backward()
optimizer.step()
assert module[0].weight.tolist() != before and module[1].running_mean.abs().sum() > 0
"""


@pytest.mark.parametrize("devices", [1, 2])
def test_data_parallel(server: Server, devices: int) -> None:
    (result,) = server.run(Job("import torch_pjrt\n" + PROGRAM, (), {"TORCH_PJRT_CPU_DEVICES": str(devices)}))
    assert "Warning" not in result.err
