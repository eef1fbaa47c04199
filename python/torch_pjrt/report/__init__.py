"""``torch_pjrt.explain()`` and the entries of its report."""

from torch_pjrt.report.entries import Composite, Entry, GraphBreak, GraphRun, HostFallback, KernelCall, Recompile
from torch_pjrt.report.report import Report, explain, is_active, record

__all__ = [
    "Composite",
    "Entry",
    "GraphBreak",
    "GraphRun",
    "HostFallback",
    "KernelCall",
    "Recompile",
    "Report",
    "explain",
    "is_active",
    "record",
]
