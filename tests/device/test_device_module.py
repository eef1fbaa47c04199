"""torch.pjrt and torch.accelerator: devices, generators, streams, events, as users of torch.cuda know them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import torch_pjrt
from tests.fresh import Server

DEVICE = "pjrt"


Run = Callable[..., str]


@pytest.fixture
def run(server: Server) -> Run:
    def run(program: str, **environment: str) -> str:
        end = server.end(program, warnings="error", **environment)
        assert end.returncode == 0, end.stderr[-3000:]
        return end.stdout

    return run


def long_work(size: int = 700, steps: int = 12) -> torch.Tensor:
    """Returns a recorded chain of matrix products that takes some tenths of a second."""
    x = torch.rand(size, size, device=DEVICE)
    for _ in range(steps):
        x = x @ x / size
    return x


# --- devices ----------------------------------------------------------------------------------------------------------


def test_devices() -> None:
    assert torch.pjrt.is_available()
    assert torch.pjrt.device_count() == 1
    assert torch.pjrt.current_device() == 0
    torch.pjrt.set_device(0)
    torch.pjrt.set_device("pjrt:0")
    torch.pjrt.set_device(torch.device(DEVICE))
    torch.pjrt.set_device(-1)
    with torch.pjrt.device(0), torch.pjrt.device("pjrt:0"), torch.pjrt.device(None), torch.pjrt.device(-1):
        assert torch.ones(1, device=DEVICE).device == torch.device("pjrt:0")
    with torch.pjrt.device_of(torch.ones(1, device=DEVICE)), torch.pjrt.device_of(torch.ones(1)):
        assert torch.pjrt.current_device() == 0
    torch.pjrt.init()
    assert torch.pjrt.is_initialized()
    assert torch.get_device_module(DEVICE) is torch.pjrt
    assert not torch.pjrt._is_in_bad_fork()


@pytest.mark.host_memory
def test_several_devices(run: Run) -> None:
    program = """
    import torch
    p = torch.pjrt
    assert p.device_count() == 2 == torch.accelerator.device_count()
    with p.device(1):
        assert p.current_device() == 1 == torch.accelerator.current_device_index()
        x = torch.ones(1000, device="pjrt")
        assert x.device == torch.device("pjrt:1") == torch.rand(1).pjrt().device
        assert p.current_stream().device == x.device
    with p.device_of(x):
        assert p.current_device() == 1
    with p.stream(p.Stream(1)):
        assert p.current_device() == 1
    assert p.current_device() == 0
    x.cpu()
    assert p.memory_allocated(1) == 4000 and p.memory_allocated() == p.memory_allocated("pjrt:0") < 4000
    y = x.to("pjrt:0")
    y.cpu()
    assert p.memory_allocated(0) >= 4000
    p.manual_seed_all(5)
    a, b = torch.rand(3, device="pjrt:0"), torch.rand(3, device="pjrt:1")
    assert a.tolist() == b.tolist()
    states = p.get_rng_state_all()
    assert len(states) == 2
    c = [torch.rand(3, device=f"pjrt:{i}").tolist() for i in (0, 1)]
    p.set_rng_state_all(states)
    assert c == [torch.rand(3, device=f"pjrt:{i}").tolist() for i in (0, 1)]
    p.seed_all()
    assert p.initial_seed() == p.default_generator(1).initial_seed()
    first, second = p.Event(), p.Event()
    (x + 1).sum()
    first.record(p.current_stream(1))
    first.synchronize()
    assert first.query()
    p.synchronize(1)
    """
    run(program, TORCH_PJRT_CPU_DEVICES="2")


@pytest.mark.host_memory
def test_each_process_of_torchrun_has_the_device_of_its_number(run: Run) -> None:
    program = (
        "import torch; x = torch.ones(2, device='pjrt:1'); assert torch.pjrt.device_count() == {} and x.sum() == 2"
    )
    run(program.format(3), LOCAL_WORLD_SIZE="3", LOCAL_RANK="1")
    run(program.format(2), LOCAL_WORLD_SIZE="3", LOCAL_RANK="1", TORCH_PJRT_CPU_DEVICES="2")


@pytest.mark.host_memory
def test_options_of_the_client(run: Run) -> None:
    run("import torch; assert torch.pjrt.device_count() == 3", TORCH_PJRT_CLIENT_OPTIONS="cpu_device_count=3")
    program = """
    import torch
    try:
        torch.ones(2, device="pjrt").cpu()
    except (RuntimeError, ValueError) as error:
        assert "TORCH_PJRT_CLIENT_OPTIONS: 'half' is not name=value" in str(error), error
    else:
        raise AssertionError
    """
    run(program, TORCH_PJRT_CLIENT_OPTIONS="half")


@pytest.mark.host_memory
def test_names_and_properties() -> None:
    assert torch.pjrt.get_device_name() == torch.pjrt.get_device_name("pjrt:0") == "cpu"
    properties = torch.pjrt.get_device_properties(0)
    assert properties.name == "cpu" == properties.platform
    assert properties.plugin == Path(os.environ.get("TORCH_PJRT_PLUGIN", "xla_cpu_pjrt")).stem
    assert properties.is_host_memory
    assert properties.total_memory == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert torch.pjrt.get_device_capability() == (0, 0)
    for use in (torch.pjrt.get_device_name, torch.pjrt.get_device_properties, torch.pjrt.memory_stats):
        with pytest.raises(ValueError, match="expected a pjrt device, got cpu"):
            use("cpu")


def test_every_function_of_a_device_says_that_there_is_none() -> None:
    pjrt = torch.pjrt
    message = r"pjrt: invalid device ordinal 9: the plugin has 1 device; use pjrt:0$"
    for of_device in (
        pjrt.get_device_name,
        pjrt.get_device_capability,
        pjrt.get_device_properties,
        pjrt.synchronize,
        pjrt.memory_allocated,
        pjrt.max_memory_allocated,
        pjrt.memory_reserved,
        pjrt.max_memory_reserved,
        pjrt.memory_stats,
        pjrt.mem_get_info,
        pjrt.reset_peak_memory_stats,
        pjrt.reset_accumulated_memory_stats,
        pjrt.Stream,
        pjrt.current_stream,
        pjrt.default_stream,
        pjrt.default_generator,
        pjrt.get_rng_state,
        lambda device: pjrt.set_rng_state(pjrt.get_rng_state(), device),
    ):
        for named in (9, "pjrt:9", torch.device("pjrt", 9)):
            with pytest.raises(RuntimeError, match=message):
                of_device(named)
        for beyond in (256, -1):  # PyTorch keeps an index in a byte
            with pytest.raises(RuntimeError, match=f"invalid device ordinal {beyond}: the plugin has 1 device"):
                of_device(beyond)
    with pytest.raises(RuntimeError, match="invalid device ordinal 256"):
        pjrt.set_device(256)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.host_memory
def test_a_backward_on_the_cpu_starts_no_client(run: Run, count: int) -> None:
    """Autograd then asks for the devices of all backends, and makes a thread for each."""
    program = f"""
import torch
from torch_pjrt import _C

def gradient(device):
    x = torch.ones(3, device=device, requires_grad=True)
    (x * 2).sum().backward()
    return x.grad.tolist()

assert gradient("cpu") == [2, 2, 2]
assert {count} > 1 or not _C.is_initialized()
assert gradient("pjrt:{count - 1}") == [2, 2, 2]
"""
    run(program, TORCH_PJRT_CPU_DEVICES=str(count))


@pytest.mark.host_memory
def test_the_accelerator() -> None:
    accelerator = torch.accelerator
    assert accelerator.current_accelerator() == torch.device(DEVICE)
    assert accelerator.is_available()
    assert accelerator.device_count() == 1
    assert accelerator.current_device_index() == 0
    accelerator.set_device_index(0)
    with accelerator.device_index(0):
        assert torch.ones(1, device=accelerator.current_accelerator()).device.type == DEVICE
    dtypes = accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.int64, torch.complex64, torch.bool} <= dtypes
    assert not {torch.complex32, torch.quint8} & dtypes
    for dtype in dtypes:
        assert torch.zeros(2, dtype=dtype, device=DEVICE).cpu().dtype == dtype
    stream = accelerator.current_stream()
    accelerator.set_stream(stream)
    x = torch.ones(3, device=DEVICE) + 1
    assert torch_pjrt._C.is_pending(x)
    accelerator.synchronize()
    assert not torch_pjrt._C.is_pending(x)
    assert accelerator.memory_allocated() == torch.pjrt.memory_allocated() > 0
    accelerator.empty_cache()
    if hasattr(accelerator, "empty_host_cache"):  # from torch 2.13 on
        torch.ones(3).pin_memory()
        accelerator.empty_host_cache()
    free, total = accelerator.get_memory_info()
    assert 0 < free < total


def test_methods() -> None:
    x = torch.ones(3)
    assert not x.is_pjrt
    y = x.pjrt()
    assert y.is_pjrt
    assert y.pjrt() is y
    assert y.device == torch.device("pjrt:0") == x.pjrt(0).device
    assert y.untyped_storage().is_pjrt
    assert not x.untyped_storage().is_pjrt
    module = torch.nn.Linear(2, 2).pjrt()
    assert module.weight.is_pjrt
    assert module.cpu().weight.device.type == "cpu"
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])
    assert packed.to(DEVICE).is_pjrt


@pytest.mark.host_memory
def test_no_plugin(run: Run) -> None:
    program = """
    import torch, torch_pjrt.plugins as plugins
    plugins._announced = lambda: iter(())
    assert not torch.pjrt.is_available() and torch.pjrt.device_count() == 0
    assert not torch.accelerator.is_available()
    assert torch.pjrt.memory_allocated() == 0 and torch.pjrt.memory_stats() == {}
    torch.manual_seed(0)
    try:
        torch.pjrt.init()
    except RuntimeError as error:
        assert "pip install xla-cpu-pjrt" in str(error)
    else:
        raise AssertionError
    """
    run(program, TORCH_PJRT_PLUGIN="")


def test_who_asks_whether_there_is_a_device_starts_none(run: Run) -> None:
    program = """
    import torch
    from pathlib import Path
    compiled = torch.compile(torch.nn.Linear(3, 3), backend="aot_eager")  # PyTorch asks for every backend
    compiled(torch.ones(2, 3)).sum().backward()
    assert torch.pjrt.is_available() and torch.accelerator.is_available()
    assert not torch.pjrt.is_initialized() and "xla_cpu_pjrt" not in Path("/proc/self/maps").read_text()
    """
    run(program)


@pytest.mark.host_memory
def test_a_plugin_that_can_not_be_loaded(run: Run, tmp_path: Path) -> None:
    plugin = tmp_path / "my_cpu.so"
    plugin.write_bytes(b"GetPjrtApi")
    program = """
    import torch
    assert torch.pjrt.is_available()  # it is there
    try:
        torch.ones(3, device="pjrt").cpu()
    except RuntimeError as error:
        assert "no PJRT plugin could be started" in str(error) and "my_cpu.so" in str(error)
    else:
        raise AssertionError
    assert not torch.pjrt.is_available() and not torch.accelerator.is_available()
    """
    run(program, TORCH_PJRT_PLUGIN=str(plugin))


# --- streams and events -----------------------------------------------------------------------------------------------


def test_streams_are_the_queue() -> None:
    stream = torch.pjrt.Stream()
    assert stream == torch.pjrt.current_stream() == torch.pjrt.default_stream(0) == torch.Stream(device=DEVICE)
    assert stream.device == torch.device("pjrt:0")
    x = torch.ones(3, device=DEVICE)
    with torch.pjrt.stream(stream), stream, torch.pjrt.stream(None):
        y = x + 1
    stream.wait_stream(torch.pjrt.current_stream())
    stream.wait_event(stream.record_event())
    y.record_stream(stream)
    torch.pjrt.set_stream(stream)
    assert y.tolist() == [2, 2, 2]


@pytest.mark.compiled
@pytest.mark.parametrize(
    "wait",
    [
        lambda event: event.synchronize(),
        lambda event: torch.pjrt.synchronize(),
        lambda event: torch.accelerator.synchronize(),
        lambda event: torch.pjrt.current_stream().synchronize(),
    ],
)
@pytest.mark.host_memory
def test_events_wait_for_what_was_recorded_before(wait: Callable[[torch.Event], None]) -> None:
    torch.pjrt.synchronize()
    start, end = torch.pjrt.Event(enable_timing=True), torch.pjrt.Event(enable_timing=True)
    start.record()
    x = long_work()
    end.record()
    assert not torch_pjrt._C.is_pending(x)
    assert not end.query()
    with pytest.raises(RuntimeError, match="must be completed before calculating elapsed time"):
        start.elapsed_time(end)
    wait(end)
    assert end.query()
    assert start.elapsed_time(end) > 10


@pytest.mark.parametrize("wait", [torch.Event.synchronize, torch.Event.query], ids=["synchronize", "query"])
def test_recording_an_event_starts_nothing(wait: Callable[[torch.Event], None]) -> None:
    before, stream = torch.ones(3).to(DEVICE) * 2, torch.pjrt.current_stream()
    event, other = torch.pjrt.Event(), torch.Event(DEVICE)
    torch_pjrt.reset_metrics()
    event.record()
    after = torch.ones(3).to(DEVICE) * 3  # unrelated to the event
    other.record(stream)
    stream.wait_event(stream.record_event())
    event.wait(stream)
    assert torch_pjrt._C.is_pending(before)
    assert torch_pjrt.metrics()["syncs"] == 0
    wait(event)  # a query starts the work recorded before
    assert not torch_pjrt._C.is_pending(before)
    assert torch_pjrt._C.is_pending(after)
    wait(other)
    assert not torch_pjrt._C.is_pending(after)
    other.synchronize()
    assert other.query()
    assert event.query()


def test_an_event_is_recorded_again() -> None:
    event = torch.pjrt.Event()
    for number in range(3):
        x = torch.ones(3).to(DEVICE) * number
        event.record()
        assert torch_pjrt._C.is_pending(x)
        event.synchronize()
        assert not torch_pjrt._C.is_pending(x)
        assert event.query()


def test_an_event_that_takes_the_time_starts_what_is_before_it() -> None:
    """Otherwise work before the event would run together with the timed work."""
    x = torch.ones(3).to(DEVICE) * 2
    torch.pjrt.Event(enable_timing=True).record()
    assert not torch_pjrt._C.is_pending(x)


def test_events_and_threads() -> None:
    event, x = torch.pjrt.Event(), long_work(300)
    event.record()
    threads = [threading.Thread(target=event.synchronize) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert event.query()
    assert not torch_pjrt._C.is_pending(x)


@pytest.mark.compiled  # a program is started; calls are done when they return
def test_a_stream_is_done_when_its_work_is() -> None:
    stream = torch.pjrt.current_stream()
    torch.pjrt.synchronize()
    assert stream.query()
    x = long_work()
    assert not stream.query()  # a query starts recorded work
    assert not torch_pjrt._C.is_pending(x)
    stream.synchronize()
    assert stream.query()


@pytest.mark.compiled  # a program is started; calls are done when they return
def test_results_that_nobody_holds_are_waited_for() -> None:
    torch.pjrt.synchronize()
    torch_pjrt.sync(long_work())
    assert not torch.pjrt.current_stream().query()
    torch.pjrt.synchronize()
    assert torch.pjrt.current_stream().query()


def test_an_event_that_was_not_recorded() -> None:
    event = torch.pjrt.Event()
    assert isinstance(event, torch.pjrt.Event)
    assert isinstance(event, torch.Event)
    assert not isinstance(torch.Stream(device=DEVICE), torch.pjrt.Event)
    assert event.query()
    event.synchronize()
    with pytest.raises(NotImplementedError, match="can't be shared between processes"):
        torch.pjrt.Event(interprocess=True)
    for timed in (torch.pjrt.Event(), torch.pjrt.Event(enable_timing=True)):
        timed.record()
        timed.synchronize()
        with pytest.raises((RuntimeError, ValueError), match=r"enable_timing=True|recorded"):
            timed.elapsed_time(event)
