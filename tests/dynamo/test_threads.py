"""Threads that use the package for the first time, all at once."""

from __future__ import annotations

import pytest

from tests import fresh

THREADS = """
import sys, threading, traceback
import torch
errors = []
begin = threading.Barrier(4)
{before}
def work(i):
    try:
        begin.wait()
        {act}
    except BaseException:
        errors.append(traceback.format_exc())
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not errors, errors[0]
"""
ACTS = {
    "compile": 'assert torch.compile(lambda x: x + i, backend="pjrt")(torch.ones(3)).tolist() == [1.0 + i] * 3',
    "look up": 'assert callable(torch._dynamo.lookup_backend("pjrt"))',
    "default": 'assert torch.compile(lambda x: x + i)(torch.ones(3, device="pjrt")).tolist() == [1.0 + i] * 3',
    "device": 'torch.pjrt.manual_seed(i); assert (torch.ones(3, device="pjrt") + i).tolist() == [1.0 + i] * 3',
    "decomposition": 'assert torch.nn.functional.mish(torch.zeros(3, device="pjrt")).tolist() == [0.0] * 3',
    "jit": "import torch_pjrt; f = torch_pjrt.jit(lambda x: x + i, [torch.ones(3)]); "
    "assert f(torch.ones(3)).tolist() == [1.0 + i] * 3",
    "jit of one module": "import torch_pjrt; f = torch_pjrt.jit(model, [torch.ones(2, 3)]); "
    "assert f(torch.ones(2, 3)).tolist() == wanted",
    "compile_step": "import torch_pjrt; f = torch_pjrt.compile_step(lambda x: x + i); "
    "assert f(torch.ones(3)).tolist() == [1.0 + i] * 3",
    "to_stablehlo": 'import torch_pjrt; assert "add" in torch_pjrt.to_stablehlo(lambda x: x + x, torch.ones(3))',
}
BEFORE = "model = torch.nn.Linear(3, 2, bias=False).eval(); model.weight.data.fill_(1); wanted = [[3.0] * 2] * 2"


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.sampled(2)
def test_first_use(server: fresh.Server, act: str) -> None:
    before = BEFORE if "model" in ACTS[act] else ""
    server.run(fresh.Job("import torch_pjrt\n" + THREADS.format(act=ACTS[act], before=before)))
