"""Ctrl-C while the device works: it arrives, and the process goes on."""

from __future__ import annotations

import textwrap

import pytest

from tests.interrupts import seconds_to_interrupts


@pytest.mark.compiled
def test_waiting_for_a_long_program() -> None:
    took = seconds_to_interrupts(
        """
        event = torch.pjrt.Event()
        waits = [lambda: x.cpu(), lambda: x[0, 0].item(), lambda: print(x), torch.pjrt.synchronize,
                 torch.accelerator.synchronize, event.synchronize]
        for wait in waits:
            x = work(2)
            event.record()
            interrupted(wait)
            assert (torch.ones(2) + 1).tolist() == [2, 2]
            y = torch.ones(2, device="pjrt") + 1
            assert y.tolist() == [2, 2]
        # The work went on, and its value can still be had.
        assert abs(x.mean().item() - 1) < 1e-5
        event.synchronize()
        print("usable")
        """,
        6,
    )
    assert max(took) < 1, "0.05 s on an idle machine"


# Some seconds of compiling. No part of the program repeats three times in a row, or it would become a short loop.
LONG_COMPILE = """
x = torch.ones(8, 8, device="pjrt")
torch_pjrt.sync(x)
y = x
for i in range(600):
    y = torch.softmax(y @ x, i.bit_count() % 2)
interrupted(lambda: y.cpu())
assert torch_pjrt._C.is_pending(y)
assert torch_pjrt.metrics()["graphs_compiled"] == 1
assert x.tolist()[0] == [1] * 8
"""


@pytest.mark.compiled
def test_compiling() -> None:
    program = """
    assert abs(y.cpu().sum().item() - 8) < 0.001  # goes on with the compile that was left
    print("usable")
    """
    took = seconds_to_interrupts(LONG_COMPILE + textwrap.dedent(program))
    assert max(took) < 1, "0.05 s on an idle machine"


@pytest.mark.compiled
def test_ending_the_process_while_it_compiles() -> None:
    took = seconds_to_interrupts(LONG_COMPILE + 'sys.stdout.write("usable\\n")')
    assert max(took) < 1


def test_recording() -> None:
    """Inside PyTorch's Python code for a Meta kernel or a decomposition, an interrupt is not taken for a refusal."""
    took = seconds_to_interrupts(
        """
        import torch_pjrt.decompositions

        def slow(*args):
            print("waiting", flush=True)
            time.sleep(10)

        torch_pjrt.decompositions.table.DECOMPOSITIONS["aten::glu_jvp"] = slow
        try:
            x = torch.ones(4, device="pjrt")
            torch.ops.aten.glu_jvp(x[:2], x, x, 0)
        except KeyboardInterrupt:
            print(time.time(), flush=True)
        else:
            sys.exit("it was not interrupted")
        assert torch_pjrt.metrics()["host_fallbacks"] == {}
        print("usable")
        """,
    )
    assert max(took) < 1, "0.05 s on an idle machine"


@pytest.mark.compiled
def test_a_handler_of_ones_own() -> None:
    took = seconds_to_interrupts(
        """
        import signal

        class Stop(Exception):
            pass

        def stop(*args):
            raise Stop

        signal.signal(signal.SIGINT, stop)
        x = work(2)
        print("waiting", flush=True)
        try:
            x.cpu()
        except Stop:
            print(time.time(), flush=True)
        assert (torch.ones(2, device="pjrt") + 1).tolist() == [2, 2]
        print("usable")
        """,
    )
    assert max(took) < 1


def test_a_graph_that_is_run_call_by_call() -> None:
    """The run ends between two calls, and pending work can be read again."""
    took = seconds_to_interrupts(
        """
        from torch_pjrt import _C
        x = torch.ones(800, 800, device="pjrt")  # what 50 ms of compiling pay for
        torch_pjrt.sync()
        y = x
        for digit in str(3**400):  # no two rounds alike, so that it is one graph
            y = (torch.abs, torch.relu)[int(digit) % 2](y @ x) / 800
        before = torch_pjrt.metrics()["graphs_interpreted"]
        interrupted(lambda: y.cpu())
        assert torch_pjrt.metrics()["graphs_interpreted"] == before + 1
        assert torch_pjrt.metrics()["graphs_compiled"] == 0
        assert _C.is_pending(y)
        _C.set_compile_policy("first")
        assert abs(y.mean().item() - 1) < 1e-3
        print("usable")
        """
    )
    assert max(took) < 1, "0.1 s on an idle machine"


def test_within_a_backward() -> None:
    """A backward runs in the main thread (Note [Backward]). A wait in it is interrupted; the next one is right."""
    took = seconds_to_interrupts(
        """
        class Waits(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                if heavy:
                    print("waiting", flush=True)
                    work(2).cpu()
                return gradient * 2

        x = torch.ones(3, device="pjrt", requires_grad=True)
        heavy = True
        try:
            Waits.apply(x).sum().backward()
        except KeyboardInterrupt:
            print(time.time(), flush=True)
        else:
            sys.exit("it was not interrupted")
        heavy = False
        assert x.grad is None
        assert torch._C._is_multithreading_enabled()
        Waits.apply(x).sum().backward()
        assert x.grad.tolist() == [2, 2, 2]
        print("usable")
        """,
    )
    assert max(took) < 1, "0.05 s on an idle machine"
