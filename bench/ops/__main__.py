"""./dev python bench/ops: writes docs/ops.jsonl, docs/ops.png and the table of docs/ops.md from `./dev bench ops`."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parents[2])]

from ops.table import write_document  # noqa: E402

write_document()
