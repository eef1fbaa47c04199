"""The zoo: the judgment and storage of cells, and a sample of those that are right in docs/zoo.json and must stay
so."""

from __future__ import annotations

import json
import os
import signal
import time
import zlib
from pathlib import Path

import pytest
import torch

import zoo.model
from zoo import kept, table, worker
from zoo.cell import Cell, columns
from zoo.conduct import HANGS, Worker, conduct
from zoo.entries import Settings
from zoo.model import Built, Model, family, matching, model
from zoo.reference import Reference
from zoo.values import difference

QUICK = Settings(is_timed=False)
SMALL = ("catalogue", "graphs", "torch_nn")  # families whose cells take a second or two, and no library's import
CELL = Cell("catalogue/policy", "jit", "forward", "float32")


def test_what_differs_is_named() -> None:
    true = {"a": torch.tensor([1.0, 2.0], dtype=torch.float64), "b": torch.tensor([3])}
    eager = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3])}
    assert difference(eager, [eager], true, 2e-5) == ""
    assert "a: off by 0.01" in difference({**eager, "a": torch.tensor([1.0, 2.01])}, [eager], true, 2e-5)
    assert "b: other integers" in difference({**eager, "b": torch.tensor([4])}, [eager], true, 2e-5)
    assert "float64[2] instead of float32[2]" in difference({**eager, "a": true["a"]}, [eager], true, 2e-5)
    assert "a: off by inf" in difference({**eager, "a": torch.tensor([1.0, float("nan")])}, [eager], true, 2e-5)
    assert "1 tensors instead of 2" in difference({"a": eager["a"]}, [eager], true, 2e-5)


def test_twice_as_far_as_eager_is_right() -> None:
    true, eager = {"a": torch.tensor([1.0], dtype=torch.float64)}, {"a": torch.tensor([1.1])}
    assert difference({"a": torch.tensor([0.81])}, [eager], true, 2e-5) == ""
    assert difference({"a": torch.tensor([0.79])}, [eager], true, 2e-5) != ""


@pytest.mark.parametrize("what", ["forward", "step"])
def test_a_model_is_the_same_each_time(what: str) -> None:
    right = Reference(model("catalogue/lstm"), what, torch.float32)
    again = Reference(right.model, what, torch.float32)
    assert right.wrong(again.eager[0]) == ""
    name = next(name for name, value in again.eager[0].items() if value.is_floating_point())
    again.eager[0][name] += 1
    assert name in right.wrong(again.eager[0])


@pytest.mark.parametrize(
    ("pattern", "families"),
    [("catalogue/lstm", ["catalogue"]), ("vision/", ["torchvision"]), ("torch*/r*", ["torch_nn", "torchvision"])],
)
def test_only_families_that_are_asked_for_are_imported(
    pattern: str, families: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def imported(name: str) -> dict[str, Model]:
        asked.append(name)
        return {}

    monkeypatch.setattr(zoo.model, "family", imported)
    assert list(matching(pattern)) == []
    assert asked == families


def test_a_cell_cannot_take_others_with_it() -> None:
    worker = Worker((), QUICK)
    os.kill(worker.process.pid, signal.SIGSEGV)
    worker.process.wait()
    assert "SIGSEGV" in worker.outcome(CELL, 60)["words"]
    worker.end()
    worker = Worker((), QUICK)
    assert worker.outcome(CELL, 0.01) == {"outcome": "crashed", "words": "took more than 0 s"}
    worker.end()


def test_a_cell_that_waits_for_a_processor_is_given_more_time() -> None:
    worker = Worker((), QUICK)
    os.kill(worker.process.pid, signal.SIGSTOP)
    begun = time.monotonic()
    assert worker.outcome(CELL, 0.1)["outcome"] == "crashed"
    assert time.monotonic() - begun > HANGS * 0.1
    worker.end()


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    lines, written = tmp_path / "cells.jsonl", tmp_path / "zoo.json"
    kept.append(CELL, {"outcome": "wrong", "words": "loss: off by 1"}, lines)
    kept.append(CELL._replace(entry="jax"), {"outcome": "right"}, lines)
    kept.append(CELL, {"outcome": "refused", "words": "why"}, lines)
    lines.write_text(lines.read_text() + '{"cell": ["cut o')
    found = kept.lines(lines)
    assert {cell.entry: outcome["outcome"] for cell, outcome in found.items()} == {"jit": "refused", "jax": "right"}
    kept.write_document(found, written)
    again = kept.document(written)
    assert {cell: outcome["outcome"] for cell, outcome in again.items()} == {
        cell: outcome["outcome"] for cell, outcome in found.items()
    }
    assert again[CELL]["words"] == "why"
    jax = CELL._replace(entry="jax")
    assert kept.worse({jax: {"outcome": "wrong"}, CELL: {"outcome": "wrong"}}, again) == [jax]


class Positive(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]


class Replaced(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.set_(x + 1)


@pytest.mark.parametrize(("module", "outcome"), [(Positive, "data-dependent"), (Replaced, "refused")])
def test_what_no_program_can_do_has_its_own_outcome(
    module: type[torch.nn.Module], outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Model(f"made/{outcome}", lambda: Built(module(), (torch.randn(4),)))
    monkeypatch.setattr(worker, "model", lambda name: made)
    assert worker.answer(CELL._replace(model=made.name))["outcome"] == outcome


def test_the_table_is_made_of_the_json() -> None:
    assert table.START + table.text(kept.document()) + table.END in table.TABLE.read_text()


def sample() -> list[Cell]:
    """Returns, for each column, the small cell that is right in docs/zoo.json and whose name has the least checksum."""
    models = {name for each in SMALL for name in family(each)}
    right = [cell for cell, outcome in kept.document().items() if outcome["outcome"] in ("right", "slow")]
    right = [cell for cell in right if cell.model in models and cell.entry != "pjrt-run"]
    right.sort(key=lambda cell: zlib.crc32(json.dumps(cell).encode()), reverse=True)
    chosen = {cell.column: cell for cell in right}
    return sorted(chosen.values(), key=lambda cell: (cell.entry == "world", cell.model))


@pytest.mark.host_memory
def test_what_was_right_is_right() -> None:
    cells, found = sample(), kept.Outcomes()
    assert {cell.column for cell in cells} == {each.column for each in columns() if each.entry != "pjrt-run"}
    conduct(cells, found.__setitem__, settings=QUICK)
    reported = {cell: outcome for cell, outcome in found.items() if outcome["outcome"] not in ("right", "slow", "none")}
    assert reported == {}, "none: a library is missing that the model is made with"
