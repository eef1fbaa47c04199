"""docs/ops.md is up to date: it says how each op runs."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.module_at import module_at

ROOT = Path(__file__).resolve().parents[2]
EVERY = 16  # one row in this many is checked, of those with "rule" or "decomposition"
OTHERS = 4  # one in this many of the others


@pytest.fixture
def maker() -> ModuleType:
    return module_at(ROOT / "tools/op_table.py", "op_table")


@pytest.mark.host_memory
def test_the_document_is_current(maker: ModuleType) -> None:
    pinned = next(line for line in (ROOT / "requirements.lock").read_text().splitlines() if line.startswith("torch=="))
    if pinned != f"torch=={torch.__version__.split('+')[0]}":
        pytest.skip("another PyTorch has other ops and samples")
    table = maker.DOCUMENT.read_text().split("<!-- end -->")[0]  # below it are the times of some
    written = {line.split(" | ")[0][2:]: line for line in table.splitlines() if " | " in line}
    assert set(maker.OPS) <= set(written), "./dev ops"
    reporting = [n for n in maker.OPS if any(word in written[n] for word in ("kernel", "host", "refused"))]
    others = [n for n in sorted(maker.OPS) if n not in reporting][::EVERY]
    reporting = sorted(reporting)[::OTHERS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row in maker.rows([*reporting, *others]):
            assert row.line() == written[row.name], "./dev ops"


def test_what_a_row_says(maker: ModuleType) -> None:
    torch.library.define("op_table_test::unknown", "(Tensor x) -> Tensor")
    torch.library.impl("op_table_test::unknown", "CPU", lambda x: x + 1)
    reported = maker.Reported()
    x = torch.ones(3).to("pjrt")
    maker.logged(lambda: x.exp(), reported)
    assert reported.cell() == "rule"
    maker.logged(lambda: torch.ops.aten.isin(x, x), reported)
    assert reported.cell() == "decomposition"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        maker.logged(lambda: torch.ops.op_table_test.unknown(x), reported)
    assert reported.cell() == "host `unknown`"
    maker.logged(lambda: x.reshape(7), reported)
    assert reported.cell().startswith("refused: ")
