"""Runs one program: ``python -m people.one NAME DEVICE`` prints the seconds of two passes."""

from __future__ import annotations

import json
import sys
import time

import torch
import torch._dynamo  # the first optimizer imports it

import people
from people.person import flat


def main() -> None:
    name, device = sys.argv[1:]
    program = people.program(name)
    if device == "pjrt":
        import torch_pjrt

        torch.pjrt.init()  # loads the plugin before the timing
    reported: dict[str, object] = {"wall": [], "cpu": []}
    for _ in range(2):
        wall, cpu = time.perf_counter(), time.process_time()
        values = flat(program(device))
        reported["wall"].append(time.perf_counter() - wall)  # type: ignore[attr-defined]
        reported["cpu"].append(time.process_time() - cpu)  # type: ignore[attr-defined]
    reported["values"] = values
    if device == "pjrt":
        metrics = torch_pjrt.metrics()
        reported["metrics"] = {
            k: metrics[k] for k in ("graphs_compiled", "graphs_interpreted", "syncs", "host_fallbacks")
        }
    print(json.dumps(reported))


if __name__ == "__main__":
    main()
