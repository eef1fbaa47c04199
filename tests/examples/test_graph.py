"""examples/graph.py trains on the device as on the CPU."""

from __future__ import annotations

import pytest
import torch

import torch_pjrt
from examples import graph


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=["coo", "csr"])
def test_losses_are_the_cpus_and_a_step_is_one_program(layout: torch.layout) -> None:
    drawn = graph.draw(120, layout)
    there, _, _ = graph.train(drawn, "cpu")
    torch_pjrt.reset_metrics()
    here, right, _ = graph.train(drawn, "pjrt")
    torch.testing.assert_close(torch.tensor(here), torch.tensor(there), rtol=1e-3, atol=1e-4)
    assert right > 0.8
    metrics = torch_pjrt.metrics()
    assert metrics["executions"] <= graph.STEPS + 2  # one per step, and the reads at the end
    assert metrics["host_fallbacks"] == {}
