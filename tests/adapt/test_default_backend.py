"""``torch.compile`` without a backend, as programs have it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import torch_pjrt


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()


def test_tensors_of_the_device_are_compiled_for_it() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
    moved = copy.deepcopy(model).to("pjrt")
    compiled, x = torch.compile(moved), torch.randn(5, 4)
    for _ in range(3):
        compiled(x.to("pjrt")).square().sum().backward()
        model(x).square().sum().backward()
    for found, wanted in zip(moved.parameters(), model.parameters(), strict=True):
        assert found.grad is not None
        torch.testing.assert_close(found.grad.cpu(), wanted.grad)
    metrics = torch_pjrt.metrics()
    assert metrics["host_fallbacks"] == {}
    assert "a call of a compiled graph" not in metrics["syncs_by_cause"]  # the gradient was pending: it is recorded
    before = metrics["executions"]
    compiled(x.to("pjrt"))
    assert torch_pjrt.metrics()["executions"] == before + 1


def test_what_a_graph_makes_of_nothing() -> None:
    made = torch.compile(lambda: torch.ones(3, device="pjrt") * 2)()
    assert made.device.type == "pjrt"
    assert made.tolist() == [2.0, 2.0, 2.0]


def test_settings_of_inductor_are_reported() -> None:
    x = torch.ones(3, device="pjrt")
    with pytest.warns(UserWarning, match="max_autotune.*Inductor's settings"):
        assert torch.compile(lambda x: x + 1, mode="max-autotune-no-cudagraphs")(x).tolist() == [2.0] * 3


def test_inductor_has_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import compile_fx

    seen: list[object] = []

    def inductor(module: torch.fx.GraphModule, inputs: object, **options: object) -> object:
        seen.append(module)
        return module.forward

    monkeypatch.setattr(compile_fx, "compile_fx", inductor)
    assert torch.compile(lambda x: x + 1)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert len(seen) == 1


def test_inductor_by_its_name() -> None:
    counter = CompileCounterWithBackend("inductor")
    assert torch.compile(lambda x: x + 1, backend=counter)(torch.ones(3, device="pjrt")).tolist() == [2.0] * 3
    assert counter.frame_count == 1
    module = torch.fx.symbolic_trace(lambda x: x + 1)
    found = torch._inductor.compile(module, [torch.ones(3, device="pjrt")])
    assert found(torch.ones(3, device="pjrt")).tolist() == [2.0] * 3


def test_inductor_ahead_of_time() -> None:
    x = torch.ones(3, device="pjrt")
    program = torch.export.export(nn.ReLU(), (x,))
    with pytest.raises(Exception, match="AOTInductor makes no code for device 'pjrt'"):
        torch._inductor.aoti_compile_and_package(program)
