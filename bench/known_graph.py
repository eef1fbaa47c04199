"""A graph of 1,000 nodes that was compiled before: from the read to the call of execute, against recording it."""

from __future__ import annotations

from measure import Result, compare_timed
from torch_pjrt import _C


def measure() -> list[Result]:
    def timed() -> tuple[float, float]:
        recording, read_to_execute = _C._bench_sync_1000()
        return read_to_execute, recording

    timed()
    timed()
    return [compare_timed("read to execute, known graph of 1,000 nodes", timed, 0.25, against="recording it")]
