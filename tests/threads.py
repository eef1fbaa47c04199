"""Runs work in several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable


def in_two_threads(work: Callable[[], object]) -> None:
    """Runs `work` in both threads. Raises an error that one of them raised."""
    failures: list[BaseException] = []

    def watched() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=watched) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
