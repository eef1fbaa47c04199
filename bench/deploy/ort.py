"""Reads numbers of calls, one a line, makes that many calls of a model by ONNX Runtime, and prints the microseconds of
one.

It calls from Python, which adds a few microseconds: inputs and results are bound to memory beforehand.
"""

from __future__ import annotations

import sys
import time

import onnxruntime  # type: ignore[import-not-found,unused-ignore]
import torch


def main() -> None:
    path, inputs = sys.argv[1:]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    bound = session.io_binding()
    for each, value in zip(session.get_inputs(), torch.load(inputs), strict=False):
        bound.bind_cpu_input(each.name, value.numpy())
    for each in session.get_outputs():
        bound.bind_output(each.name)
    session.run_with_iobinding(bound)
    for line in sys.stdin:
        calls = int(line)
        start = time.perf_counter()
        for _ in range(calls):
            session.run_with_iobinding(bound)
        print((time.perf_counter() - start) / calls * 1e6, flush=True)


if __name__ == "__main__":
    main()
