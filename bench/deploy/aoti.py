"""Reads numbers of calls, one a line, makes that many calls of a package of AOTInductor, and prints the microseconds of
one.

It calls from Python, which adds microseconds, because AOTIModelPackageLoader in C++ crashes on ResNet-18 with torch
2.13.
"""

from __future__ import annotations

import sys
import time

import torch


def main() -> None:
    package, inputs = sys.argv[1:]
    model, given = torch._inductor.aoti_load_package(package), torch.load(inputs)
    with torch.inference_mode():
        model(*given)
        for line in sys.stdin:
            calls = int(line)
            start = time.perf_counter()
            for _ in range(calls):
                model(*given)
            print((time.perf_counter() - start) / calls * 1e6, flush=True)


if __name__ == "__main__":
    main()
