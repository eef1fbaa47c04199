"""Run by each of several processes: PyTorch's own tests of torch.distributed, which its wheel ships. Tests for CUDA
devices take this one. Prints how many have passed, and the errors of the others by name.

Arguments: "gloo" or "nccl", whose tests run (by this device's backend); a regular expression of names; a folder."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
import types
import unittest
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal import common_distributed

import torch_pjrt  # noqa: F401

BACKEND, NAMES, FOLDER = sys.argv[1], re.compile(sys.argv[2]), Path(sys.argv[3])
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
os.environ.update(BACKEND=BACKEND, TEMP_DIR=str(FOLDER))
for name in ("barrier", "init_dir", "test_dir"):
    (FOLDER / name).mkdir(exist_ok=True)
warnings.simplefilter("ignore")


def with_devices(count: int, *_: object, **__: object) -> Callable[[Any], Any]:
    return unittest.skipIf(count > SIZE, "fewer devices")


common_distributed.skip_if_no_gpu = common_distributed.skip_if_small_worldsize = lambda function: function
common_distributed.skip_if_lt_x_gpu = with_devices
common_distributed.nccl_skip_if_lt_x_gpu = lambda _, count: with_devices(count)
common_distributed.init_multigpu_helper = lambda size, _: {rank: [rank] for rank in range(size)}

common_distributed.DistTestCases.backend_feature["pjrt"] = {"nccl", "gloo"}
file = Path(common_distributed.__file__).parent / "distributed/distributed_test.py"
source = re.sub(r"\.cuda\b(?!\.amp|\n)", ".pjrt", file.read_text())
source = re.sub(r"([\"'])cuda\b", r"\1pjrt", source)
source = re.sub(r'backend="nccl"|backend=dist\.Backend\.NCCL', 'backend="pjrt"', source)
tests = types.ModuleType("distributed_test")
sys.modules["distributed_test"] = tests
exec(compile(source, str(file), "exec", dont_inherit=True), tests.__dict__)


class Test(tests.TestDistBackend, tests.DistributedTest._DistTestBase):  # type: ignore[name-defined,misc]
    def test_ddp_has_finalized(self) -> None:
        pass


passed, failed, skipped = 0, {}, {}
for number, name in enumerate(sorted(vars(tests.DistributedTest._DistTestBase))):
    if not name.startswith("test_") or not NAMES.search(name):
        continue
    function = getattr(Test, name)
    if why := getattr(function, "__unittest_skip_why__", ""):
        skipped[name] = why
        continue
    case = Test(name)
    case.rank, case.file_name = RANK, str(FOLDER / f"store{number}")
    dist.set_debug_level(
        dist.DebugLevel.OFF
    )  # with DETAIL, of an earlier test, gloo's DDP itself crashes in PyTorch 2.13
    timeout = timedelta(seconds=tests.CUSTOM_PG_TIMEOUT.get(name, 30))
    dist.init_process_group(
        BACKEND if BACKEND == "gloo" else "pjrt", case.init_method, timeout=timeout, world_size=SIZE, rank=RANK
    )
    torch.manual_seed(0)
    print(name, file=sys.stderr, flush=True)
    try:
        case._barrier(timeout=60)
        getattr(case, name)()
        passed += 1
    except (unittest.SkipTest, SystemExit) as why:
        skipped[name] = str(why)
    except Exception:
        failed[name] = traceback.format_exc()
        print(failed[name], file=sys.stderr, flush=True)  # the others may wait for this rank in the test's own barrier
    finally:
        case._barrier(timeout=100)
        if dist.is_initialized():
            dist.destroy_process_group()
print(json.dumps([passed, failed, skipped]))
sys.stdout.flush()
os._exit(0)
