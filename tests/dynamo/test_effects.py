"""Ops with side effects run in each call, in the program's order, and never while a graph is traced."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._higher_order_ops.print import print as print_in_graph

import torch_pjrt
from tests import fresh, ranks


def test_collectives(server: fresh.Server) -> None:
    script = Path(__file__).with_name("collectives.py")
    for reported in ranks.run(server, script, 2):
        assert reported["aot_eager"][0] == [3.0, 3.0]
        for found, wanted in zip(reported["pjrt"], reported["aot_eager"], strict=True):
            assert found == pytest.approx(wanted, rel=1e-5, abs=1e-5)
        assert len(reported["captured"]) == 2
        assert all("all_reduce.default has effects beside its results" in error for error in reported["captured"])


seen: list[str] = []
library = torch.library.Library("pjrt_test_effects", "FRAGMENT")
for name in ("early", "late"):
    library.define(f"{name}(Tensor x) -> Tensor")

    def note(x: torch.Tensor, name: str = name) -> torch.Tensor:
        seen.append(f"{name} {float(x.sum())}")
        return x + 1

    library.impl(name, note, "CompositeExplicitAutograd")
    torch.library.register_fake(f"pjrt_test_effects::{name}", torch.empty_like, lib=library)
ops = torch.ops.pjrt_test_effects


@pytest.mark.filterwarnings("ignore:.*is not compiled")
@pytest.mark.parametrize("training", [False, True])
def test_code_of_a_library_runs_in_each_call_and_in_order(training: bool) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = ops.early(ops.early(x * 2).sin().cos() * 0)  # the second of them is two stages later than x
        return y + ops.late(x)

    x = torch.ones(3, requires_grad=training)
    seen.clear()
    with torch.set_grad_enabled(training):
        wanted = f(x)
    eager = list(seen)
    assert len(eager) == 3
    with torch.set_grad_enabled(training):
        compiled = torch.compile(f, backend="pjrt")
        for _ in range(2):
            seen.clear()
            torch.testing.assert_close(compiled(x), wanted)
            assert seen == eager


@pytest.mark.filterwarnings("ignore:.*is not compiled")
def test_printing_in_a_graph(capfd: pytest.CaptureFixture[str]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        print_in_graph("printed {}", 7)
        return y + 1

    compiled = torch.compile(f, backend="pjrt")
    for _ in range(2):
        assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]
        assert capfd.readouterr().out.count("printed 7") == 1
    assert sum(torch_pjrt.metrics()["host_fallbacks"].values()) >= 1
