"""Errors that a user of torch.compile(backend="pjrt") sees."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import torch_pjrt
from tests import fresh

Script = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def script(server: fresh.Server, tmp_path: Path) -> Script:
    """Runs it as a file, from which Dynamo takes lines of code."""
    path = str(tmp_path / "script.py")
    return lambda source, **env: server.end(source, path, "ignore", **env)


def test_half_on_the_cpu_half_on_the_device() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3).to("pjrt"))
    with pytest.raises(Exception, match=r"cpu.*pjrt|pjrt.*cpu"):
        torch.compile(model, backend="pjrt")(torch.ones(2, 3))


def test_a_custom_op_without_meta() -> None:
    @torch.library.custom_op("tests_dynamo_errors::no_meta", mutates_args=())
    def no_meta(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def f(x: torch.Tensor) -> torch.Tensor:
        return no_meta(x * 2) * 3

    with pytest.raises(Exception, match=r"(?s)no fake impl registered.*register_fake.*test_errors.py"):
        torch.compile(f, backend="pjrt")(torch.ones(3))


def test_results_that_are_no_tensors() -> None:
    fast = torch.compile(lambda x: (x + 1, "text", 3, None, {"k": x * 2}), backend="pjrt", fullgraph=True)
    result = fast(torch.ones(2))
    assert result[1:4] == ("text", 3, None)
    torch.testing.assert_close(result[4]["k"], torch.full((2,), 2.0))


def test_no_tensor_at_all() -> None:
    before = torch_pjrt.metrics()["graphs_compiled"]
    assert torch.compile(lambda n: n * 2, backend="pjrt")(21) == 42
    assert torch_pjrt.metrics()["graphs_compiled"] == before


def test_grad_mode_changes_between_calls() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    fast = torch.compile(lambda x: (x * weight).sum(), backend="pjrt")
    with torch.no_grad():
        assert not fast(torch.ones(3)).requires_grad
    fast(torch.ones(3)).backward()
    torch.testing.assert_close(weight.grad, torch.ones(3))


def test_an_exception_in_a_hook() -> None:
    weight = torch.nn.Parameter(torch.ones(3))

    def hook(grad: torch.Tensor) -> None:
        raise RuntimeError("my hook broke")

    weight.register_hook(hook)
    fast = torch.compile(lambda x: (x * weight).sum(), backend="pjrt")
    for _ in range(2):  # and the next call is none the worse for it
        with pytest.raises(RuntimeError, match="my hook broke"):
            fast(torch.ones(3)).backward()


def test_a_tensor_of_another_device() -> None:
    with pytest.raises(
        Exception,
        match=r"compiles for tensors on 'cpu' and 'pjrt', and on 'cuda' with a plugin for it. An input is on 'meta'",
    ):
        torch.compile(lambda x: x + 1, backend="pjrt")(torch.ones(3, device="meta"))


def test_a_call_that_needs_more_memory_than_there_is(script: Script) -> None:
    ran = script("""
        import torch, torch_pjrt
        @torch.compile(backend="pjrt")
        def f(x):
            tall = x * 2
            return (tall @ tall.T) @ tall
        try: f(torch.ones(1 << 22, 1))
        except torch.OutOfMemoryError as error: print(error)
        print(f(torch.ones(2, 1)).tolist())
    """)
    assert ran.returncode == 0, ran.stderr
    assert "pjrt out of memory. Tried to allocate 64.00 TiB." in ran.stdout
    assert "The program's largest result, of 64.00 TiB, is that of [aten::mm] (first recorded at " in ran.stdout
    assert "script.py:6)" in ran.stdout
    assert "[[16.0], [16.0]]" in ran.stdout


def test_a_program_that_xla_refuses(script: Script) -> None:
    ran = script(
        """
        import torch
        def f(x):
            return x + 1
        try:
            torch.compile(f, backend="pjrt")(torch.ones(3))
        except Exception as error:
            print(error)
        torch._dynamo.reset()
        torch._dynamo.config.suppress_errors = True
        print("eager:", torch.compile(f, backend="pjrt")(torch.ones(3)))
        """,
        TORCH_PJRT_XLA_OPTIONS="xla_no_such_option=true",
    )
    assert "XLA refuses a graph of 1 ops, the last one [aten::add.Tensor] " in ran.stdout
    assert "script.py:4)" in ran.stdout
    assert "xla_no_such_option" in ran.stdout
    assert "eager: tensor([2., 2., 2.])" in ran.stdout


@pytest.mark.compiled
def test_a_lazy_graph_that_xla_refuses(script: Script) -> None:
    ran = script(
        """
        import torch
        x = torch.ones(3).to("pjrt")
        y = x.add_(1)
        try:
            y.cpu()
        except RuntimeError as error:
            print(error)
        import os
        del os.environ["TORCH_PJRT_XLA_OPTIONS"]
        print("then:", y.cpu(), (y + 1).sum().item())
        """,
        TORCH_PJRT_XLA_OPTIONS="xla_no_such_option=true",
    )
    assert "XLA refuses a graph of 1 ops, the last one [aten::add_.Tensor] " in ran.stdout
    assert "script.py:4)" in ran.stdout
    assert "Nothing was changed: tensors keep their pending values" in ran.stdout
    assert "then: tensor([2., 2., 2.]) 9.0" in ran.stdout


@pytest.mark.compiled
def test_malformed_xla_options(script: Script) -> None:
    ran = script("import torch; torch.ones(3, device='pjrt').cpu()", TORCH_PJRT_XLA_OPTIONS="nonsense")
    assert "TORCH_PJRT_XLA_OPTIONS: 'nonsense' is not name=value" in ran.stderr


def test_ctrl_c_while_compiling(script: Script) -> None:
    ran = script(
        """
        import os, signal, threading, torch
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs inherit that it is ignored
        def f(x):
            for i in range(40):
                x = torch.sort(x * (i + 1), dim=i % 2).values
            return x
        fast = torch.compile(f, backend="pjrt")
        from torch_pjrt import _C
        def interrupt(graph, text):
            threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        _C.set_program_listener(interrupt)
        try:
            fast(torch.ones(4, 4))
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted")
        _C.set_program_listener(None)
        torch._dynamo.reset()
        print("then:", torch.compile(lambda x: x + 1, backend="pjrt")(torch.ones(2)))
        """
    )
    assert "interrupted\n" in ran.stdout, ran.stderr
    assert "not interrupted" not in ran.stdout
    assert "then: tensor([2., 2.])" in ran.stdout


def test_a_program_that_fails_while_it_runs() -> None:
    """After an out-of-memory error, arguments are unchanged and the next call works."""

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return (x.sum() + y).expand(1 << 40).contiguous()

    x, y = torch.zeros(4), torch.ones(())
    fast = torch.compile(f, backend="pjrt")
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"RESOURCE_EXHAUSTED|[Oo]ut of memory|allocat"):
            fast(x, y)
    torch.testing.assert_close(torch.compile(lambda x: x * 2, backend="pjrt")(y), torch.full((), 2.0))
