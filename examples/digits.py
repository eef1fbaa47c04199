"""Trains a small convolutional network on scikit-learn's handwritten digits.

An ordinary PyTorch script: nothing in it knows of torch-pjrt but the default of --device.
"""

from __future__ import annotations

import argparse
import statistics
import time

import matplotlib
import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

matplotlib.use("Agg")
from matplotlib import pyplot as plt


class DigitNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Dropout(0.25), nn.Linear(64, 10)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images))


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Returns the 1,797 images of 8x8 pixels: three quarters for training, the rest for testing."""
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)
    train_x, test_x = (torch.tensor(x, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16 for x in split[:2])
    train_y, test_y = (torch.tensor(y, dtype=torch.int64) for y in split[2:])
    return TensorDataset(train_x, train_y), TensorDataset(test_x, test_y)


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


def train(
    model: nn.Module, data: TensorDataset, device: torch.device, epochs: int, batch: int, lr: float
) -> list[float]:
    loader = DataLoader(data, batch_size=batch, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=epochs * len(loader))
    losses = []
    model.train()
    with tqdm(total=epochs * len(loader), desc=f"training on {device}", unit="step") as progress:
        for epoch in range(epochs):
            for images, labels in loader:
                loss = train_step(model, optimizer, images.to(device), labels.to(device)).item()
                scheduler.step()
                losses.append(loss)
                progress.set_postfix(epoch=epoch + 1, loss=f"{loss:.3f}", refresh=False)
                progress.update()
    return losses


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset, device: torch.device) -> float:
    model.eval()
    images, labels = data.tensors
    predicted = model(images.to(device)).argmax(dim=1)
    return (predicted == labels.to(device)).float().mean().item()


def step_times(
    data: TensorDataset, device: torch.device, batch: int, lr: float, rounds: int = 5
) -> tuple[float, float]:
    """Returns milliseconds of a training step on `device` and on CPU eager, timed alternately against noise."""
    steps = []
    for place in (device, torch.device("cpu")):
        twin = DigitNet().to(place)
        optimizer = torch.optim.AdamW(twin.parameters(), lr=lr)
        images, labels = (t[:batch].to(place) for t in data.tensors)
        steps.append((twin, optimizer, images, labels))
    times: tuple[list[float], list[float]] = ([], [])
    for round in range(rounds + 1):
        for step, measured in zip(steps, times, strict=True):
            start = time.perf_counter()
            for _ in range(10):
                train_step(*step).item()
            if round:  # the first round warms up
                measured.append((time.perf_counter() - start) / 10 * 1e3)
    return statistics.median(times[0]), statistics.median(times[1])


def plot(losses: list[float], path: str) -> None:
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(losses, color="tab:blue", linewidth=0.8)
    axes.set(title="Handwritten digits", xlabel="step", ylabel="cross entropy", yscale="log")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="pjrt", help="where to train (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--plot", default="digits.png", help="where to save the loss curve (default: %(default)s)")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device(args.device)
    training, testing = digits()
    model = DigitNet().to(device)
    losses = train(model, training, device, args.epochs, args.batch, args.lr)
    score = accuracy(model, testing, device)
    plot(losses, args.plot)

    # A device may have counters; torch.cpu has none.
    counters = getattr(getattr(torch, device.type), "metrics", dict)()
    on_device, on_cpu = step_times(training, device, args.batch, args.lr)
    table = Table(title=f"Handwritten digits on {device}", show_header=False)
    table.add_column(justify="left")
    table.add_column(justify="right")
    table.add_row("test accuracy", f"{score:.1%}")
    table.add_row("loss, first and last step", f"{losses[0]:.3f} → {losses[-1]:.3f}")
    table.add_row("loss curve", args.plot)
    table.add_section()
    table.add_row(f"training step on {device}", f"{on_device:.2f} ms")
    table.add_row("training step on CPU eager", f"{on_cpu:.2f} ms")
    if counters:
        table.add_section()
        table.add_row("graphs compiled", str(counters["graphs_compiled"]))
        table.add_row("executions", str(counters["executions"]))
        table.add_row("host fallbacks", str(sum(counters["host_fallbacks"].values())))
    Console().print(table)
    if score < 0.97:
        raise SystemExit(f"the test accuracy is {score:.1%}; at least 97 % was expected")


if __name__ == "__main__":
    main()
