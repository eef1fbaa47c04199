"""./dev python bench/ops: the table of docs/ops.md, of what `./dev bench ops` measured last.

With `rows`: only the rows of what was measured, where that is a part of the ops.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parents[2])]

from ops.table import write_document  # noqa: E402

write_document(rows_alone=sys.argv[1:] == ["rows"])
