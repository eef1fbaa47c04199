"""Tensors on the device, recorded and compiled: arithmetic, views, autograd, random numbers."""

from __future__ import annotations

from typing import Any

import torch
from beside_cpu import both, both_with_gradients, difference, must, program
from torch import Tensor, nn
from torch.nn import functional as F
from worker import Setting, Values


@program
def machine(setting: Setting) -> Values:
    """Reports the machine; it is not a program."""
    from facts import everything

    return everything(setting.device)


@program
def lazy_arithmetic(setting: Setting) -> Values:
    x, y = torch.randn(33, 65), torch.randn(65, 17)
    return both(setting, lambda a, b: torch.relu(a @ b).softmax(1).cumsum(0) / 3 + a.mean(1, keepdim=True), x, y)


@program
def reductions_and_order(setting: Setting) -> Values:
    x = torch.randn(64, 100)
    return both(setting, lambda a: [a.sum(), a.std(0), a.amax(1), a.sort(1)[0], a.topk(5)[1], a.logsumexp(1)], x)


@program
def indexing_and_scatter(setting: Setting) -> Values:
    x, at = torch.randn(50, 8), torch.randint(0, 50, (20,))

    def call(a: Tensor, i: Tensor) -> list[Tensor]:
        return [a[i], a.index_add(0, i, a[:20]), torch.zeros_like(a).scatter_add(0, i[:, None].expand(20, 8), a[:20])]

    return both(setting, call, x, at)


@program
def autograd(setting: Setting) -> Values:
    tensors = torch.randn(16, 8), torch.randn(32, 8), torch.randn(32), torch.randn(4, 32)
    return both_with_gradients(
        setting, lambda x, w, b, v: F.linear(torch.tanh(F.linear(x, w, b)), v), *tensors, tolerance=1e-4
    )


@program
def convolutions(setting: Setting) -> Values:
    """Checks convolutions with batch norm in training, and with groups."""
    x, w, g, v = torch.randn(4, 3, 20, 20), torch.randn(8, 3, 3, 3), torch.rand(8), torch.randn(8, 1, 3, 3)

    def call(x: Tensor, w: Tensor, g: Tensor, v: Tensor) -> Tensor:
        y = F.batch_norm(F.conv2d(x, w, stride=2, padding=1), None, None, g, training=True)
        return F.max_pool2d(F.conv2d(F.gelu(y), v, groups=8), 2)

    return both_with_gradients(setting, call, x, w, g, v, tolerance=1e-3)


@program
def in_place(setting: Setting) -> Values:
    """Checks that arguments and their views are written in place and keep their memory."""

    def call(x: Tensor) -> Tensor:
        x[1:3].mul_(2)
        x.view(-1)[::3] = 7
        x.add_(1)
        return x.sum()

    wanted = torch.arange(24.0).view(4, 6)
    total = call(wanted)
    found = {}
    for name, device, run in (
        ("lazily", "pjrt", call),
        ("compiled", setting.device, torch.compile(call, backend="pjrt")),
    ):
        for _ in range(2):
            x = torch.arange(24.0).view(4, 6).to(device)
            got = run(x)
            found[name] = difference([got, x], [total, wanted], 1e-5)
    return found


@program
def linear_algebra_and_fourier(setting: Setting) -> Values:
    a = torch.randn(12, 12) + 12 * torch.eye(12)

    def call(a: Tensor) -> list[Tensor]:
        spectrum = torch.fft.rfft(a)
        return [torch.linalg.solve(a, a.T), torch.linalg.svdvals(a), torch.linalg.inv(a), spectrum.real, spectrum.abs()]

    return both(setting, call, a, tolerance=1e-3)


@program
def small_floats(setting: Setting) -> Values:
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    wanted = [(x.to(d) @ y.to(d)).float() for d in (torch.bfloat16, torch.float16)]
    wanted.append(x.clamp(-400, 400).to(torch.float8_e4m3fn).float())

    def call(x: Tensor, y: Tensor) -> list[Tensor]:
        products = [(x.to(d) @ y.to(d)).float() for d in (torch.bfloat16, torch.float16)]
        return [*products, x.clamp(-400, 400).to(torch.float8_e4m3fn).float()]

    return both(setting, call, x, y, tolerance=2e-2, wanted=wanted)


@program
def random_numbers(setting: Setting) -> Values:
    """Checks that a seed repeats random numbers, and their distributions."""
    found = {}
    for device in {"pjrt", setting.device}:
        fill = lambda x: [torch.randn_like(x), torch.rand_like(x)]  # noqa: E731
        call = fill if device == "pjrt" else torch.compile(fill, backend="pjrt")
        x, draws = torch.empty(100_000, device=device), []
        for _ in range(2):
            torch.manual_seed(5)
            draws.append([t.cpu() for t in call(x)])
        difference(draws[0], draws[1], 0.0)
        normal, uniform = draws[0]
        shown = normal.mean().item(), normal.std().item(), uniform.mean().item()
        must(abs(shown[0]) < 0.02, shown)
        must(abs(shown[1] - 1) < 0.02 and abs(shown[2] - 0.5) < 0.01, shown)
        found[device] = shown
    return {"mean, deviation, mean of uniform": found}


@program
def dropout(setting: Setting) -> Values:
    found = {}
    for device in {"pjrt", setting.device}:
        layer: Any = nn.Dropout(0.3)
        layer = layer if device == "pjrt" else torch.compile(layer, backend="pjrt", fullgraph=True)
        x = torch.ones(100_000, device=device, requires_grad=True)
        one, other = layer(x), layer(x)
        one.sum().backward()
        kept = (one != 0).float().mean().item()
        must(abs(kept - 0.7) < 0.02, kept)
        must(bool((one != other).any()), "two calls dropped the same")
        difference(x.grad, one, 1e-6)  # x is ones: the gradient is the scaled mask
        found[device] = kept
    return {"kept": found}
