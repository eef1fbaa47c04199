"""The functions of this package that Dynamo traces into."""

from __future__ import annotations

import pkgutil
from importlib.util import find_spec

from torch._dynamo import trace_rules

# Hooks around an optimizer's step are part of a captured step. Operators of a world's ranks and attention's check of
# devices are part of a graph.
READ = (
    "torch_pjrt.adapt.flex_attention",
    "torch_pjrt.adapt.optimizers",
    "torch_pjrt.distributed.rank",
    "torch_pjrt.dynamo.optimizers",
    "torch_pjrt.composite_ops.steps",
)


def skip(name: str) -> None:
    """Makes Dynamo skip this module and its submodules, except those in READ.

    Dynamo's own list of exceptions can't be used: ``torch.distributed.init_process_group`` empties it."""
    if not any(read.startswith(f"{name}.") for read in READ):
        trace_rules.add(name)
        return
    spec = find_spec(name)
    assert spec is not None
    trace_rules.SKIP_DIRS.append(str(spec.origin))
    for inner in pkgutil.iter_modules(spec.submodule_search_locations, f"{name}."):
        if inner.name not in READ:
            skip(inner.name)
