"""A graph is interpreted until its compile is amortized (Note [Tiers])."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import torch_pjrt
from tests import fresh
from tests.engine.tier.conftest import counts
from tests.ops import opinfo
from tests.peak import status
from torch_pjrt import _C

OPS = sorted(set(opinfo.OPS) - set(opinfo.UNSUPPORTED))


@pytest.mark.host_memory
def test_what_is_met_once_is_not_compiled() -> None:
    x = torch.randn(11, 13).to("pjrt")
    torch.testing.assert_close((x.exp() @ x.t()).cpu(), x.cpu().exp() @ x.cpu().t())
    assert counts() == (1, 0)


def chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(8):
        x = (x * 1.01).neg()
    return x


@pytest.mark.host_memory
def test_a_graph_is_compiled_when_that_is_amortized() -> None:
    """Each of these calls reads and writes much memory, and a program does it once."""
    x = torch.randn(1600, 1400).to("pjrt")
    expected = chain(x.cpu())
    runs = []
    for _ in range(16):
        torch.testing.assert_close(chain(x).cpu(), expected, rtol=1e-3, atol=1e-3)
        runs.append(counts()[0])
    assert 1 <= runs[-1] < 16
    assert runs == [min(i + 1, runs[-1]) for i in range(16)]
    assert counts()[1] == 1


def test_what_takes_longer_than_its_compile_is_compiled_at_once() -> None:
    x = torch.ones(6000, 6000).to("pjrt")
    for _ in range(20):
        x = x.neg()
    x.cpu()
    assert counts() == (0, 1)


@pytest.mark.parametrize("how", ["strict", "eagerly", "first"])
def test_where_everything_is_compiled(how: str) -> None:
    x = torch.randn(3, 20 + sum(map(ord, how)) % 100).to("pjrt")  # each has its own sizes
    if how == "strict":
        with torch_pjrt.strict_mode():
            (x * 2).cpu()
    elif how == "eagerly":
        with torch_pjrt.eager_mode():
            x * 2
    else:
        _C.set_compile_policy(how)
        (x * 2).cpu()
    assert counts() == (0, 1)


@pytest.mark.host_memory
def test_never() -> None:
    x = torch.randn(2001, 2001).to("pjrt")
    _C.set_compile_policy("never")
    (x @ x).cpu()
    assert counts() == (1, 0)


@pytest.mark.host_memory
def test_what_no_program_would_save_is_interpreted_for_good() -> None:
    """Programs take as long for convolutions, and at best a little less for the sum."""
    x, weight = torch.randn(8, 32, 48, 48).to("pjrt"), torch.randn(32, 32, 3, 3).to("pjrt")
    with torch_pjrt.explain() as report:
        for _ in range(40):
            F.conv2d(x, weight).sum().item()
    assert counts() == (40, 0)
    words = [graph.interpreted.split() for graph in report.graphs]  # "1 interpreted", or "1 of 25465 interpreted"
    assert [int(word[0]) for word in words] == list(range(1, 41))
    assert all(int(word[2]) > 10_000 for word in words if word[1] == "of")


@pytest.mark.host_memory
def test_explain_reports_it() -> None:
    x = torch.randn(5, 19).to("pjrt")
    with torch_pjrt.explain() as report:
        for _ in range(2):
            chain(x).cpu()
    first, second = report.graphs
    assert first.source == second.source == "calls"
    assert first.graph == second.graph
    assert first.interpreted.startswith("1 of ")
    assert second.interpreted.startswith("2 of ")
    assert "2 interpreted" in str(report)


def attention(**how: Any) -> Callable[[], torch.Tensor]:
    def run() -> torch.Tensor:
        q = torch.linspace(-1, 1, 2 * 4 * 6 * 8).reshape(2, 4, 6, 8).to("pjrt").requires_grad_()
        k = q.detach().flip(2)[:, : 2 if how.get("enable_gqa") else 4].requires_grad_()
        y = F.scaled_dot_product_attention(q, k, k.cos(), **how)
        gradients = torch.autograd.grad(y.square().sum(), [q, k])
        return torch.cat([t.flatten() for t in (y, *gradients)])

    return run


def mask() -> torch.Tensor:
    return torch.ones(6, 6, dtype=torch.bool).tril(-1).to("pjrt")  # masks its first row completely


def cell(module: torch.nn.Module) -> torch.Tensor:
    """Returns the module's result after two steps, and its gradients."""
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter) / (i + 1))
    module = module.to("pjrt")
    x = torch.linspace(-1, 1, 20, device="pjrt").view(4, 5)
    h = module(x, module(x))
    h = h if isinstance(h, torch.Tensor) else torch.cat(h)
    gradients = torch.autograd.grad(h.square().sum(), list(module.parameters()))
    return torch.cat([t.flatten() for t in (h, *gradients)])


def layers(kind: type[torch.nn.RNNBase], **how: Any) -> torch.Tensor:
    """Returns results and gradients of two bidirectional layers over a sequence that is a loop."""
    torch.manual_seed(0)
    module = kind(5, 3, num_layers=2, bidirectional=True, **how).to("pjrt")
    x = torch.linspace(-1, 1, 120).view(8, 3, 5).to("pjrt").requires_grad_()
    y, h = module(x)
    results = [y, *(h if isinstance(h, tuple) else (h,))]
    gradients = torch.autograd.grad(sum(t.sin().sum() for t in results), [x, *module.parameters()])
    return torch.cat([t.flatten() for t in (*results, *gradients)])


def ones() -> torch.Tensor:
    return torch.ones(5, 7, device="pjrt")


BY_HAND = {
    "dropout": lambda: F.dropout(ones(), 0.3),
    "dropout of all": lambda: F.dropout(ones(), 1.0),
    "dropout of halves": lambda: F.dropout(ones().bfloat16() * 3.14159, 0.5),
    "two dropouts": lambda: F.dropout(ones(), 0.3) + 2 * F.dropout(ones(), 0.4),
    "rand": lambda: torch.rand(9, device="pjrt"),
    "randn": lambda: torch.randn(9, device="pjrt"),
    "bernoulli": lambda: torch.bernoulli(ones() / 2),
    "normal_": lambda: ones().normal_(2, 3),
    "randint": lambda: torch.randint(0, 100, (20,), device="pjrt"),
    "attention": attention(),
    "attention, causal": attention(is_causal=True),
    "attention, grouped": attention(enable_gqa=True),
    "attention, dropout": attention(dropout_p=0.2),
    "attention, mask": lambda: attention(attn_mask=mask())(),
    "attention, numbers as mask": lambda: attention(attn_mask=mask() * -1e4)(),
    "a GRU's cell": lambda: cell(torch.nn.GRUCell(5, 3)),
    "an LSTM's cell": lambda: cell(torch.nn.LSTMCell(5, 3)),
    "an LSTM": lambda: layers(torch.nn.LSTM),
    "a GRU": lambda: layers(torch.nn.GRU),
    "a GRU, no bias": lambda: layers(torch.nn.GRU, bias=False),
    "an RNN": lambda: layers(torch.nn.RNN),
    "an RNN, relu": lambda: layers(torch.nn.RNN, nonlinearity="relu"),
    "linear, no bias": lambda: torch.autograd.grad(
        F.linear(ones(), w := torch.linspace(-1, 1, 21, device="pjrt").view(3, 7).requires_grad_()).square().sum(), w
    )[0],
    "linear": lambda: F.linear(ones().requires_grad_(), torch.randn(3, 7).to("pjrt"), torch.ones(3, device="pjrt")),
}


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.host_memory
@pytest.mark.sampled(2)
def test_what_has_no_kernel_of_pytorchs(name: str) -> None:
    results = []
    for policy in ("auto", "first"):  # not in the other order: the program would exist then
        _C.set_compile_policy(policy)
        torch.manual_seed(3)
        results.append(BY_HAND[name]().cpu())
    interpreted, compiled = counts()
    assert interpreted >= 1
    if "cell" in name or "linear" in name:
        assert compiled == 1  # "first"
    rounds = any(word in name for word in ("attention", "linear", "cell", "LSTM", "GRU", "RNN", "randn", "normal_"))
    close = {"rtol": 1e-5, "atol": 1e-5} if rounds else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(*results, **close)


@pytest.mark.parametrize("name", [name for i, name in enumerate(OPS) if i % 8 == 0])
def test_ops(name: str) -> None:
    op = opinfo.OPS[name]
    dtype = opinfo.usual_dtype(op)
    for sample in opinfo.samples(op, dtype, 2):
        if not opinfo.predictable(op, sample):
            continue
        given = opinfo.on_device(sample, name)
        expected = opinfo.on_the_cpu(op)(sample.input, *sample.args, **sample.kwargs)
        result = op(given.input, *given.args, **given.kwargs)
        opinfo.assert_same(opinfo.pytree.tree_map_only(torch.Tensor, lambda t: t.cpu(), result), expected)


@pytest.mark.host_memory
def test_what_is_written_through_views_and_in_place() -> None:
    def program(device: str) -> torch.Tensor:
        x = torch.arange(24.0).reshape(4, 6).to(device)
        y = x.t()[1:3]
        y.mul_(2)
        x[0] += y.sum()
        z = x.view(-1)[::5]
        z[1:].neg_()
        x.index_add_(0, torch.tensor([0, 2], device=device), torch.ones(2, 6, device=device))
        torch._foreach_add_([x, z], 1)
        return torch.cat([x.flatten(), y.flatten(), z])

    torch.testing.assert_close(program("pjrt").cpu(), program("cpu"))
    assert counts() == (1, 0)


def test_a_mistake_leaves_everything_as_it_was() -> None:
    x = torch.zeros(4).to("pjrt")
    x.add_(1)
    x.index_fill_(0, torch.tensor([1, 9]).to("pjrt"), 5.0)
    with pytest.raises(IndexError, match=r"out of (range|bounds)"):
        x.cpu()
    del x
    y = torch.ones(3).to("pjrt")
    assert (y + 1).sum().item() == 6


def address(x: torch.Tensor) -> int:
    torch_pjrt.sync()
    return int(np.from_dlpack(x.detach()).ctypes.data)


@pytest.mark.host_memory
def test_what_is_written_in_place_stays_where_it_is() -> None:
    net = torch.nn.Linear(100, 50).to("pjrt")
    optimizer = torch.optim.Adam(net.parameters())
    x = torch.ones(5, 100).to("pjrt")
    places = []
    for _ in range(3):
        optimizer.zero_grad()
        net(x).square().sum().backward()
        optimizer.step()
        places.append([address(p) for p in net.parameters()])
    assert places[0] == places[1] == places[2]
    assert counts()[0] >= 3


@pytest.mark.host_memory
def test_what_somebody_else_reads_is_not_written() -> None:
    x = torch.arange(1000.0).to("pjrt")
    torch_pjrt.sync()
    seen = np.from_dlpack(x.detach())
    before = x.clone()
    x.add_(1)
    torch_pjrt.sync()
    assert seen[5] == before[5].item() == 5
    assert x[5].item() == 6


def test_who_still_reads_is_waited_for() -> None:
    x = torch.ones(1 << 20).to("pjrt")
    for i in range(5):
        _C.set_compile_policy("first")
        slow = x
        for _ in range(20):
            slow = slow.sin().cos()
        read = slow * 0 + x
        torch_pjrt.sync()
        _C.set_compile_policy("auto")
        del slow
        x.add_(i + 1)  # another scalar each time, but the same graph
        assert x[-1].item() == 1 + (i + 1) * (i + 2) / 2
        assert read[-1].item() == read[0].item() == x[0].item() - i - 1


def test_a_mistake_after_a_write_leaves_it_as_it_was() -> None:
    x, index = torch.zeros(4).to("pjrt"), torch.tensor([9]).to("pjrt")
    torch_pjrt.sync()
    x.add_(1)
    bad = x.index_select(0, index)
    with pytest.raises(IndexError):
        bad.cpu()
    del bad
    assert x.tolist() == [1] * 4


def test_memory_goes_when_it_is_not_needed_any_more() -> None:
    """A chain of ten results of 4 MiB holds only one or two at a time."""
    gc.collect()
    x = torch.ones(1 << 20).to("pjrt")
    before = status("VmHWM")
    for _ in range(3):
        y = x
        for _ in range(40):
            y = y.sin()
        y.sum().item()
    assert status("VmHWM") - before < 80 << 20  # each iteration allocates 160 MiB


STEPS = 32  # its program takes over earlier
SCRIPT = """
import sys, torch, torch_pjrt
x = torch.linspace(-1, 1, 1500 * 1500).view(1500, 1500).to("pjrt")
for _ in range(int(sys.argv[1])):
    y = x
    for _ in range(8): y = (y * 1.01).neg()
    print(y.sum().item().hex())
metrics = torch_pjrt.metrics()
print(metrics["graphs_interpreted"], metrics["graphs_compiled"], metrics["graphs_loaded_from_disk"])
"""


@pytest.mark.host_memory
def test_the_same_script_gives_the_same_bits(server: fresh.Server, tmp_path: Path) -> None:
    """Starts from cold caches with a background compile: the step of its tier-up doesn't depend on when the compile
    ends."""
    environment = {"TORCH_PJRT_COMPILE": "auto", "TORCH_PJRT_CACHE": "0"}
    a, b = server.run(*(fresh.Job(SCRIPT, (STEPS,), environment) for _ in range(2)))
    assert a.out == b.out, a.err
    interpreted, compiled, _ = map(int, a.out.splitlines()[-1].split())
    assert 2 < interpreted < STEPS
    assert compiled == 1


def test_a_later_process_finds_it_amortized(server: fresh.Server, tmp_path: Path) -> None:
    environment = {"TORCH_PJRT_COMPILE": "auto", "TORCH_PJRT_CACHE": "1", "TORCH_PJRT_CACHE_DIR": str(tmp_path / "c")}
    (first,) = server.run(fresh.Job(SCRIPT, (STEPS,), environment))
    # If this process awaits the program before the background compile ends, the background thread may store it on disk
    # first, and the process loads it from there.
    assert sorted(first.out.splitlines()[-1].split()[1:]) == ["0", "1"], first.err
    (second,) = server.run(fresh.Job(SCRIPT, (3,), environment))
    assert second.out.splitlines()[-1] == "0 0 1", second.err


@pytest.mark.host_memory
def test_a_process_may_end_while_it_compiles() -> None:
    environment = {**os.environ, "TORCH_PJRT_COMPILE": "auto", "TORCH_PJRT_CACHE": "0", "OMP_NUM_THREADS": "1"}
    script = SCRIPT.split("metrics =")[0] + "print('over', torch_pjrt.metrics()['graphs_compiled'], flush=True)"
    done = subprocess.run(
        [sys.executable, "-c", script, "8"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "over 0"


def test_an_unknown_policy(server: fresh.Server) -> None:
    code = (
        "import torch, torch_pjrt\ntry: (torch.ones(2).to('pjrt') + 1).cpu()\nexcept ValueError as error: print(error)"
    )
    (done,) = server.run(fresh.Job(code, environment={"TORCH_PJRT_COMPILE": "now"}))
    assert "TORCH_PJRT_COMPILE=now: it is 'auto', 'first' or 'never'" in done.out


@pytest.mark.host_memory
def test_a_compile_that_fails_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreted runs go on; the run that was to use the program raises the error and changes nothing."""
    monkeypatch.setenv("TORCH_PJRT_XLA_OPTIONS", "no_such_option=1")
    x = torch.randn(1590, 1390).to("pjrt")
    expected = chain(x.cpu())
    runs = 0
    with pytest.raises(RuntimeError, match="no_such_option"):  # noqa: PT012
        for _ in range(20):
            y = chain(x)
            torch.testing.assert_close(y.cpu(), expected, rtol=1e-3, atol=1e-3)
            runs += 1
    assert 1 <= runs < 20
    monkeypatch.delenv("TORCH_PJRT_XLA_OPTIONS")
    torch.testing.assert_close(y.cpu(), expected, rtol=1e-3, atol=1e-3)
    assert counts() == (runs, 1)


LOADED = """
import threading, time
def load():
    while True:
        sum(range(10000))
for _ in range(2):
    threading.Thread(target=load, daemon=True).start()
"""


def test_a_busy_machine_changes_no_bit(server: fresh.Server) -> None:
    environment = {"TORCH_PJRT_COMPILE": "auto", "TORCH_PJRT_CACHE": "0"}
    quiet, busy = server.run(
        fresh.Job(SCRIPT, (STEPS,), environment), fresh.Job(LOADED + SCRIPT, (STEPS,), environment)
    )
    assert quiet.out.splitlines()[:-1] == busy.out.splitlines()[:-1], busy.err
    assert quiet.out.splitlines()[-1].split()[0] == busy.out.splitlines()[-1].split()[0]


@pytest.mark.host_memory
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
def test_memory_that_is_filled_at_once_is_not_cleared_before(dtype: torch.dtype) -> None:
    """Memory that is read before it is filled is zero."""
    for _ in range(3):
        torch.full((999,), 7.0).to("pjrt")  # leaves nonzero memory behind
        x = torch.empty(999, dtype=dtype, device="pjrt")
        before, view = x + 0 if dtype != torch.bool else ~x, x[3:]
        x.fill_(1)
        view[:2].zero_()
        y = torch.empty(999, dtype=dtype, device="pjrt").zero_()
        z = torch.empty(999, dtype=dtype, device="pjrt")
        z[5:] = 1
        expected = torch.ones(999, dtype=dtype)
        expected[3:5] = 0
        assert torch.equal(x.cpu(), expected)
        assert bool((before.cpu() == (dtype == torch.bool)).all())
        assert not y.cpu().any()
        assert int(z.cpu().count_nonzero()) == 994
    assert counts()[1] == 0
