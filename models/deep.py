"""Networks of equal layers, of any depth, to measure the cost of a layer in a deep network: of one width, and three of
them of larger ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

WIDTH, ROWS = 64, 256


def encoder(norm_first: bool, width: int = WIDTH) -> Callable[[int], nn.Module]:
    def make(depth: int) -> nn.Module:
        heads = max(4, width // 64)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True, norm_first=norm_first)
        return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

    return make


class Residual(nn.Module):
    """x + block(x), followed by another module."""

    def __init__(self, block: nn.Module, after: nn.Module) -> None:
        super().__init__()
        self.block, self.after = block, after

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.after(x + self.block(x))
        return result


def residual_mlp(depth: int, width: int = WIDTH) -> nn.Module:
    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(width, width), nn.ReLU())

    return nn.Sequential(*(Residual(block(), nn.LayerNorm(width)) for _ in range(depth)))


def resnet(depth: int) -> nn.Module:
    def block() -> nn.Module:
        return nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16))

    return nn.Sequential(*(Residual(block(), nn.ReLU()) for _ in range(depth)))


class DenseBlock(nn.Module):
    """Two layers, each of which reads all earlier activations, and one that returns to the width."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH + 16 * i, 16) for i in range(2))
        self.back = nn.Linear(WIDTH + 32, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, nn.functional.gelu(layer(x))], -1)
        result: Tensor = self.back(x)
        return result


def dense_blocks(depth: int) -> nn.Module:
    return nn.Sequential(*(DenseBlock() for _ in range(depth)))


class Steps(nn.Module):
    """A cell that is called step by step."""

    def __init__(self, cell: nn.RNNCellBase, steps: int) -> None:
        super().__init__()
        self.cell, self.steps = cell, steps

    def forward(self, x: Tensor) -> Tensor:
        state = self.cell(x)
        for _ in range(self.steps - 1):
            state = self.cell(x, state)
        result: Tensor = state[0] if isinstance(state, tuple) else state
        return result


class Coupling(nn.Module):
    """An affine coupling of a normalizing flow, which swaps its halves."""

    def __init__(self) -> None:
        super().__init__()
        half = WIDTH // 2
        self.network = nn.Sequential(nn.Linear(half, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2 * half))

    def forward(self, x: Tensor) -> Tensor:
        kept, moved = x.chunk(2, -1)
        scale, shift = self.network(kept).chunk(2, -1)
        return torch.cat([moved * torch.exp(torch.tanh(scale)) + shift, kept], -1)


def flow(depth: int) -> nn.Module:
    return nn.Sequential(*(Coupling() for _ in range(depth)))


class MidpointSteps(nn.Module):
    """An ordinary differential equation by the midpoint rule, unrolled."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        step = 1 / self.steps
        for _ in range(self.steps):
            x = x + step * self.field(x + step / 2 * self.field(x))
        return x


class SetLayer(nn.Module):
    """A layer of a deep set, on each element and the mean of all."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.mean = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(self.own(x) - self.mean(x.mean(1, keepdim=True)))


def deep_set(depth: int) -> nn.Module:
    return nn.Sequential(*(SetLayer() for _ in range(depth)))


class UNet(nn.Module):
    """Convolutions before and after a pool; later ones also read the result of the earlier one at the same level."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(depth // 2))
        self.up = nn.ModuleList(nn.Conv2d(32, 16, 3, padding=1) for _ in range(depth // 2))

    def forward(self, x: Tensor) -> Tensor:
        sides = []
        for i, layer in enumerate(self.down):
            x = torch.relu(layer(x))
            sides.append(x)
            if i == len(self.down) // 2:
                x = nn.functional.max_pool2d(x, 2)
        for layer in self.up:
            side = sides.pop()
            if side.shape != x.shape:
                x = nn.functional.interpolate(x, scale_factor=2)
            x = torch.relu(layer(torch.cat([x, side], 1)))
        return x


ROW, TOKENS, IMAGES = (ROWS, WIDTH), (8, 32, WIDTH), (4, 16, 16, 16)
Made = tuple[Callable[[int], nn.Module], tuple[int, ...]]
# Each network with the sizes of its input.
DEEP: dict[str, Made] = {
    "post-norm transformer": (encoder(norm_first=False), TOKENS),
    "pre-norm transformer": (encoder(norm_first=True), TOKENS),
    "residual MLP": (residual_mlp, ROW),
    "dense blocks": (dense_blocks, ROW),
    "ResNet": (resnet, IMAGES),
    "LSTMCell": (lambda steps: Steps(nn.LSTMCell(WIDTH, WIDTH), steps), (32, WIDTH)),
    "GRUCell": (lambda steps: Steps(nn.GRUCell(WIDTH, WIDTH), steps), (32, WIDTH)),
    "normalizing flow": (flow, ROW),
    "ODE": (MidpointSteps, ROW),
    "deep set": (deep_set, TOKENS),
    "U-Net": (UNet, IMAGES),
}
WIDE: dict[str, Made] = {}
for width in (256, 768):
    WIDE[f"post-norm transformer of {width}"] = encoder(norm_first=False, width=width), (8, 32, width)
    WIDE[f"pre-norm transformer of {width}"] = encoder(norm_first=True, width=width), (8, 32, width)
    WIDE[f"residual MLP of {width}"] = partial(residual_mlp, width=width), (ROWS, width)


def deep(name: str, depth: int) -> tuple[nn.Module, Tensor]:
    """Returns the network and an input."""
    torch.manual_seed(0)
    make, sizes = (DEEP | WIDE)[name]
    return make(depth), torch.randn(sizes)
