"""./dev python bench/ops: writes the table of docs/ops.md from the last results of `./dev bench ops`.

With `rows`, only the rows of the measured ops are written, if these are a part of all ops.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parents[2])]

from ops.table import write_document  # noqa: E402

write_document(rows_alone=sys.argv[1:] == ["rows"])
