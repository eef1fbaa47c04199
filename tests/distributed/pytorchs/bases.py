"""Run by each of two processes: tests on the classes and helpers that PyTorch's own tests of FSDP and DTensor share."""

# ruff: noqa: PT009
from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal import common_fsdp
from torch.testing._internal.distributed._tensor import common_dtensor

import torch_pjrt  # noqa: F401

RANK, SIZE, FOLDER = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sys.argv[1]
common_fsdp.DEVICE_TYPE, common_fsdp.DISTRIBUTED_BACKEND, common_fsdp.DEVICE_COUNT = "pjrt", "pjrt", SIZE
torch.pjrt.set_device(RANK)
warnings.simplefilter("ignore")


class Dtensors(common_dtensor.DTensorTestBase):
    world_size, device_type, backend = SIZE, "pjrt", "cpu:gloo,pjrt:pjrt"  # type: ignore[assignment]

    @common_dtensor.with_comms
    def test_ops(self) -> None:
        mesh = self.build_device_mesh()
        torch.manual_seed(0)
        x, y = torch.randn(6, 4, device="pjrt"), torch.randn(6, 4, device="pjrt")
        for call in (torch.add, torch.maximum, torch.atan2):
            self._test_op(mesh, call, x, y)
        for call in (torch.nn.functional.gelu, lambda x: x.softmax(-1), lambda x: x.mean(0), torch.transpose):
            self._test_op(mesh, call, x, *((0, 1) if call is torch.transpose else ()))
        self._test_op(mesh, torch.mm, x, y.t().contiguous())

    @common_dtensor.with_comms
    def test_columns_and_rows(self) -> None:
        mesh = self.build_device_mesh()
        whole, parts = (common_dtensor.MLPModule("pjrt").to("pjrt") for _ in range(2))
        parts.load_state_dict(whole.state_dict())
        parallelize_module(parts, mesh, {"net1": ColwiseParallel(), "net2": RowwiseParallel()})
        torch.manual_seed(1)
        x = torch.randn(8, 10, device="pjrt")
        for _ in range(2):
            of_whole, of_parts = whole(x), parts(x)
            self.assertEqual(of_whole, of_parts)
            for module, out in ((whole, of_whole), (parts, of_parts)):
                module.zero_grad()
                out.square().sum().backward()
        self.assertEqual(whole.net1.weight.grad, parts.net1.weight.grad.full_tensor())

    @common_dtensor.with_comms
    def test_transformer(self) -> None:
        size = common_dtensor.ModelArgs(dropout_p=0.0, weight_tying=False)
        torch.manual_seed(0)
        whole, parts = (common_dtensor.Transformer(size).to("pjrt") for _ in range(2))
        parts.load_state_dict(whole.state_dict())
        mesh = self.build_device_mesh()
        parts = common_dtensor.Transformer.parallelize(parts, mesh, use_seq_parallel=True, local_output_for_attn=True)
        tokens = torch.randint(size.vocab_size, (4, 8), device="pjrt")
        for module in (whole, parts):
            optimizer = torch.optim.Adam(module.parameters(), lr=0.1, foreach=False)
            module(tokens).sum().backward()
            optimizer.step()
        self.assertEqual(whole(tokens), parts(tokens), rtol=1e-3, atol=1e-3)


class Fsdp(common_fsdp.FSDPTest):
    world_size = SIZE  # type: ignore[assignment]

    def begin(self) -> None:
        dist.init_process_group("pjrt", init_method=self.init_method, world_size=SIZE, rank=RANK)

    def test_parity_with_ddp(self) -> None:
        self.begin()
        self._test_fsdp_parity(
            common_fsdp.NestedWrappedModule,
            common_fsdp.FSDPInitMode.RECURSIVE,
            device_init_mode=common_fsdp.DEVICEInitMode.DEVICE_BEFORE,
            use_orig_params=True,
        )

    def test_sharded_parity(self) -> None:
        self.begin()
        torch.manual_seed(0)
        whole = common_fsdp.MLPStack(8).to("pjrt")
        parts = common_fsdp.MLPStack(8).to("pjrt")
        parts.load_state_dict(whole.state_dict())
        for module in (*parts, parts):
            fully_shard(module)
        whole_steps, part_steps = (torch.optim.Adam(each.parameters(), lr=1e-2) for each in (whole, parts))
        torch.manual_seed(42 + RANK)
        x = torch.randn(4, 8, device="pjrt")
        with common_fsdp.patch_reduce_scatter(torch.distributed.reduce_scatter_tensor):
            for _ in range(3):
                for module, optimizer in ((whole, whole_steps), (parts, part_steps)):
                    optimizer.zero_grad()
                    module(x).sum().backward()
                    if module is whole:
                        for parameter in whole.parameters():
                            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
                    optimizer.step()
                common_fsdp.check_sharded_parity(self, whole, parts)


def run(kind: Callable[[str], Any], name: str) -> None:
    case = kind(name)
    case.rank, case.file_name = RANK, f"{FOLDER}/{name}"
    getattr(case, name)()
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


run_all = [(kind, name) for kind in (Dtensors, Fsdp) for name in vars(kind) if name.startswith("test_")]
for kind, name in run_all:
    run(kind, name)
print(json.dumps(len(run_all)))
sys.stdout.flush()
os._exit(0)
