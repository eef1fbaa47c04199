"""What compiling a graph costs, and running it call by call, beside what src/engine/tier/cost.cpp predicts; and the
constants of its table as these graphs would have them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import nnls
from torch import nn
from torch.nn import functional as F

import torch_pjrt
from measure import Result
from torch_pjrt import _C

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from models.resnet import resnet18

COMPILE = ("kCompileGraph", "kCompileCall", "kCompileHeavy")
CALLS = ("kCall", "1 / kBytesInNs", "1 / kFlopsInNs")
Graph = Callable[[], list[torch.Tensor]]


def trained(net: nn.Module, *shape: int) -> Graph:
    """Forward and backward: the gradients are pending."""
    net, x = net.to("pjrt"), torch.rand(shape).to("pjrt")

    def gradients() -> list[torch.Tensor]:
        result = net(x)
        loss = (result[0] if isinstance(result, tuple) else result).square().mean()
        return list(torch.autograd.grad(loss, [*net.parameters()]))

    return gradients


def adam(count: int, size: int) -> Graph:
    values, gradients, first, second = ([torch.rand(size).to("pjrt") for _ in range(count)] for _ in range(4))

    def step() -> list[torch.Tensor]:
        m = torch._foreach_lerp(first, gradients, 0.1)
        v = torch._foreach_addcmul(torch._foreach_mul(second, 0.999), gradients, gradients, 0.001)
        root = torch._foreach_add(torch._foreach_sqrt(v), 1e-8)
        return [*torch._foreach_addcdiv(values, m, root, -0.001), *m, *v]

    return step


def on(shape: tuple[int, ...], function: Callable[[torch.Tensor], torch.Tensor]) -> Graph:
    x = torch.rand(shape).to("pjrt")
    return lambda: [function(x)]


def chained(times: int, function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def run(x: torch.Tensor) -> torch.Tensor:
        for i in range(times):
            x = function(x) + i % 7  # no loop with a period
        return x

    return run


def graphs() -> dict[str, Graph]:
    mlp = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10))
    convolutions = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU()
    )
    attention = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)
    return {
        "one addition": on((100,), lambda x: x + 1),
        "notebook": on((1000, 20), lambda x: (x.softmax(1) - x.std(0)).sort(1)[0][:3]),
        "elementwise": on((200, 200), chained(10, torch.sin)),
        "elementwise, large": on((4000, 1000), chained(5, torch.tanh)),
        "products": on((300, 300), chained(8, lambda x: x @ x)),
        "products, large": on((700, 700), chained(2, lambda x: x @ x)),
        "sorts": on((500, 100), lambda x: x.sort(0)[0].cumsum(1).topk(5)[0]),
        "MLP": trained(mlp, 32, 64),
        "convolutions": trained(convolutions, 8, 3, 64, 64),
        "LSTM": trained(nn.LSTM(32, 64, batch_first=True), 8, 12, 32),
        "transformer": trained(attention, 8, 32, 64),
        "Adam": adam(20, 10_000),
        "ResNet-18": trained(resnet18(), 4, 3, 96, 96),
        "cross entropy": on((64, 500), lambda x: F.cross_entropy(x, torch.arange(64, device=x.device))),
    }


def spent(graph: Graph, policy: str, clock: str) -> float:
    """Nanoseconds of that clock of metrics(), of one run of the graph."""
    _C.set_compile_policy(policy)
    pending = graph()
    before = torch_pjrt.metrics()[clock]
    torch_pjrt.sync(pending)
    torch.pjrt.synchronize()
    return float(torch_pjrt.metrics()[clock] - before) * 1e9


def fitted(terms: list[list[float]], measured: list[float]) -> np.ndarray:
    """No constant is negative, and each graph counts alike."""
    weights = 1 / np.array(measured)
    return nnls(np.array(terms) * weights[:, None], np.ones(len(measured)))[0]


def off(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """By which factor, for the median graph."""
    return float(2 ** np.median(np.abs(np.log2(np.array(predicted) / np.array(measured)))))


def measure() -> list[Result]:
    results, compile_terms, call_terms, compiles, calls, table = [], [], [], [], [], []
    before = os.environ.get("TORCH_PJRT_COMPILE", "auto")
    for name, graph in graphs().items():
        work = _C._bench_costs(graph())
        count = int(work["light_calls"] + work["heavy_calls"])
        calls.append(spent(graph, "auto", "execute_seconds"))  # once: the second time, its compile begins beside it
        compiles.append(spent(graph, "first", "compile_seconds"))
        table.append((work["compile"], work["calls"]))
        compile_terms.append([1, work["light_calls"], work["heavy_calls"]])
        call_terms.append([count, work["bytes"], work["flops"]])
        for what, predicted, took in (
            ("compile", work["compile"], compiles[-1]),
            ("by calls", work["calls"], calls[-1]),
        ):
            line = (predicted * 1e-9, took * 1e-9, predicted / took)
            results.append(Result(f"{name}, {count} calls: {what}", *line, None, against="measured"))
    _C.set_compile_policy(before)
    for names, terms, took, by_table in (
        (COMPILE, compile_terms, compiles, [c for c, _ in table]),
        (CALLS, call_terms, calls, [c for _, c in table]),
    ):
        constants = fitted(terms, took)
        print("  ".join(f"{n} {c:,.4g}" for n, c in zip(names, constants, strict=True)), end=" ns, ")
        print(
            f"off by a factor of {off(np.array(terms) @ constants, took):.2f}; the table by {off(by_table, took):.2f}"
        )
    return results
