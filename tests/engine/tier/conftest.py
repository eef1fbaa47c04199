"""Tests of graphs that are interpreted until their compile is amortized."""

from __future__ import annotations

import torch_pjrt


def counts() -> tuple[int, int]:
    """Returns the number of interpreted graphs and of compiled programs."""
    metrics = torch_pjrt.metrics()
    assert metrics["host_fallbacks"] == {}
    return metrics["graphs_interpreted"], metrics["graphs_compiled"] + metrics["graphs_loaded_from_disk"]
