"""Runs an operator on DTensors up to the point where DTensor would run it on each rank's shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils import _pytree as pytree


def of_shards(dispatcher: Any, op: Any, args: Any, kwargs: Any, check: Callable[[Any], None]) -> tuple[Any, list[Any]]:
    """Returns DTensor's description of the call, and its positional arguments as each rank's shards, redistributed as
    the operator needs them. ``check`` is called with the schema of a redistribution, if there is one."""
    called = dispatcher.unwrap_to_op_info(op, args, kwargs)
    dispatcher.sharding_propagator.propagate(called)
    output = called.output_sharding
    if output.needs_redistribute:
        check(output.redistribute_schema)
        dispatcher.redistribute_local_args(called, output.redistribute_schema, output.use_val_from_redistribute_schema)
    local = called.local_args
    return called, pytree.tree_unflatten(local, called.args_tree_spec) if called.args_tree_spec else local
