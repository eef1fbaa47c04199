"""A line that tells the user what this package did by itself."""

from __future__ import annotations

import logging
import sys


def tell(name: str, line: str) -> None:
    """To the logger of that name, at level INFO; to stderr where the program has set up no logging."""
    logger = logging.getLogger(name)
    if logger.hasHandlers():
        logger.info("%s", line)
    elif sys.stderr is not None:
        sys.stderr.write(f"torch_pjrt: {line}\n")
