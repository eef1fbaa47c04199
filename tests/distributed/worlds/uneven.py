"""Dimensions that don't divide among the ranks (Note [Ragged]): operators, gradients, trainings, refusals."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, ones
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

import torch_pjrt
from torch_pjrt.distributed import split

dist.init_process_group("pjrt", rank=0, world_size=4)
world = init_device_mesh("pjrt", (4,), mesh_dim_names=("dp",))
grid = init_device_mesh("pjrt", (2, 2), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
X, Y, W = torch.randn(10, 6), torch.randn(10, 7), torch.randn(6, 3)
INDEX, WORDS = torch.tensor([9, 0, 3]), torch.randint(10, (4, 6))
checked = 0


def whole(x: torch.Tensor) -> torch.Tensor:
    return (x.full_tensor() if isinstance(x, DTensor) else x).detach().cpu()


def with_gradient(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().clone().requires_grad_()
    function(leaf).backward()
    assert leaf.grad is not None
    return leaf.grad


# Padding isn't zero here, so that its use would show: each case takes exp(X + 5), Y and W, and indices.
CASES: dict[str, Callable[..., Any]] = {
    "sum": lambda x, y, w, i: x.sum(),
    "mean": lambda x, y, w, i: x.mean(),
    "mean of rows": lambda x, y, w, i: x.mean(1),
    "smallest": lambda x, y, w, i: x.amin(0),
    "product": lambda x, y, w, i: (x * 0.01).prod(0),
    "norm": lambda x, y, w, i: x.norm(),
    "norms": lambda x, y, w, i: torch.stack(list(torch._foreach_norm([x, y]))),
    "in place": lambda x, y, w, i: x.clone().fill_(1.0).add_(1).sum(),
    "lists": lambda x, y, w, i: torch._foreach_mul([x, y[:7]], 2.0)[1],
    "where": lambda x, y, w, i: torch.where(x > 200, x, -x).sum(0),
    "any": lambda x, y, w, i: (x < 0).any(),
    "argmax": lambda x, y, w, i: x.argmax(0),
    "var": lambda x, y, w, i: x.var(0),
    "running": lambda x, y, w, i: x.cumsum(0),
    "softmax": lambda x, y, w, i: (x / 100).softmax(0),
    "sort": lambda x, y, w, i: x.sort(0)[0],
    "reduced over rows": lambda x, y, w, i: x.t() @ y,
    "rows": lambda x, y, w, i: x @ w,
    "flip": lambda x, y, w, i: x.flip(0),
    "slice": lambda x, y, w, i: x[2:5],
    "view": lambda x, y, w, i: x.view(10, 2, 3),
    "cat": lambda x, y, w, i: torch.cat([x, x]),
    "cat of columns": lambda x, y, w, i: torch.cat([x, y], 1),
    "embedding": lambda x, y, w, i: F.embedding(i, x),
    "convolution": lambda x, y, w, i: F.conv1d(x.view(10, 2, 3), w[:4].t()[:2].reshape(2, 2, 2)),
    "norm of layers": lambda x, y, w, i: F.layer_norm(x, (6,)),
    "gradient": lambda x, y, w, i: with_gradient(lambda leaf: (leaf * leaf).mean(), x),
    "gradient of weights": lambda x, y, w, i: with_gradient(lambda leaf: ((x @ leaf) ** 2).sum(), w),
}
CASES |= {
    name: lambda x, y, w, i, loss=loss: with_gradient(lambda leaf: loss((leaf / 300).sigmoid(), x / 9000), x)
    for name, loss in {
        "mse_loss": F.mse_loss,
        "smooth_l1_loss": F.smooth_l1_loss,
        "huber_loss": F.huber_loss,
        "binary_cross_entropy": F.binary_cross_entropy,
        "mse_loss, summed": lambda x, y: F.mse_loss(x, y, reduction="sum"),
    }.items()
}
LAYOUTS: list[tuple[Any, list[Any]]] = [(world, [Shard(0)]), (grid, [Shard(0), Shard(0)]), (grid, [Shard(1), Shard(0)])]
for mesh, placements in LAYOUTS:
    rows = (distribute_tensor(X, mesh, placements) + 5).exp()
    beside = distribute_tensor(Y, mesh, placements)
    copies = [distribute_tensor(t, mesh, [Replicate()] * mesh.ndim) for t in (W, INDEX)]
    for name in CASES if mesh is world else ("sum", "smallest", "argmax", "reduced over rows", "norms"):
        right, found = CASES[name]((X + 5).exp(), Y, W, INDEX), CASES[name](rows, beside, *copies)
        # Sums of float32 in another order; CPU eager's also differ between machines.
        torch.testing.assert_close(whole(found), right, rtol=1e-5, atol=1e-5, msg=f"{name} {placements}")
        checked += 1
rows = (distribute_tensor(X, world, [Shard(0)]) + 5).exp()
for gathers, reduce in ((False, torch.Tensor.norm), (False, torch.Tensor.sum), (True, torch.Tensor.prod)):
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()
    reduce(rows * 0.01).full_tensor().cpu()
    assert ("all_gather" in torch_pjrt.metrics()["collectives"]) == gathers  # of what is added up, nothing is
smallest = torch.linalg.vector_norm(rows, -float("inf")).full_tensor().item()
assert smallest == pytest.approx((X + 5).exp().min().item(), rel=1e-5)
few = distribute_tensor(X[:3], world, [Shard(0)])  # one rank has no row
torch.testing.assert_close(whole((few + 1).exp().amin(0)), (X[:3] + 1).exp().amin(0))
assert ones(10, 4, device_mesh=world, placements=[Shard(0)]).sum().full_tensor().item() == 40
compiled = torch.compile(lambda t: (t * 2 + 1).exp().sum(), backend="pjrt", fullgraph=True)
torch.testing.assert_close(whole(compiled(distribute_tensor(X, world, [Shard(0)]))), (X * 2 + 1).exp().sum())

# A vocabulary, hidden units of both, and FSDP2's parameters.
alone: Any = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10))
words = {"0": RowwiseParallel(input_layouts=Replicate()), "1": ColwiseParallel(output_layouts=Replicate())}
model: Any = parallelize_module(copy.deepcopy(alone).to("pjrt"), world, words)
for one, tokens in ((alone, WORDS), (model, WORDS.to("pjrt"))):
    by = torch.optim.AdamW(one.parameters(), 0.1, foreach=False)
    for _ in range(2):
        by.zero_grad()
        F.cross_entropy(one(tokens).flatten(0, 1), tokens.flatten()).backward()
        by.step()
for right, found in zip(alone.parameters(), model.parameters(), strict=True):
    torch.testing.assert_close(whole(found), right.detach(), rtol=1e-4, atol=1e-4)


def network(hidden: int) -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, hidden), nn.ReLU(), nn.Linear(hidden, 16))


PLAN = {"0": ColwiseParallel(), "2": RowwiseParallel()}
B = torch.randn(8, 16)
alone, model = network(6), parallelize_module(network(6).to("pjrt"), grid["tp"], PLAN)
strided = fully_shard(model, mesh=grid["dp"])  # three rows of a rank among two
for one, x in ((alone, B), (model, split(B, grid["dp"]))):
    by = torch.optim.SGD(one.parameters(), 0.1, foreach=False)
    for _ in range(2):
        by.zero_grad()
        (one(x) ** 2).mean().backward()
        by.step()
for right, found in zip(alone.parameters(), model.parameters(), strict=True):
    torch.testing.assert_close(whole(found), right.detach(), rtol=1e-4, atol=1e-5)
model = fully_shard(network(7).to("pjrt"), mesh=world)
with torch.no_grad():
    first = next(model.parameters()).fill_(1.0)
    assert first.sum().full_tensor().item() == 7 * 16
    first._local_tensor.fill_(0.01)
scaler, by = torch.amp.GradScaler("pjrt"), torch.optim.SGD(model.parameters(), 0.1)
scaler.scale((model(split(B, world)) ** 2).mean()).backward()
norm = clip_grad_norm_(model.parameters(), 1e9)
wanted = torch.stack([whole(p.grad).norm() for p in model.parameters()]).norm()  # type: ignore[arg-type]
torch.testing.assert_close(whole(norm), wanted, rtol=1e-4, atol=0)
last = (world.get_local_rank() == 3).tensor()
for p in model.parameters():
    if p.shape[0] == 7:
        grad: Any = p.grad
        grad._local_tensor[1].masked_fill_(last, float("inf"))
scaler.step(by)
assert scaler._found_inf_per_device(by)[torch.device("pjrt", 0)].item() == 0  # that was padding

with pytest.raises(NotImplementedError, match=r"to_local\(\): a dimension of 10 among 4 ranks.*Replicate\(\)"):
    distribute_tensor(X, world, [Shard(0)]).to_local()
head = {"1": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}
model = parallelize_module(nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10)).to("pjrt"), world, head)
with loss_parallel(), pytest.raises(NotImplementedError, match=r"loss_parallel.*a dimension of 10 among 4.*pad it"):
    F.cross_entropy(model(WORDS.to("pjrt")).flatten(0, 1), WORDS.to("pjrt").flatten())
torch_pjrt.sync()
print(json.dumps(checked))
