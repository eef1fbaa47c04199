"""A line that tells the user what this package did by itself."""

from __future__ import annotations

import logging
import sys


def warn(name: str, line: str) -> None:
    """As ``tell``, at level WARNING."""
    tell(name, line, logging.WARNING)


def tell(name: str, line: str, level: int = logging.INFO) -> None:
    """To the logger of that name, at level INFO; to stderr where the program has set up no logging."""
    logger = logging.getLogger(name)
    if logger.hasHandlers():
        logger.log(level, "%s", line)
    elif sys.stderr is not None:
        sys.stderr.write(f"torch_pjrt: {line}\n")
