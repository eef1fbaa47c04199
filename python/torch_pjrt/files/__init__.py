"""Programs as files: ``export`` and ``load``.

``exporting.py`` makes programs of functions, ``naming.py`` names their state, and ``dynamic.py`` enumerates their
sizes. ``tree.py`` writes structures of arguments as JSON, ``portable.py`` StableHLO as bytecode, ``safetensors.py`` and
``archive.py`` the file. ``loading.py`` reads and calls it.
"""

from torch_pjrt.files.exporting import Exported, export
from torch_pjrt.files.loading import FileProgram, load

__all__ = ["Exported", "FileProgram", "export", "load"]
