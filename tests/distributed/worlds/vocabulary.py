"""A vocabulary sharded over ranks: its embedding, logits and loss, and maxima of sharded dimensions."""

import itertools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from torch.nn.functional import cross_entropy

import torch_pjrt

WORDS, WIDTH = 24, 16
dist.init_process_group("pjrt", rank=0, world_size=4)
world = init_device_mesh("pjrt", (4,))
grid = init_device_mesh("pjrt", (2, 2), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
T, NEXT = torch.randint(WORDS, (4, 6)), torch.randint(WORDS, (4, 6))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.words(tokens))
        return result


def whole(x: Any) -> torch.Tensor:
    result: torch.Tensor = (x.full_tensor() if isinstance(x, DTensor) else x).detach().cpu()
    return result


def compare(plan: dict[str, Any], mesh: DeviceMesh, weight: torch.Tensor | None = None, **how: Any) -> None:
    """Compares three steps. The loss of logits that are sharded by words is computed in parallel."""
    alone, model = Model(), parallelize_module(Model().to("pjrt"), mesh, plan)
    a, b = (torch.optim.SGD(one.parameters(), 0.5) for one in (alone, model))
    sharded_weight = distribute_tensor(weight.to("pjrt"), mesh, [Replicate()]) if weight is not None else None
    torch_pjrt.reset_metrics()
    for _ in range(3):
        wanted = cross_entropy(alone(T).flatten(0, 1), NEXT.flatten(), weight, **how)
        wanted.backward()
        logits = model(T.to("pjrt"))
        with loss_parallel():
            loss = cross_entropy(logits.flatten(0, 1), NEXT.to("pjrt").flatten(), sharded_weight, **how)
            loss.backward()
        torch.testing.assert_close(whole(loss), wanted.detach())
        for by in (a, b):
            by.step()
            by.zero_grad()
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
    for (name, p), q in zip(alone.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(whole(q), p.detach(), rtol=1e-5, atol=1e-5, msg=name)


by_words = RowwiseParallel(input_layouts=Replicate())
for mesh in (world, grid["tp"]):
    compare({"words": by_words, "head": ColwiseParallel(output_layouts=Replicate())}, mesh)
    by_elements = {"words": ColwiseParallel(output_layouts=Replicate())}
    compare({**by_elements, "head": ColwiseParallel(output_layouts=Replicate())}, mesh)
    in_sequence = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    if mesh.size() == 2:  # 6 words in a row
        head = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
        compare({"words": in_sequence, "head": head}, mesh)
    in_parallel = {"words": by_words, "head": ColwiseParallel(use_local_output=False)}
    compare(in_parallel, mesh)
    compare(in_parallel, mesh, ignore_index=3)
    compare(in_parallel, mesh, reduction="sum")
    compare(in_parallel, mesh, weight=torch.rand(WORDS))
model = parallelize_module(Model().to("pjrt"), world, in_parallel)
logits = model(T.to("pjrt"))
assert logits.placements == (Shard(2),)
assert logits.to_local().shape == (4, 6, WORDS // 4)
torch.testing.assert_close(whole(logits), Model()(T).detach())
torch.testing.assert_close(whole(logits.argmax(-1)), Model()(T).argmax(-1))

checked = 0
z = torch.randn(8, 12)


def results(x: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    found: list[tuple[str, torch.Tensor]] = []
    calls: list[tuple[str, tuple[Any, ...]]] = [
        (name, args)
        for name in ("argmax", "argmin", "max", "min")
        for args in ((), *itertools.product((0, 1, -1), (False, True)))
    ]
    calls += [
        ("topk", (3, 1)), ("sort", (1,)), ("cumsum", (1,)), ("softmax", (1,)), ("log_softmax", (1,)), ("std", (0,)),
        ("var", (1,)), ("norm", ()), ("mean", ()), ("prod", (1,)), ("any", ()), ("all", (1,)), ("amax", (1,)),
        ("logsumexp", (1,)), ("median", (1,)), ("norm", (float("inf"),)),
    ]  # fmt: skip
    for name, args in calls:
        result = getattr(x, name)(*args)
        for part in result if isinstance(result, tuple) else (result,):
            found.append((f"{name} {args}", part.full_tensor() if isinstance(part, DTensor) else part))
    return found


uneven = torch.randn(10, 7) - 5  # zeros in the padding would be the largest
for mesh, placements, y in [
    *((world, [p], z) for p in (Replicate(), Shard(0), Shard(1))),
    *((grid, list(pair), z) for pair in itertools.product((Replicate(), Shard(0), Shard(1)), repeat=2)),
    *((world, [Shard(dim)], uneven) for dim in (0, 1)),
]:
    found = results(distribute_tensor(y, mesh, placements))
    torch_pjrt.sync([f for _, f in found])  # as one program
    for (what, f), (_, w) in zip(found, results(y), strict=True):
        torch.testing.assert_close(f.cpu(), w, msg=f"{what} {placements}")
        checked += 1
x = distribute_tensor(z, world, [Shard(0)])
for name in ("unique", "nonzero"):
    with pytest.raises(RuntimeError, match="Sharding propagation failed"):  # PyTorch's own
        getattr(x, name)()
print(checked)
