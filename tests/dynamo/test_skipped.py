"""Functions of this package in a captured one."""

from __future__ import annotations

import torch
from torch._dynamo import trace_rules

import torch_pjrt
import torch_pjrt.dynamo.backend


def test_a_step_is_captured_whole_when_dynamos_lists_are_made_anew() -> None:
    trace_rules.clear_lru_cache()  # as torch.distributed.init_process_group does
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=0.5, momentum=0.5, foreach=True)
    step = torch.compile(optimizer.step, backend="pjrt")
    torch_pjrt.reset_metrics()
    for _ in range(3):
        parameter.grad = torch.ones(3)
        step()
    assert parameter.tolist() == [1 - 0.5 * (1 + 1.5 + 1.75)] * 3
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
    assert not [why for why in torch._dynamo.utils.counters["graph_break"] if "skipped" in why]
