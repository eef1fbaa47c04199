"""What a function becomes on its way to the device, as text that a person can read, and that runs.

``recorder.py`` takes down, while AOTAutograd traces, which call of a subclass became which calls of its parts;
``rules.py`` has what computes a call instead; ``written.py``, ``subclassed.py`` and ``unrolled.py`` write the stages,
in the Python of ``source.py`` with the types of ``types.py``; ``collector.py`` is what the backend tells of a graph;
``trace.py`` is what users see. ``watcher.py`` takes down what the device records, ``watched.py`` writes that, and
``region.py`` is what of it users see; ``frames.py`` is what the recorder and the watcher have in common. ``taken.py``
stands above all: it has the functions by which users take traces, and come by those that were kept.
"""

from torch_pjrt.traces.region import tracing
from torch_pjrt.traces.rules import register_rule
from torch_pjrt.traces.taken import last_traces, trace
from torch_pjrt.traces.trace import Trace, Traces

__all__ = ["Trace", "Traces", "last_traces", "register_rule", "trace", "tracing"]
