"""Techniques for training large models besides sharding: clipping, mixed precision, checkpointing, optimizers."""

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.func import functional_call
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, get_total_norm
from torch.utils.checkpoint import checkpoint

import torch_pjrt
from tests.distributed.worlds.four import RANKS, X, Y, grid, network, sharded, world
from torch_pjrt.distributed import split

STEPS = 3
Optimizer = Callable[[Any], torch.optim.Optimizer]
done: list[str] = []


def number(x: torch.Tensor) -> float:
    return float((x.full_tensor() if isinstance(x, DTensor) else x).item())


def compare(alone: nn.Module, model: nn.Module, tolerance: float = 1e-5) -> None:
    for (key, right), found in zip(alone.named_parameters(), model.parameters(), strict=True):
        assert isinstance(found, DTensor)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a copy that said it was the first rank's alone
            whole = found.full_tensor().detach().cpu()
        torch.testing.assert_close(whole, right.detach(), rtol=tolerance, atol=tolerance, msg=key)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.05)


def train(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, optimizer: Optimizer, clip: dict[str, Any] | None = None
) -> list[float]:
    by, norms = optimizer(model.parameters()), []
    for _ in range(STEPS):
        by.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        if clip:
            norms.append(clip_grad_norm_(model.parameters(), 0.1, **clip))
        by.step()
    return list(map(number, norms))


def alike(
    optimizer: Optimizer = sgd,
    clip: dict[str, Any] | None = None,
    tolerance: float = 1e-5,
    shard: Callable[[nn.Sequential], nn.Module] = sharded,
    part: Callable[[torch.Tensor], torch.Tensor] = lambda x: split(x, world),
) -> None:
    alone, model = network(), shard(network().to("pjrt"))
    wanted = train(alone, X, Y, optimizer, clip)
    torch_pjrt.reset_metrics()
    found = train(model, part(X), part(Y), optimizer, clip)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    compare(alone, model, tolerance)


def clipping() -> None:
    for clip in (
        {"norm_type": 2.0},
        {"norm_type": 1.0},
        {"norm_type": float("inf")},
        {"foreach": False},
        {"error_if_nonfinite": True},
    ):
        alike(clip=clip)
        done.append(str(clip))
    grid_part = lambda x: split(split(x, grid["dp"]), grid["tp"])  # noqa: E731
    alike(clip={"norm_type": 2.0}, shard=lambda model: sharded(model, grid), part=grid_part)

    def tensor_parallel(model: nn.Sequential) -> nn.Module:
        parallelize_module(model, grid["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        return sharded(model, grid["dp"])

    alike(clip={"norm_type": 2.0}, shard=tensor_parallel, part=lambda x: split(x, grid["dp"]))
    alone, model = network(), sharded(network().to("pjrt"))
    for one, x, y in ((alone, X, Y), (model, split(X, world), split(Y, world))):
        ((one(x) - y) ** 2).mean().backward()
    norms = [get_total_norm([p.grad for p in one.parameters() if p.grad is not None]) for one in (alone, model)]
    assert norms[0].item() == pytest.approx(norms[1].item(), rel=1e-5)
    partial = next(model.parameters()).detach().norm()
    whole = next(alone.parameters()).detach().norm()
    assert partial.item() == pytest.approx(whole.item(), rel=1e-5)  # processes read their own shard's
    for one in (alone, model):
        clip_grad_value_(one.parameters(), 0.01)
        sgd(one.parameters()).step()
    compare(alone, model)


def mixed_precision() -> None:
    """Compared with the same rounding on the CPU: each rank's gradients in bfloat16, and their mean in float32."""
    alone = network()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = sharded(network().to("pjrt"), mp_policy=policy)
    seen: list[torch.dtype] = []
    model[0].register_forward_hook(lambda _, args, result: seen.extend((args[0].dtype, result.dtype)))
    train(model, split(X, world), split(Y, world), sgd)
    assert set(seen) == {torch.bfloat16}
    by = sgd(alone.parameters())
    for _ in range(STEPS):
        by.zero_grad()
        for x, y in zip(X.chunk(RANKS), Y.chunk(RANKS), strict=True):
            rounded = {name: p.bfloat16() for name, p in alone.named_parameters()}
            loss = ((functional_call(alone, rounded, (x.bfloat16(),)) - y) ** 2).mean()
            (loss / RANKS).backward()
        by.step()
    compare(alone, model, 1e-3)
    whole = network()
    train(whole, X, Y, sgd)
    with pytest.raises(AssertionError):
        compare(whole, model, 1e-6)  # it was not float32
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16, output_dtype=torch.float32)
    model = sharded(network().to("pjrt"), mp_policy=policy)
    assert model(split(X, world)).dtype == torch.float32
    train(model, split(X, world), split(Y, world), sgd)
    compare(whole, model, 2e-2)
    assert {p.dtype for p in model.parameters()} == {torch.float32}


class Recomputed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(self.inner, x, use_reentrant=False)
        return result


def recomputing() -> None:
    def wrapped(model: nn.Sequential) -> nn.Module:
        return sharded(nn.Sequential(*(checkpoint_wrapper(layer) for layer in model)))

    alike(shard=wrapped)
    alone, model = Recomputed(), Recomputed().to("pjrt")
    sharded(model.inner)
    fully_shard(model, mesh=world)
    train(alone, X, Y, sgd)
    train(model, split(X, world), split(Y, world), sgd)
    compare(alone, model)


def gathering() -> None:
    """Parameters that stay gathered after forward, are sharded again, or stay gathered on some of the ranks; and
    gradients that are summed over several backwards before they are reduced."""
    counts = {}
    for after in (True, False, 2):
        alike(shard=lambda model, after=after: sharded(model, reshard_after_forward=after))  # type: ignore[misc]
        counts[after] = torch_pjrt.metrics()["collectives"]["all_gather"]
    assert counts[True] > counts[False]
    alone, model = network(), sharded(network().to("pjrt"))
    assert isinstance(model, FSDPModule)
    for one, x, y in ((alone, X, Y), (model, split(X, world), split(Y, world))):
        by = sgd(one.parameters())
        for last in (False, True):
            model.set_requires_gradient_sync(last)
            ((one(x) - y) ** 2).mean().backward()
        by.step()
    compare(alone, model)
    with pytest.raises(NotImplementedError, match=r"CPUOffloadPolicy keeps one shard on the host.*torchrun"):
        sharded(network().to("pjrt"), offload_policy=CPUOffloadPolicy())


def optimizers() -> None:
    for kind in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta", "ASGD"):
        for how in ({"foreach": True}, {"foreach": False}, {"fused": True}):
            if "fused" in how and kind not in ("Adam", "AdamW"):
                continue  # DTensor has no placements for PyTorch's other fused steps
            make = lambda p, kind=kind, how=how: getattr(torch.optim, kind)(p, lr=0.01, **how)  # noqa: E731
            alike(make, tolerance=1e-4)
            done.append(f"{kind} {how}")
    for kind in ("SGD", "Adagrad"):
        make = lambda p, kind=kind: getattr(torch.optim, kind)(p, lr=0.01, fused=True)  # noqa: E731
        with pytest.raises(NotImplementedError, match=f"_fused_{kind.lower()}_.*sharding strategy"):
            alike(make)
    with pytest.raises(RuntimeError, match=r"aten.pow_.Scalar: in-place operations that require placement changes"):
        alike(lambda p: torch.optim.Adafactor(p, lr=0.01))  # of processes, each rank takes its own shard's norm


name = sys.argv[1]
{
    "clipping": clipping,
    "mixed precision": mixed_precision,
    "recomputing": recomputing,
    "gathering": gathering,
    "optimizers": optimizers,
}[name]()
print(json.dumps([*done, name]))
