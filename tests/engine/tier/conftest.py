"""These tests are about graphs that are run call by call until they have paid for their compile."""

from __future__ import annotations

import torch_pjrt


def counts() -> tuple[int, int]:
    """Graphs that were run by calls, and programs that were made."""
    metrics = torch_pjrt.metrics()
    assert metrics["host_fallbacks"] == {}
    return metrics["graphs_run_by_calls"], metrics["graphs_compiled"] + metrics["graphs_loaded_from_disk"]
