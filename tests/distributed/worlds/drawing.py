"""Random numbers of sharded DTensors: each shard has its own, replicas have equal ones, and a seed repeats them."""

from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, ones, rand, randn
from torch.nn.functional import dropout, rrelu, scaled_dot_product_attention

import torch_pjrt
from tests.distributed.worlds.four import grid, of_ranks, world

checked = 0


def shards(x: DTensor) -> list[torch.Tensor]:
    """Returns each rank's shard."""
    return of_ranks(x.to_local())


def drawn(kind: str, mesh: Any, placements: list[Any]) -> DTensor:
    if kind == "randn":
        return randn(64, 32, device_mesh=mesh, placements=placements)
    if kind == "rand":
        return rand(64, 32, device_mesh=mesh, placements=placements)
    x = ones(64, 32, device_mesh=mesh, placements=placements)
    if kind == "dropout":
        return dropout(x, 0.5)
    if kind == "rand_like":
        return torch.rand_like(x)
    if kind == "bernoulli":
        return torch.bernoulli(x * 0.5)
    return getattr(x, kind)()


MEANS = {"randn": 0.0, "rand": 0.5, "rand_like": 0.5, "dropout": 1.0, "bernoulli": 0.5, "normal_": 0.0, "uniform_": 0.5}
LAYOUTS: list[tuple[Any, list[Any]]] = [
    (world, [Shard(0)]),
    (world, [Shard(1)]),
    (grid, [Shard(0), Shard(1)]),
    (grid, [Shard(0), Shard(0)]),
    (grid, [Replicate(), Shard(1)]),
    (grid, [Shard(0), Replicate()]),
]
for kind, mean in MEANS.items():
    for mesh, placements in LAYOUTS:
        torch.manual_seed(7)
        first, second = drawn(kind, mesh, placements), drawn(kind, mesh, placements)
        torch.manual_seed(7)
        again = drawn(kind, mesh, placements)
        assert list(first.placements) == placements, (kind, placements)
        parts = shards(first)
        for a in range(4):
            for b in range(a):
                is_replica = placements[0] == Replicate() and a % 2 == b % 2
                is_replica |= placements[-1] == Replicate() and a // 2 == b // 2
                assert torch.equal(parts[a], parts[b]) == is_replica, (kind, placements, a, b)
        whole = first.full_tensor()
        assert torch.equal(whole.cpu(), again.full_tensor().cpu()), (kind, placements)
        assert not torch.equal(whole.cpu(), second.full_tensor().cpu()), (kind, placements)
        assert abs(whole.mean().item() - mean) < 0.1, (kind, placements)
        checked += 1
x = distribute_tensor(torch.ones(64, 32), world, [Shard(0)]).requires_grad_()
y = dropout(x, 0.5)
y.sum().backward()
assert x.grad is not None
assert torch.equal(x.grad.full_tensor().cpu(), y.full_tensor().detach().cpu())  # the mask is kept
torch.manual_seed(3)
same = randn(8, device_mesh=world, placements=[Replicate()])
torch.manual_seed(3)
assert torch.equal(same.full_tensor().cpu(), torch.randn(8, device="pjrt").cpu())


def seeded() -> torch.Generator:
    return torch.Generator(device="pjrt").manual_seed(3)


for placements in ([Shard(0)], [Replicate()]):
    w = distribute_tensor(torch.zeros(64, 8), world, placements)
    torch.manual_seed(1)
    following = torch.rand(1, device="pjrt").item()
    torch.manual_seed(1)
    one, other = (w.clone().normal_(generator=seeded()).full_tensor().cpu() for _ in range(2))
    assert torch.equal(one, other)
    assert torch.rand(1, device="pjrt").item() == following, "the default generator has moved"
    generator = seeded()
    one, other = (w.clone().normal_(generator=generator).full_tensor().cpu() for _ in range(2))
    assert not torch.equal(one, other)

# Ops for which DTensor has placements and which it doesn't know as random.
aten, P = torch.ops.aten, [Replicate(), Shard(0)]
flat = ones(64, 32, device_mesh=grid, placements=P)
heads = ones(4, 4, 8, 8, device_mesh=grid, placements=P)


def unknown() -> dict[str, DTensor]:
    return {
        "exponential_": flat.clone().exponential_(),
        "geometric_": flat.clone().geometric_(0.3),
        "log_normal_": flat.clone().log_normal_(),
        "cauchy_": flat.clone().cauchy_(),
        "geometric": aten.geometric(flat, 0.3),
        "multinomial": torch.multinomial(flat, 8),
        "normal_functional": aten.normal_functional(flat),
        "rrelu": rrelu(-flat, training=True),
        "attention": scaled_dot_product_attention(heads, heads, heads, dropout_p=0.5),
        "exponential_ by a generator": flat.clone().exponential_(generator=seeded()),
    }


torch.manual_seed(7)
first, second = unknown(), unknown()
torch.manual_seed(7)
again = unknown()
torch_pjrt.sync()
for kind, draw in first.items():
    a, b, c, d = shards(draw)
    assert torch.equal(a, c), kind
    assert torch.equal(b, d), kind
    assert not torch.equal(a, b), kind
    assert torch.equal(draw.full_tensor().cpu(), again[kind].full_tensor().cpu()), kind
    changes = not torch.equal(draw.full_tensor().cpu(), second[kind].full_tensor().cpu())
    assert changes == ("generator" not in kind), kind
    checked += 1
assert torch.equal(*shards(scaled_dot_product_attention(heads, heads, heads))[:2])  # nothing is drawn
assert torch.equal(*shards(rrelu(-flat))[:2])
with pytest.raises(NotImplementedError, match="leave out= out"):
    aten.exponential(flat, out=flat.clone())
parts = DTensor.from_local(-torch.ones(8, 4, device="pjrt"), world, [Partial()])
with pytest.raises(RuntimeError, match=r"'noise' has \(Partial\(sum\),\); redistribute it to"):
    rrelu(parts, training=True)
eye = torch.eye(8).expand(4, 4, 8, 8).contiguous()
value = distribute_tensor(eye, grid, P).requires_grad_()
kept = scaled_dot_product_attention(heads, heads, value, dropout_p=0.5)  # shows the attention matrix after dropout
kept.sum().backward()
assert value.grad is not None
columns = kept.full_tensor().detach().cpu().sum(-2).unsqueeze(-1).expand(4, 4, 8, 8)
torch.testing.assert_close(value.grad.full_tensor().cpu(), columns)  # backward drops the same
print(checked)
