"""The device and other processes: DataLoader workers, fork, spawn, queues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest
import torch

DEVICE = "pjrt"

FORKED = (
    "this process was forked from one in which the device \"pjrt\" was in use already, and can't use it: the plugin's "
    "threads were not forked with it. Start processes that use the device with "
    'torch.multiprocessing.get_context("spawn")'
)


def run(program: str, path: Path | None = None) -> str:
    """Runs a Python program in a process of its own; from a file if spawned processes must import it."""
    text = textwrap.dedent(program)
    command = ["-c", text]
    if path is not None:
        path.write_text(text)
        command = [str(path)]
    with subprocess.Popen([sys.executable, "-X", "faulthandler", *command], start_new_session=True, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:  # fmt: skip
        try:
            out, errors = process.communicate(timeout=200)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGABRT)  # faulthandler prints the stacks of it and its children
            out, errors = process.communicate(timeout=30)
    assert process.returncode == 0, out[-1000:] + errors[-6000:]
    return out + errors


def test_pin_memory_left_on() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0).reshape(8, 1), torch.arange(8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True)
        total = sum(x.to(DEVICE, non_blocking=True).sum().item() + y.to(DEVICE).sum().item() for x, y in loader)
        assert all(x.is_pinned() and y.is_pinned() for x, y in loader)
    assert total == 56


def test_tensors_say_that_they_were_pinned() -> None:
    plain = torch.ones(3)
    pinned = plain.pin_memory()
    made = torch.empty(2, 5, pin_memory=True)
    assert pinned.tolist() == [1, 1, 1]
    assert pinned.is_pinned()
    assert pinned[1:].is_pinned()
    assert made[1, 4].is_pinned()
    assert pinned.pin_memory() is pinned
    assert not plain.is_pinned()
    assert not torch.empty(0, pin_memory=True).is_pinned()
    assert not torch.ones(3, device=DEVICE).is_pinned()
    assert pinned.untyped_storage().is_pinned(DEVICE)
    del pinned, made
    assert not any(torch.empty(3).is_pinned() for _ in range(8))  # the memory's next owner did not pin it


@pytest.mark.parametrize("pin_memory", [False, True])
def test_forked_workers_while_the_client_runs(pin_memory: bool) -> None:
    program = f"""
    import warnings
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork", DeprecationWarning)
    import gc, torch
    x = torch.rand(300, 300, device="pjrt")
    held = [x]
    held.append(held)  # garbage for the workers to collect
    data = [torch.full((2,), float(i)) for i in range(16)]
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2, shuffle=True, pin_memory={pin_memory},
                                         multiprocessing_context="fork", worker_init_fn=lambda i: gc.collect())
    for epoch in range(2):
        total = 0
        for batch in loader:
            x = x @ x / 300
            total += batch.to("pjrt").sum().item()
        assert total == 240, total
    x.cpu()
    """
    run(program)


def test_use_after_fork() -> None:
    program = """
    import gc, os, torch, warnings
    warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork", DeprecationWarning)
    x = torch.ones(300, 300, device="pjrt")
    for _ in range(20): x = x @ x / 300
    torch.ones(3, device="pjrt").cpu()
    import torch_pjrt
    torch_pjrt.sync(x)  # runs while the child is made
    if child := os.fork():
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not torch.pjrt._is_in_bad_fork()
        x.cpu()
    else:
        assert torch.pjrt._is_in_bad_fork()
        assert torch.pjrt.device_count() == 1
        torch.manual_seed(0)
        uses = [lambda: x.cpu(), lambda: x[0, 0].item(), lambda: print(x),
                lambda: torch.ones(2, device="pjrt"), lambda: torch.ones(2).to("pjrt"),
                torch.pjrt.synchronize, torch_pjrt.sync, torch.pjrt.get_device_name,
                lambda: torch.pjrt.Event().record(), torch_pjrt.init]
        for i, use in enumerate(uses):
            try:
                use()
            except RuntimeError as error:
                print(str(error).split(chr(10))[0])
            else:
                raise AssertionError(i)
        assert (torch.ones(2) + 1).tolist() == [2, 2]
        del x
        gc.collect()
    """
    said = run(program).splitlines()
    assert len(said) == 10
    assert all(FORKED in line for line in said), said


def test_a_process_that_is_forked_first_has_a_client_of_its_own() -> None:
    program = """
    import os, torch
    x = torch.ones(3, device="pjrt") + 1
    child = os.fork()
    assert not torch.pjrt._is_in_bad_fork()
    assert x.tolist() == [2, 2, 2]
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
    run(program)


def test_datasets_on_the_device_say_what_to_do() -> None:
    program = """
    import torch
    data = torch.arange(8.0).to("pjrt")
    try:
        list(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), num_workers=1,
                                         multiprocessing_context="fork"))
    except RuntimeError as error:
        print(error)
    """
    said = run(program)
    assert FORKED in said
    assert 'multiprocessing_context="spawn"' in said


def test_spawned_processes_and_queues(tmp_path: Path) -> None:
    program = """
    import torch
    import torch.multiprocessing as mp

    def work(x, parameter, requests, answers):
        assert x.is_pjrt and isinstance(parameter, torch.nn.Parameter)
        x.add_(1)  # a tensor of its own
        answers.put((x * 2, parameter))
        y = requests.get()
        answers.put((y.is_pjrt, y.requires_grad, y.tolist()))
        requests.get()

    if __name__ == "__main__":
        context = mp.get_context("spawn")
        requests, answers = context.Queue(), context.Queue()
        x, parameter = torch.ones(3, device="pjrt"), torch.nn.Parameter(torch.ones(2, device="pjrt"))
        process = context.Process(target=work, args=(x, parameter, requests, answers))
        process.start()
        doubled, back = answers.get(timeout=100)
        assert doubled.is_pjrt and doubled.tolist() == [4, 4, 4], doubled
        assert isinstance(back, torch.nn.Parameter) and back.requires_grad
        assert x.tolist() == [1, 1, 1]
        requests.put(torch.zeros(2, device="pjrt", requires_grad=True)[None].detach().requires_grad_())
        assert answers.get(timeout=100) == (True, True, [[0, 0]])
        requests.put(None)
        process.join(100)
        assert process.exitcode == 0
    """
    run(program, tmp_path / "program.py")


def test_what_can_not_be_sent_or_shared() -> None:
    from multiprocessing.reduction import ForkingPickler

    x = torch.ones(3, device=DEVICE)
    assert not x.is_shared()
    uses = [
        x.share_memory_,
        x.untyped_storage().share_memory_,
        torch.nn.Linear(2, 2, device=DEVICE).share_memory,
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match=r"can't be shared between processes; share tensor.cpu\(\), or send"):
            use()
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor which requires_grad"):
        ForkingPickler.dumps(x.requires_grad_() * 2)
    host = torch.ones(3)
    host.share_memory_()
    assert host.is_shared()
