"""Messages to the user about automatic decisions of this package."""

from __future__ import annotations

import logging
import sys


def warn(name: str, line: str) -> None:
    """Logs the line as ``inform`` does, at level WARNING."""
    inform(name, line, logging.WARNING)


def inform(name: str, line: str, level: int = logging.INFO) -> None:
    """Logs the line to the logger of that name; writes it to stderr if the program has set up no logging."""
    logger = logging.getLogger(name)
    if logger.hasHandlers():
        logger.log(level, "%s", line)
    elif sys.stderr is not None:
        sys.stderr.write(f"torch_pjrt: {line}\n")
