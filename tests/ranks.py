"""Runs a script as the ranks of a world of processes, with torchrun's environment."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from tests.fresh import Job, Server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


def environments(size: int) -> list[dict[str, str]]:
    """Returns the environment of each rank, all on this host."""
    same = {
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "GROUP_RANK": 0,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": free_port(),
        "OMP_NUM_THREADS": 1,
    }
    ranks = ({**same, "RANK": rank, "LOCAL_RANK": rank} for rank in range(size))
    return [{name: str(value) for name, value in each.items()} for each in ranks]


def run(server: Server, script: Path, size: int, *arguments: object, **environment: str) -> list[Any]:
    """Returns the JSON in the last line that each rank prints. Raises AssertionError with their output if one fails."""
    source = script.read_text()
    jobs = [Job(source, arguments, {**each, **environment}) for each in environments(size)]
    return [json.loads(result.out.splitlines()[-1]) for result in server.run(*jobs)]
