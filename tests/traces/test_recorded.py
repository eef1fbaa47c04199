"""Recorded calls as stages that can be run: of ``compile_step`` and ``jit``, and of a block of lazy code."""

from __future__ import annotations

import inspect
import re
import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree

import torch_pjrt
from tests.traces.subclasses import Scaled, Unit
from tests.traces.test_stages import CASES
from torch_pjrt.program.subclasses import leaves, with_leaves
from torch_pjrt.traces import Traces

PYTHON = ("recorded_with_subclasses", "recorded")


def two(*size: int) -> TwoTensor:
    return TwoTensor(torch.randn(*size), torch.randn(*size))


def on(value: Any, device: str) -> Any:
    """Returns a copy on the device."""

    def moved(t: torch.Tensor) -> torch.Tensor:
        return with_leaves(t.detach(), lambda leaf, _: leaf.to(device, copy=True)).requires_grad_(t.requires_grad)

    return pytree.tree_map_only(torch.Tensor, moved, value)


def close(got: Any, wanted: Any) -> None:
    got, wanted = (leaves(t for t in pytree.tree_leaves(x) if isinstance(t, torch.Tensor)) for x in (got, wanted))
    assert len(got) == len(wanted) > 0
    for a, b in zip(got, wanted, strict=True):
        assert_close(a.detach().cpu(), b.detach().cpu(), rtol=1e-4, atol=1e-5)


def well_formed(traces: Traces) -> None:
    for trace in traces:
        if trace.language == "python":
            assert max(map(len, trace.text.splitlines())) <= 100
        else:
            assert "func.func public @main" in trace.text


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(two(4, 4))
        self.bias = nn.Parameter(two(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weight + self.bias).relu()


@pytest.mark.parametrize("device", ["cpu", "pjrt"])
def test_step(device: str) -> None:
    layer = Layer()
    layer.weight = nn.Parameter(on(layer.weight.detach(), device))
    layer.bias = nn.Parameter(on(layer.bias.detach(), device))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9, foreach=False)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward(torch.ones_like(loss))
        optimizer.step()
        return loss.detach()

    x = on(two(3, 4), device)
    compiled = torch_pjrt.compile_step(step)
    compiled(x)  # makes the momentum
    state = [optimizer.state[p]["momentum_buffer"] for p in layer.parameters()]
    before = [x, layer.weight, layer.bias, *state]
    given = on([t.detach() for t in before], device)
    traces = torch_pjrt.trace(compiled, x)
    well_formed(traces)
    assert [t.label for t in traces] == [*PYTHON, "stablehlo"]
    after = [layer.weight, layer.bias, *state]
    for stage in PYTHON:
        header = re.search(r"\ndef \w+\((.*?)\):", traces[stage].text, re.DOTALL)
        assert header is not None
        names = re.findall(r"\w+", header[1])
        assert (names[:3], names[-1]) == (["argument_0", "weight", "bias"], "lr")
        arguments = on(given, device)
        with torch.no_grad():
            results = traces[stage].python_callable()(*arguments, torch.tensor(0.1, dtype=torch.float64, device=device))
        close(arguments[1:], after)
        assert isinstance(results[0], TwoTensor)
    text = traces["recorded"].text
    assert "# backward: test_recorded.py:" in text
    assert "# [2/2] unrolled __torch_dispatch__ of torch.ops.aten.mm(argument_0: TwoTensor, weight:" in text
    for counts in traces.accounts[0].values():
        assert counts["shown"] + counts["dead"] == 2


def test_jit_and_its_program() -> None:
    layer, x = Layer(), two(7, 4)
    unwatched: list[str] = []
    torch_pjrt._C.set_program_listener(lambda _, text: unwatched.append(text))
    try:
        call = torch_pjrt.jit(layer, [x])
    finally:
        torch_pjrt._C.set_program_listener(None)
    traces = torch_pjrt.trace(call, x)
    well_formed(traces)
    assert [traces["stablehlo"].text] == unwatched
    for stage in PYTHON:
        close(traces[stage].python_callable()(x, layer.weight, layer.bias), layer(x))


def test_kept_of_each_program() -> None:
    weight = nn.Parameter(torch.ones(2))
    plain, kept = (torch_pjrt.compile_step(lambda x: (x * weight).sum(), trace=trace) for trace in (False, True))
    for step in (plain, kept):
        with pytest.raises(ValueError, match=r"no traces: compile_step\(fn, trace=True\) and jit"):
            torch_pjrt.last_traces(step)
    with torch_pjrt.tracing() as around:
        for size in (2, 1, 2):
            kept(torch.ones(size))
    for traces in (torch_pjrt.last_traces(kept), around):
        labels = [t.label for t in traces]
        assert labels == [*PYTHON, "stablehlo", *(f"{n}_1" for n in PYTHON), "stablehlo_1"]
        for size, ending in ((2, ""), (1, "_1")):
            assert f'argument_0: "pjrt:0 f32[{size}]"' in traces["recorded" + ending].text
    call = torch_pjrt.jit(lambda x: (x * 2, {"y": x}), [torch.ones(2)], trace=True)
    assert "= torch.ops.aten.mul.Tensor(argument_0, 2)" in torch_pjrt.last_traces(call)["recorded"].text


@pytest.mark.parametrize("name", CASES)
def test_each_kind(name: str) -> None:
    """Traces of jit, for the functions with which torch.compile's traces are tested."""
    f, make = CASES[name]
    arguments = make()
    if name == "branches":  # of a value: torch.compile's
        with pytest.raises(torch_pjrt.CaptureError, match="cond can't be part of a program"):
            torch_pjrt.jit(f, arguments)
        return
    traces = torch_pjrt.last_traces(torch_pjrt.jit(f, arguments, trace=True))
    well_formed(traces)
    found = {f"argument_{i}": x for i, x in enumerate(arguments)}
    if isinstance(f, nn.Module):
        found |= {f"{prefix}{n}".replace(".", "_"): p for n, p in f.named_parameters() for prefix in ("", "_")}
    for stage in PYTHON:
        run = traces[stage].python_callable()
        with torch.no_grad():
            close(run(*(on(found[n], "cpu") for n in inspect.signature(run).parameters)), f(*on(arguments, "cpu")))


def test_made_in_a_block() -> None:
    """A block makes subclasses of tensors from before the block."""
    x, scale = torch.randn(3, 3, device="pjrt"), torch.tensor(2.0, device="pjrt")
    with torch_pjrt.tracing() as traces:
        a = Scaled(x, scale)
        b: Any = TwoTensor(Scaled(x, scale), x)
        y, z = a @ a, b.sin()
    for stage in PYTHON:
        assert "(x, scale)" in traces[stage].text
        with torch.no_grad():
            close(traces[stage].python_callable()(x, scale), [a, b, y, z])
    assert "Scaled.__tensor_unflatten__({'x': x, 'scale': scale}" in traces["recorded_with_subclasses"].text


def test_jit_of_several() -> None:
    x = Scaled(torch.randn(3, 3), torch.tensor(2.0))
    with torch_pjrt.tracing() as traces:
        torch_pjrt.jit(lambda x: (x @ x, {"y": x.t()}), [x])
        torch_pjrt.jit(lambda x: x + 1, [torch.ones(2)])
    assert [t.label for t in traces] == [*PYTHON, "stablehlo", *(f"{n}_1" for n in PYTHON), "stablehlo_1"]
    for stage in PYTHON:
        close(traces[stage].python_callable()(x), (x @ x, x.t()))
    close(traces["recorded_1"].python_callable()(torch.ones(2)), torch.full((2,), 2.0))


def test_parts_that_are_used_alone() -> None:
    def f(x: Any, y: torch.Tensor) -> torch.Tensor:
        x.b.mul_(2)
        return x.a + y

    x, y = two(3), torch.ones(3)
    traces = torch_pjrt.trace(torch_pjrt.jit(f, [x, y]), x, y)
    for stage in PYTHON:
        given = on(x, "cpu")
        assert re.search(r"\(argument_0, argument_1\):\n    # argument_0: \"TwoTensor", traces[stage].text)
        assert "# written in place: argument_0\n" in traces[stage].text
        close(traces[stage].python_callable()(given, y), x.a + y)
        close(given.b, x.b * 2)


def block(x: Any, w: Any) -> tuple[Traces, list[Any]]:
    with torch_pjrt.tracing() as traces:
        y = x @ w
        y[0].mul_(2)
        loss = F.mse_loss(y, torch.zeros_like(y))
        loss.backward(torch.ones_like(loss))
    return traces, [y, loss, w.grad]


@pytest.mark.parametrize("make", [two, lambda *size: Unit(torch.randn(*size), context="m"), torch.randn])
def test_block(make: Any) -> None:
    x, w = make(3, 4), make(4, 5).requires_grad_()
    there = on((x, w), "pjrt")
    given = on((x.detach(), w.detach()), "pjrt")
    traces, results = block(*there)
    well_formed(traces)
    with torch.no_grad():
        for stage in PYTHON:
            close(traces[stage].python_callable()(*on(given, "pjrt")), results)
            assert "(x, w)" in traces[stage].text
    _, wanted = block(x, w)
    close(results, wanted)


def test_block_runs_the_programs_that_it_shows() -> None:
    def run(x: Any) -> None:
        y = x * 2 + 1
        if y.a.sum().item() < 0:
            y = y + 1
        z = y.exp()
        z.a.cpu()

    x = on(TwoTensor(torch.ones(3), torch.ones(3)), "pjrt")
    shown = []
    for _ in range(2):  # known the second time
        with torch_pjrt.tracing() as traces:
            run(x)
        shown.append([t.text for t in traces if t.language == "mlir"])
    assert shown[0] == shown[1]
    assert len(shown[0]) == 2
    listed: list[str] = []
    torch_pjrt._C.set_run_listener(listed.append)
    try:
        run(x)
    finally:
        torch_pjrt._C.set_run_listener(None)
    assert listed == shown[0]


def test_blocks_of_threads() -> None:
    """Each block has its own thread's calls; blocks can't be nested; after an error everything is restored."""
    there = threading.Barrier(2, timeout=60)
    found: dict[int, Traces] = {}

    def work(number: int) -> None:
        x = torch.ones(3, device="pjrt")
        with torch_pjrt.tracing() as found[number]:
            there.wait()
            y = x * (number + 2)
            assert y.cpu().tolist() == [number + 2] * 3
            there.wait()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, traces in found.items():
        assert f"torch.ops.aten.mul.Tensor(x, {number + 2})" in traces["recorded"].text
        assert [t.label for t in traces] == [*PYTHON, "stablehlo"]
    with (
        pytest.raises(RuntimeError, match=r"torch_pjrt.tracing\(\) within torch_pjrt.tracing\(\)"),
        torch_pjrt.tracing(),
        torch_pjrt.tracing(),
    ):
        pass
    with torch_pjrt.tracing() as traces:
        pass
    assert list(traces) == []
