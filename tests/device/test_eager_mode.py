"""torch_pjrt.eager_mode: the same results, one call at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
import torch

import torch_pjrt

DEVICE = "pjrt"


def work() -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Dropout(0.3))
    model.to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = torch.rand(3, 4, device=DEVICE)
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(x)[:, ::2].pow(2).sum()
        loss.backward()
        optimizer.step()
    y = x.t().contiguous()
    y[1] = 5
    return [*model.parameters(), loss.detach(), y, x.cumsum(0).sort().values]


def test_the_same_results() -> None:
    lazy = [t.cpu() for t in work()]
    with torch_pjrt.eager_mode():
        torch_pjrt.reset_metrics()
        eager = work()
        for t in eager:
            assert not torch_pjrt._C.is_pending(t)
        metrics = torch_pjrt.metrics()
        assert metrics["executions"] > 50
        assert metrics["host_fallbacks"] == {}
        torch_pjrt.reset_metrics()
        work()
        assert torch_pjrt.metrics()["graphs_compiled"] <= 8  # numbers that change
        torch_pjrt.reset_metrics()
        work()
        assert torch_pjrt.metrics()["graphs_compiled"] == 0  # the same caches
    for a, b in zip(lazy, eager, strict=True):
        torch.testing.assert_close(a, b.cpu(), rtol=1e-4, atol=1e-5)


def test_it_ends() -> None:
    x = torch.ones(3, device=DEVICE)
    with torch_pjrt.eager_mode():
        assert not torch_pjrt._C.is_pending(x + 1)
        with torch_pjrt.eager_mode(False):
            assert torch_pjrt._C.is_pending(x + 1)
        assert not torch_pjrt._C.is_pending(x + 1)
        assert not torch_pjrt._C.is_pending(x.t().clone())
    assert torch_pjrt._C.is_pending(x + 1)
    torch_pjrt.eager_mode()
    try:
        assert not torch_pjrt._C.is_pending(x + 1)
    finally:
        torch_pjrt.eager_mode(False)
    assert torch_pjrt._C.is_pending(x + 1)


def test_what_was_pending_stays_so() -> None:
    x = torch.ones(3, device=DEVICE) + 1
    with torch_pjrt.eager_mode():
        torch.zeros(2, device=DEVICE)
        assert torch_pjrt._C.is_pending(x)
        y = x + 1
        assert not torch_pjrt._C.is_pending(x)
    assert y.tolist() == [3, 3, 3]


def test_programs_can_still_be_looked_at() -> None:
    lazy = torch_pjrt.to_stablehlo(lambda x: x.sin() + 1, torch.ones(3))
    with torch_pjrt.eager_mode():
        assert torch_pjrt.to_stablehlo(lambda x: x.sin() + 1, torch.ones(3)).count("sine") == lazy.count("sine") == 1
        assert torch_pjrt._C.eager()


def test_a_failure_is_raised_at_its_line() -> None:
    program = """
    import torch
    column = torch.ones(1 << 22, 1, device="pjrt")
    row = torch.ones(1, 1 << 22, device="pjrt")
    try:
        huge = column @ row  # more memory than there is
        print("recorded")
    except RuntimeError as error:
        print(str(error))
        line = error.__traceback__.tb_lineno
        print("raised at", open(__file__).read().splitlines()[line - 1] if "__file__" in globals() else line)
    print((torch.ones(2, device="pjrt") + 1).tolist())
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    for eager, said in (("1", "raised at 6"), ("0", "recorded")):
        result = subprocess.run(
            command, env={**os.environ, "TORCH_PJRT_EAGER": eager}, capture_output=True, text=True, timeout=200
        )
        assert result.returncode == 0, result.stderr[-2000:]
        assert said in result.stdout
        assert result.stdout.endswith("[2.0, 2.0]\n")
        assert ("pjrt out of memory" in result.stdout) == (eager == "1")
        assert ("is that of [aten::mm]" in result.stdout) == (eager == "1")


@pytest.mark.parametrize("eager", [False, True])
def test_autograd_modes_and_transforms(eager: bool) -> None:
    with torch_pjrt.eager_mode(eager):
        x = torch.arange(3.0, device=DEVICE, requires_grad=True)
        jacobian = torch.func.jacrev(lambda v: v.sin().cumsum(0))(x.detach())
        (gradient,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(gradient.sum(), x)
        batched = torch.func.vmap(torch.dot, (0, 0))(torch.ones(2, 3, device=DEVICE), torch.ones(2, 3, device=DEVICE))
    torch.testing.assert_close(jacobian.cpu(), torch.arange(3.0).cos().expand(3, 3).tril())
    assert second.tolist() == [0, 6, 12]
    assert batched.tolist() == [3, 3]


def test_errors_keep_their_class() -> None:
    with torch_pjrt.eager_mode():
        x = torch.ones(3, 3, device=DEVICE)
        with pytest.raises(IndexError, match="index 7"):
            x[torch.tensor([7], device=DEVICE)]
        with pytest.raises(torch.linalg.LinAlgError, match="singular"):
            torch.linalg.inv(x)
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            torch.nn.functional.binary_cross_entropy(x + 5, x)
        assert x.sum().item() == 9
