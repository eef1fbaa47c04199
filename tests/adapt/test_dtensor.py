"""DTensor, tensor parallel and FSDP2 over tensors of the device, compared with the CPU. ``"fake"`` groups have four
ranks, which communicate nothing and return approximate results."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import AllgatherOptions
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import scaled_dot_product_attention
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

import torch_pjrt
from torch_pjrt import _C

DEVICE = "pjrt"
Backend = str


def end_of_world() -> None:
    """Clears PyTorch's cache for a mesh, which has the groups of the first equal mesh. There is one for each thread,
    and autograd has a thread for the device."""
    x = torch.ones(1, device=DEVICE, requires_grad=True)
    x.register_hook(lambda _: _clear_sharding_prop_cache())
    x.sum().backward()
    _clear_sharding_prop_cache()
    dist.destroy_process_group()


@pytest.fixture(params=["fake", "gloo"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    if request.param == "fake":
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    else:
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield request.param
    end_of_world()


@pytest.fixture
def fake() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield
    end_of_world()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16, bias=bias) for bias in (True, False, False, True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (f(x).unflatten(-1, (-1, 4)).transpose(1, 2) for f in (self.q, self.k, self.v))
        result: torch.Tensor = self.o(scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return result


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        result: torch.Tensor = x + self.down(torch.nn.functional.silu(self.up(x)))
        return result


def network(device: str) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block()).to(device)


def mesh_of(device: str) -> DeviceMesh:
    return init_device_mesh(device, (dist.get_world_size(),), mesh_dim_names=("ranks",))


def tensor_parallel(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    columns, rows = ("attention.q", "attention.k", "attention.v", "up"), ("attention.o", "down")
    for block in model.children():
        plan: dict[str, Any] = {name: ColwiseParallel() for name in columns}
        parallelize_module(block, mesh, {**plan, **{name: RowwiseParallel() for name in rows}})
    return model


def sharded(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    for block in model.children():
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


WAYS = {"tensor parallel": tensor_parallel, "FSDP2": sharded}
Way = Callable[[nn.Module, DeviceMesh], nn.Module]


def trained(device: str, way: Way) -> list[torch.Tensor]:
    model = way(network(device), mesh_of(device))
    optimizer = adam(model)
    torch.manual_seed(1)
    losses = [step(model, optimizer, torch.randn(2, 6, 16).to(device)) for _ in range(3)]
    return [t.cpu() for t in (*losses, *(local(p.detach()) for p in model.parameters()))]


@pytest.mark.filterwarnings("ignore:.*runs on the host")  # a device with a memory of its own warns of gloo
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_training_is_the_cpus(backend: Backend, way: Way) -> None:
    torch.testing.assert_close(trained(DEVICE, way), trained("cpu", way), rtol=1e-4, atol=1e-5)


# --- groups -----------------------------------------------------------------------------------------------------------


def test_groups_serve_the_device(backend: Backend) -> None:
    for group in (dist.group.WORLD, dist.new_group([0])):
        assert isinstance(group, dist.ProcessGroup)
        assert group._get_backend(torch.device(DEVICE)).name() == backend
        assert group._get_backend(torch.device("cpu")).name() == backend
        assert distributed_c10d._get_pg_default_device(group) == torch.device("cpu")  # where pickled objects go
    dist.barrier()


@pytest.mark.host_memory
def test_a_group_that_is_bound_to_the_device(tmp_path: Path) -> None:
    where = f"file://{tmp_path}/store"
    dist.init_process_group(
        "gloo",
        init_method=where,
        rank=0,
        world_size=1,
        device_id=torch.device(DEVICE, 0),
        timeout=timedelta(seconds=60),
    )
    try:
        x = torch.ones(3, device=DEVICE)
        dist.all_reduce(x)
        dist.barrier()
        assert x.tolist() == [1, 1, 1]
    finally:
        dist.destroy_process_group()


def test_what_is_patched_is_there() -> None:
    inner = inspect.unwrap(distributed_c10d._new_process_group_helper)
    assert inner is not distributed_c10d._new_process_group_helper
    assert "device_id" in inspect.signature(inner).parameters
    assert {"_get_backend", "_register_backend", "_device_types"} <= set(dir(dist.ProcessGroup))


def of_two(run: Callable[[Any, int], None]) -> None:
    """Runs two ranks, a thread each, with backends that really communicate."""
    store, errors = dist.HashStore(), []

    def rank(rank: int) -> None:
        try:
            gloo = dist.ProcessGroupGloo(store, rank, 2, timedelta(seconds=60))
            run(_C.host_backend(gloo, _C.Attendance(store, [0, 1], rank)), rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=rank, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def on(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32, device=DEVICE)


@pytest.mark.host_memory
def test_collectives_by_way_of_the_host() -> None:
    def run(group: Any, rank: int) -> None:
        mine = on(1.0, 2.0, 3.0, 4.0) * (rank + 1)
        x = mine.clone()
        work = group.allreduce([x], dist.AllreduceOptions())
        assert work.is_completed()
        work.wait()
        assert x.tolist() == [3, 6, 9, 12]
        assert [t.tolist() for t in work.get_future().wait()] == [[3, 6, 9, 12]]
        x = (mine.view(2, 2) * 1).t()  # by elements, not by memory
        group.broadcast([x], dist.BroadcastOptions()).wait()
        assert x.tolist() == [[1, 3], [2, 4]]
        x = on(0, 0, 0, 0, 0, 0, 0, 0)
        group._allgather_base(x, mine, AllgatherOptions()).wait()
        assert x.tolist() == [1, 2, 3, 4, 2, 4, 6, 8]
        parts = [[on(0, 0, 0, 0), on(0, 0, 0, 0)]]
        group.allgather(parts, [mine], AllgatherOptions()).wait()
        assert torch.cat(parts[0]).tolist() == x.tolist()
        x = on(0, 0)
        group._reduce_scatter_base(x, mine, dist.ReduceScatterOptions()).wait()
        assert x.tolist() == [[3, 6], [9, 12]][rank]
        x, parts = on(0, 0), [[on(1, 2), on(3, 4)]] if rank == 0 else []
        group.scatter([x], parts, dist.ScatterOptions()).wait()
        assert x.tolist() == [[1, 2], [3, 4]][rank]
        x = on(0, 0, 0, 0)
        group.alltoall_base(x, mine, [2, 2], [2, 2], dist.AllToAllOptions()).wait()
        assert x.tolist() == [[1, 2, 2, 4], [3, 4, 6, 8]][rank]
        x = on(0, 0, 0, 0)  # each waits for the other
        sent, received = group.send([mine], 1 - rank, 7), group.recv([x], 1 - rank, 7)
        received.wait()
        sent.wait()
        assert (x * (rank + 1)).tolist() == (on(1.0, 2.0, 3.0, 4.0) * 2).tolist()
        group.barrier(dist.BarrierOptions()).wait()

    torch_pjrt.reset_metrics()
    of_two(run)
    reported = torch_pjrt.metrics()["host_fallbacks"]
    assert reported["c10d::allreduce_"] == reported["c10d::send"] == reported["c10d::recv_"] == 2


@pytest.mark.host_memory
def test_a_collective_is_none_of_autograds_writes(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        x = torch.ones(3, device=DEVICE, requires_grad=True)
        y = x * 2
        before = y._version
        with torch.no_grad():
            dist.all_reduce(y)
        assert y._version == before
        with torch_pjrt.strict_mode(), pytest.raises(RuntimeError, match=r"c10d::allreduce_\] would run on the host"):
            dist.all_reduce(y.detach())
    finally:
        dist.destroy_process_group()


# --- what DTensor sees ------------------------------------------------------------------------------------------------


class Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.ops: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops.add(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("split", [Shard(0), Shard(1)])
@pytest.mark.parametrize("key_heads", [8, 4])
@pytest.mark.parametrize(
    ("causal", "mask_shape"),
    [(False, None), (True, None), (False, (4, 8, 6, 6)), (False, (6, 6)), (False, (1, 8, 1, 6))],
)
def test_attention_is_split_by_batch_and_head(
    fake: None, split: Any, key_heads: int, causal: bool, mask_shape: tuple[int, ...] | None
) -> None:
    """Each rank's part is that part of the whole; a mask that all ranks share gets a part of its gradient from each."""

    def attended(*tensors: torch.Tensor) -> list[torch.Tensor]:
        mask = tensors[3] if mask_shape else None
        result = scaled_dot_product_attention(*tensors[:3], mask, is_causal=causal, enable_gqa=key_heads != 8)
        return [result, *torch.autograd.grad(result.square().sum(), tensors)]

    mesh = mesh_of(DEVICE)
    whole = [torch.randn(4, heads, 6, 8) for heads in (8, key_heads, key_heads)]
    parts = [t.chunk(4, split.dim)[0] for t in whole]
    places = [split] * 3
    if mask_shape:
        whole.append(torch.randn(mask_shape))
        dim = split.dim - 4 + len(mask_shape)
        is_split = dim >= 0 and mask_shape[dim] > 1
        places.append(Shard(dim) if is_split else Replicate())
        parts.append(whole[3].chunk(4, dim)[0] if is_split else whole[3])
    wanted = attended(*(t.clone().requires_grad_() for t in parts))
    placed = zip(whole, places, strict=True)
    inputs = [distribute_tensor(t.to(DEVICE), mesh, [place]).requires_grad_() for t, place in placed]
    with Seen() as seen:
        found = attended(*inputs)
    assert "aten._scaled_dot_product_fused_attention_overrideable.default" in seen.ops
    assert all(isinstance(t, DTensor) and t.placements == (split,) for t in found[:4])
    locals_ = [local(t.detach()).cpu() for t in found]
    torch.testing.assert_close(locals_, [t.detach() for t in wanted], rtol=1e-4, atol=1e-5)


class Other(torch.Tensor):
    """A subclass that stores a table of its ops, as most do."""

    seen: ClassVar[set[str]] = set()
    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Other:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.add(str(func))
        args, kwargs = torch.utils._pytree.tree_map_only(Other, lambda t: t.inner, (args, kwargs or {}))
        return torch.utils._pytree.tree_map_only(torch.Tensor, Other, func(*args, **kwargs))


def test_other_subclasses_see_what_attention_is_made_of() -> None:
    q, k, v = torch.randn(3, 2, 4, 6, 8).unbind()
    for which in range(3):
        Other.seen.clear()
        mixed = [Other(t.to(DEVICE)) if i == which else t.to(DEVICE) for i, t in enumerate((q, k, v))]
        result = scaled_dot_product_attention(*mixed, is_causal=True)
        assert isinstance(result, Other)
        assert not any("scaled_dot_product" in op for op in Other.seen)
        torch.testing.assert_close(result.inner.cpu(), scaled_dot_product_attention(q, k, v, is_causal=True))


def test_attention_of_plain_tensors_is_not() -> None:
    q, k, v = torch.randn(3, 2, 4, 6, 8).to(DEVICE).unbind()
    with Seen() as seen:
        scaled_dot_product_attention(q, k, v)
    assert "aten._scaled_dot_product_fused_attention_overrideable.default" in seen.ops


@pytest.mark.parametrize("shape", [(5, 8), (2, 5, 8)])
@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Replicate()])
@pytest.mark.parametrize("bias", [False, True])
def test_linear_is_taken_apart(fake: None, shape: tuple[int, ...], placement: Any, bias: bool) -> None:
    def applied(device: str) -> list[torch.Tensor]:
        mesh = mesh_of(device)
        torch.manual_seed(3)
        x, w, b = torch.randn(*shape).to(device), torch.randn(16, 8).to(device), torch.randn(16).to(device)
        inputs = [DTensor.from_local(x, mesh, [Replicate()]), distribute_tensor(w, mesh, [placement])]
        if bias:
            inputs.append(distribute_tensor(b, mesh, [placement if placement == Shard(0) else Replicate()]))
        for tensor in inputs:
            tensor.requires_grad_()
        result = torch.nn.functional.linear(*inputs)
        grads = torch.autograd.grad(result.sum(), inputs)
        return [local(t.detach()).cpu() for t in (result, *grads)]

    torch.testing.assert_close(applied(DEVICE), applied("cpu"), rtol=1e-4, atol=1e-5)


# --- when work starts -------------------------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_step_is_one_program_and_ends_at_the_optimizer(fake: None, way: Way) -> None:
    model = way(network(DEVICE), mesh_of(DEVICE))
    optimizer = adam(model)
    batches = [torch.randn(2, 6, 16) for _ in range(5)]
    reported = []
    for batch in batches:
        torch_pjrt.reset_metrics()
        loss = step(model, optimizer, batch.to(DEVICE))
        assert not any(_C.is_pending(local(p.detach())) for p in model.parameters())
        assert not _C.is_pending(loss)
        metrics = torch_pjrt.metrics()
        assert metrics["host_fallbacks"] == {}
        reported.append((metrics["syncs"], metrics["graphs_compiled"]))
    assert reported[2:] == [(1, 0)] * 3
