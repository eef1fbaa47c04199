"""Traces: the stages of a function on its way to the device, as text that people can read and Python can run.

``recorder.py`` records, while AOTAutograd traces, which calls on inner tensors each call of a subclass became.
``rules.py`` has the rules that replace such calls. ``written.py``, ``subclassed.py`` and ``unrolled.py`` write the
stages, as Python (``source.py``) with types (``types.py``). ``collector.py`` receives a graph from the backend, and
``trace.py`` has the classes that users see. ``watcher.py`` records the device's calls, ``watched.py`` writes them, and
``region.py`` has the user's functions for them; ``frames.py`` is shared by the recorder and the watcher. ``taken.py``
is above all these: it has the functions that take traces and that return stored ones.
"""

from torch_pjrt.traces.region import tracing
from torch_pjrt.traces.rules import register_rule
from torch_pjrt.traces.taken import last_traces, trace
from torch_pjrt.traces.trace import Trace, Traces

__all__ = ["Trace", "Traces", "last_traces", "register_rule", "trace", "tracing"]
