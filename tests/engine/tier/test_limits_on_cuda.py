"""Interpreted runs with PyTorch's CUDA kernels on several devices, in threads, and without memory, on an emulated
CUDA."""

from __future__ import annotations

import pytest

from tests.emulated_cuda import Run


@pytest.fixture
def run(run_interpreted_on_cuda: Run) -> Run:
    return run_interpreted_on_cuda


# --- devices, threads and settings -----------------------------------------------------------------------------------


def test_another_device_than_the_current_one(run: Run) -> None:
    """Its own streams are ordered, whichever device is current, and the current device stays."""
    run(
        """
    ORDER = ("kernel", "record", "block", "view", "results", "execute")

    def in_order():
        return [line for line in log() if line.split()[0] in ORDER]

    assert torch.pjrt.device_count() == 2
    log()
    x = torch.arange(3.0).to("pjrt:1")
    y = x * 2
    torch_pjrt.sync()
    assert in_order() == ["results on 11", "kernel 11", "record 11", "record 11", "block 2000", "view 2000"]
    with torch.Stream(stream_id=0x21, device_index=1, device_type=1):
        z = y + 1
        torch_pjrt.sync()
    calls = in_order()
    assert calls[:2] == ["results on 21", "kernel 21"] and calls[-2:] == ["record 21", "block 11"], calls
    draws = torch.rand(4, device="pjrt:1") + z.sum()  # a single-op program between kernels
    torch_pjrt.sync()
    calls = in_order()
    assert "execute 0" in calls and not any(line.split()[-1] in ("10", "1000") for line in calls), calls
    assert z.tolist() == [1, 3, 5] and draws.device.index == 1 and (draws.cpu() >= 9).all()
    assert (torch.ones(3, device="pjrt:0") + z.to("pjrt:0")).tolist() == [2, 4, 6]
    """,
        EMULATED_CUDA_DEVICES="2",
        TORCH_PJRT_CPU_DEVICES="2",
    )


def test_a_device_that_pytorch_does_not_see(run: Run) -> None:
    run(
        """
    x = torch.arange(3.0).to("pjrt:1")
    assert (x * 2).tolist() == [0, 2, 4]
    calls = log()
    assert not any(line.split()[-1] in ("11", "2000") for line in calls), calls
    """,
        TORCH_PJRT_CPU_DEVICES="2",
    )


def test_a_product_is_as_exact_as_it_was_asked_for_when_recorded(run: Run) -> None:
    """A kernel would use PyTorch's precision at the time of its run."""
    run("""
    x = made_by_kernels([1.0, 2, 3])

    def product():
        return x.view(1, 3) @ x.view(3, 1)

    assert product().item() == 14 and "kernel 10" in log() and counts() == (2, 0)
    result = product()
    torch.set_float32_matmul_precision("high")
    texts = []
    _C.set_program_listener(lambda _, text: texts.append(text))
    assert result.item() == 14
    assert len(texts) == 1 and "precision = [HIGHEST, HIGHEST]" in texts[0], texts
    log()
    assert product().item() == 14 and (x + 1).sum().item() == 9
    assert len(texts) == 1 and "kernel 10" in log()
    """)


def test_threads_with_streams_of_their_own(run: Run) -> None:
    """Each thread has its own tensors and reads shared ones, until one thread writes some of those."""
    run("""
    import threading

    shared = made_by_kernels([float(i) for i in range(64)])
    failed = []

    def work(number):
        try:
            with on_stream(0x40 + number) if number else on_stream(0x10):
                own, on_cpu = shared * number, torch.arange(64.0) * number
                for i in range(30):
                    own.add_(shared, alpha=i)
                    on_cpu.add_(torch.arange(64.0), alpha=i)
                    if i % 3 == number % 3:
                        torch_pjrt.sync()
                    own, on_cpu = own[1:].cumsum(0).div(8).flip(0).repeat(2)[:64], (
                        on_cpu[1:].cumsum(0).div(8).flip(0).repeat(2)[:64])
                    if i % 5 == 0:
                        torch.testing.assert_close(own.cpu(), on_cpu)
        except Exception as error:
            failed.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert shared.tolist() == list(range(64))
    """)


# --- memory ----------------------------------------------------------------------------------------------------------


def test_where_pytorch_lacks_memory_a_program_runs(run: Run) -> None:
    run(
        """
    x = made_by_kernels([1.0] * 8)
    for _ in range(3):
        large = x.expand(1000, 8) * 2  # 32,000 bytes, which the plugin has
        assert (large.sum() + 1).item() == 16001
        del large
        assert counts() == (1, 1), counts()
    assert (x + 1).sum().item() == 16 and counts() == (2, 1)
    """,
        EMULATED_CUDA_MEMORY="4000",
    )


def test_where_nobody_has_memory_the_line_is_reported(run: Run) -> None:
    run(
        """
    x = made_by_kernels([1.0] * 8)
    before = x + 1
    large = x.expand(1 << 45, 8) * 2
    for _ in range(2):
        try:
            large.sum().item()
        except torch.OutOfMemoryError as error:
            assert "pjrt out of memory" in str(error) and "[aten::mul.Tensor]" in str(error), error
            assert "program.py:" in str(error), error
        else:
            raise AssertionError("no error")
    del large
    assert before.tolist() == [2.0] * 8
    """,
        EMULATED_CUDA_MEMORY="4000",
    )


def test_memory_that_ends_after_a_write(run: Run) -> None:
    """Values written before the failure are lost, and the error says so."""
    run(
        """
    x, y = made_by_kernels([1.0] * 8), made_by_kernels([2.0] * 8)
    x.add_(1)
    large = x.expand(1000, 8) * 2
    try:
        large[0].tolist()
    except torch.OutOfMemoryError as error:
        assert "CUDA out of memory" in str(error) and "[aten::mul.Tensor]" in str(error), error
        assert "program.py:" in str(error) and "What they write in place has no value any more" in str(error), error
    else:
        assert counts()[1] == 1, "nothing was written before it was known"
    del large
    assert (y * 3).tolist() == [6.0] * 8
    """,
        EMULATED_CUDA_MEMORY="4000",
    )


def test_a_compiled_call_that_lacks_memory_tells_the_line(run: Run) -> None:
    run("""
    f = torch.compile(lambda x: (x[:, None] * torch.ones(1 << 45, device="cuda")).cumsum(0), backend="pjrt")
    x = torch.ones(8, device="cuda")
    try:
        f(x)
    except torch.OutOfMemoryError as error:
        assert "pjrt out of memory" in str(error) and "program.py:" in str(error), error
    else:
        raise AssertionError("no error")
    """)
