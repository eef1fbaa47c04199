"""The counters of torch_pjrt.metrics()."""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Iterator

import pytest
import torch

import torch_pjrt
from torch_pjrt import _C


@pytest.fixture(autouse=True)
def _from_zero() -> Iterator[None]:
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()
    yield
    torch_pjrt.sync()


def counts() -> tuple[int, int, int, int]:
    m = torch_pjrt.metrics()
    return m["ops_recorded"], m["syncs"], m["graphs_compiled"], m["executions"]


def test_everything_is_there_and_zero_after_a_reset() -> None:
    assert torch_pjrt.metrics() == {
        "ops_recorded": 0,
        "graphs_compiled": 0,
        "graphs_loaded_from_disk": 0,
        "executions": 0,
        "graphs_interpreted": 0,
        "calls_on_host": 0,
        "host_fallbacks": {},
        "collectives": {},
        "collective_bytes": {},
        "syncs": 0,
        "syncs_by_cause": {},
        "nodes_executed": 0,
        "host_transfer_bytes": 0,
        "copies_on_write": 0,
        "record_seconds": 0.0,
        "compile_seconds": 0.0,
        "prepare_seconds": 0.0,
        "execute_seconds": 0.0,
    }


def test_print_shows_a_table() -> None:
    torch.ones(3, 40).to("pjrt").exp().sum().item()
    torch_pjrt.sync(torch.ones(3, 40).to("pjrt").exp())
    _C.count_fallback("test::a")
    for _ in range(10):
        _C.count_fallback("test::b")
    for metrics in (torch_pjrt.metrics(), torch.pjrt.metrics()):
        lines = str(metrics).split("\n")
        assert len({len(line) for line in lines}) == 1
        rows = [re.split(r"  +(?=[^ ]+$)", line) for line in lines]
        assert rows[0] == ["ops_recorded", str(metrics["ops_recorded"])]
        at = rows.index(["host_fallbacks", "11"])
        assert rows[at + 1 : at + 3] == [["  test::b", "10"], ["  test::a", "1"]]
        assert rows[-1] == ["execute_seconds", f"{metrics['execute_seconds']:.3f}"]
        assert [name for name, _ in rows if not name.startswith(" ")] == list(metrics)
        assert repr(metrics) == repr(dict(metrics))
        assert json.loads(json.dumps(metrics)) == metrics


@pytest.mark.compiled
def test_recording_runs_nothing_and_a_graph_is_compiled_once() -> None:
    x = torch.ones(3, 41).to("pjrt")
    torch_pjrt.reset_metrics()
    y = x.exp().mul(x)
    assert counts() == (2, 0, 0, 0)
    torch_pjrt.sync(y)
    assert counts() == (2, 1, 1, 1)
    assert torch_pjrt.metrics()["nodes_executed"] == 2
    torch_pjrt.sync(x.exp().mul(x))
    assert counts() == (4, 2, 1, 2)
    assert torch_pjrt.metrics()["compile_seconds"] > 0


def test_reading_what_exists_computes_nothing() -> None:
    y = torch.ones(3, 42).to("pjrt").exp()
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()
    y.cpu()
    y.sum(dim=0)  # recorded, never held
    torch_pjrt.sync()
    _, syncs, _, executions = counts()
    assert (syncs, executions) == (0, 0)


def test_syncs_by_cause() -> None:
    x = torch.ones(3, 44).to("pjrt")
    for _ in range(2):
        x.exp().sum().item()
    if x.exp().sum() > 0:
        x.exp().numpy(force=True)
    torch_pjrt.sync(x.exp())
    y = x.exp()
    torch.pjrt.synchronize()
    assert torch_pjrt.metrics()["syncs_by_cause"] == {
        "read of an element": 3,
        "copy to the host": 1,
        "torch_pjrt.sync": 1,
        "torch.pjrt.synchronize": 1,
    }
    assert torch_pjrt.metrics()["syncs"] == 6
    del y


def test_seconds_spent_in_recording() -> None:
    x = torch.ones(3, 45).to("pjrt")
    torch_pjrt.reset_metrics()
    start = time.perf_counter()
    y = x.exp()  # a new kind of call, for which Meta and the rule run
    cold = torch_pjrt.metrics()["record_seconds"]
    assert 0 < cold <= time.perf_counter() - start
    for _ in range(1000):
        y = y * 0.5
    spent = time.perf_counter() - start
    # 16 calls are timed and stand for the others; one of them may be slow.
    assert cold < torch_pjrt.metrics()["record_seconds"] < 30 * spent


def test_bytes_between_host_and_device() -> None:
    x = torch.ones(5, 7).to("pjrt")
    assert torch_pjrt.metrics()["host_transfer_bytes"] == 5 * 7 * 4
    x.cpu()
    assert torch_pjrt.metrics()["host_transfer_bytes"] == 2 * 5 * 7 * 4


@pytest.mark.compiled
def test_a_number_that_changes_is_compiled_twice_at_most() -> None:
    shape = (1, 7, 1, 1009, 1)  # unique to this test: a number that has changed before would become an input
    x = torch.ones(shape).to("pjrt")
    torch_pjrt.reset_metrics()
    for step in range(6):
        assert torch.allclose((x * (0.5 + step)).cpu(), torch.full(shape, 0.5 + step))
    assert torch_pjrt.metrics()["graphs_compiled"] == 2, torch_pjrt.metrics()


def test_a_host_fallback_is_counted_by_op_and_warned_of_once() -> None:
    x = torch.tensor([0, 2, 0, 3]).to("pjrt")
    torch.library.define("metrics_test::unknown", "(Tensor x) -> Tensor")
    torch.library.impl("metrics_test::unknown", "CPU", lambda x: x + 1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert torch.ops.metrics_test.unknown(x).tolist() == [1, 3, 1, 4]
        assert torch.ops.metrics_test.unknown(x).tolist() == [1, 3, 1, 4]
    assert torch_pjrt.metrics()["host_fallbacks"] == {"metrics_test::unknown": 2}
    messages = [str(w.message) for w in seen if "[metrics_test::unknown]" in str(w.message)]
    assert len(messages) <= 1  # the C++ library may warn of a call through torch.ops
    assert all("torch_pjrt.metrics()['host_fallbacks'] counts each case" in m and __file__ in m for m in messages)


def test_in_strict_mode_a_host_fallback_is_an_error() -> None:
    x = torch.ones(3, 2).to("pjrt")

    def on_the_host() -> object:
        return torch.linalg.lstsq(x, x, driver="gelss")

    with torch_pjrt.strict_mode(), pytest.raises(RuntimeError, match=r"\[aten::linalg_lstsq\]"):
        on_the_host()
    on_the_host()  # and only there
