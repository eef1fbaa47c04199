"""Runs a script and prints the graph and the StableHLO of every program that it compiles, in that order. Each graph is
compiled when it is first run.

``python -m torch_pjrt.ir script.py [its arguments]``, or ``./dev ir script.py``.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

from torch_pjrt import _C


def printer(write: Callable[[str], object]) -> Callable[[str, str], None]:
    """Returns a program listener that writes each program with a number."""
    count = 0

    def listen(graph: str, stablehlo: str) -> None:
        nonlocal count
        count += 1
        write(f"// program {count}: graph\n{graph}\n// program {count}: StableHLO\n{stablehlo}\n")

    return listen


def _write(text: str) -> None:
    print(text, flush=True)


def main(arguments: list[str]) -> None:
    if not arguments:
        sys.exit("usage: python -m torch_pjrt.ir script.py [its arguments]")
    script = Path(arguments[0])
    if not script.is_file():
        sys.exit(f"torch_pjrt.ir: there is no script at '{script}'")
    sys.argv = arguments
    sys.path[0] = str(script.resolve().parent)
    _C.set_compile_policy("first")
    _C.set_interprets_growing(False)
    _C.set_program_listener(printer(_write))
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
