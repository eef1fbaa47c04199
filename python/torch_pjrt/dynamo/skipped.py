"""Which functions of this package Dynamo looks into."""

from __future__ import annotations

import pkgutil
from importlib.util import find_spec

from torch._dynamo import trace_rules

# What is done around an optimizer's step is part of a captured one.
READ = ("torch_pjrt.adapt.optimizers", "torch_pjrt.dynamo.optimizers", "torch_pjrt.meanings.steps")


def skip(name: str) -> None:
    """All of this module, and of those in it, but what is in READ. (Dynamo's own list of files that are read in spite
    of being skipped is emptied by ``torch.distributed.init_process_group``.)"""
    if not any(read.startswith(f"{name}.") for read in READ):
        trace_rules.add(name)
        return
    spec = find_spec(name)
    assert spec is not None
    trace_rules.SKIP_DIRS.append(str(spec.origin))
    for inner in pkgutil.iter_modules(spec.submodule_search_locations, f"{name}."):
        if inner.name not in READ:
            skip(inner.name)
