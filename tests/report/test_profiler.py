"""The PyTorch profiler shows the device's work: recording, compiling, executing, waiting, copies."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

DEVICE = "pjrt"


def counts(p: profile) -> dict[str, int]:
    return {event.key: event.count for event in p.key_averages()}


@pytest.mark.compiled
def test_what_the_profiler_shows() -> None:
    host = torch.rand(7, 13)

    def step() -> torch.Tensor:
        x = host.to(DEVICE)
        return (x.sin() @ x.t()).cpu()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with profile(acc_events=True) as first:
            step()
        with profile(acc_events=True) as second, record_function("mine"):
            step()
            step()
    cold, warm = counts(first), counts(second)
    for name in ("aten::sin", "aten::mm"):  # an op of the device: the time to record it
        assert cold[name] == 1
        assert warm[name] == 2
    for name in ("pjrt::copy_to_device", "pjrt::execute", "pjrt::wait", "pjrt::copy_to_host"):
        assert cold[name] == 1, name
        assert warm[name] == 2, name
    assert cold["pjrt::compile"] == 1
    assert "pjrt::compile" not in warm
    assert "pjrt::record_first_call" not in warm
    assert warm["mine"] == 1


@pytest.mark.compiled
def test_a_compile_is_inside_the_read_that_needs_it() -> None:
    x = torch.rand(5, 11, device=DEVICE)
    with profile(acc_events=True) as p:
        (x.cos() @ x.t()).sum().item()
    events = {event.name: event for event in reversed(p.events())}  # the first of each name
    read, compiled = events["aten::item"], events["pjrt::compile"]
    assert read.time_range.start <= compiled.time_range.start
    assert compiled.time_range.end <= read.time_range.end
    assert events["pjrt::execute"].time_range.start >= compiled.time_range.end
    assert any(event.name == "pjrt::record_first_call" for event in p.events())


@pytest.mark.compiled
def test_the_device_among_the_activities(capfd: pytest.CaptureFixture[str]) -> None:
    """PyTorch's tutorials do this for other devices; it asks for events of the device around each op."""
    x = torch.rand(4, 9, device=DEVICE)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], acc_events=True) as p:
        (x.tan() @ x.t()).sum().item()
    with torch.autograd.profiler.profile(use_device=DEVICE) as legacy:
        (x.tan() @ x.t()).sum().item()
    for one in (counts(p), {event.key: event.count for event in legacy.key_averages()}):
        assert one["aten::tan"] == one["aten::mm"] == one["pjrt::execute"] == 1
    assert all(event.device_time_total == 0 for event in p.key_averages())  # recorded; run later, with others
    assert "Exception" not in capfd.readouterr().err
