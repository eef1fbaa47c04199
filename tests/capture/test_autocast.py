"""Captures under torch.autocast, and with it inside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt


def captured(enter: str, f: Callable[..., Any], given: tuple[torch.Tensor, ...], folder: Path) -> Callable[..., Any]:
    if enter == "file":
        torch_pjrt.export(f, given).save(folder / "it.pjrt")
        return torch_pjrt.load(folder / "it.pjrt")
    return torch_pjrt.jit(f, given) if enter == "jit" else torch_pjrt.compile_step(f)


@pytest.mark.parametrize("enter", ["jit", "step", "file"])
def test_autocast_of_a_tensors_device(tmp_path: Path, enter: str) -> None:
    """Models of transformers do this; here it is around and within ``torch.autocast("cpu")``."""

    def f(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        with torch.autocast(x.device.type, enabled=False):
            results = [x @ w]
        with torch.autocast(x.device.type):
            results.append(x @ w)
            with torch.autocast(x.device.type, enabled=False):
                results.append(x @ w)
            results.append(x @ w)
        with torch.autocast("cpu"):
            results.append(x @ w)
            with torch.autocast(x.device.type, enabled=False):
                results.append(x @ w)
            results.append(x @ w)
        return [*results, x @ w]

    given = torch.rand(2, 3), torch.rand(3, 4)
    for outer in (False, True):
        with torch.autocast("cpu", enabled=outer):
            call = captured(enter, f, given, tmp_path)
            assert [each.dtype for each in call(*given)] == [each.dtype for each in f(*given)]


@pytest.mark.parametrize("enter", ["jit", "step", "file"])
def test_ops_are_cast_as_on_the_cpu(tmp_path: Path, enter: str) -> None:
    """CUDA's lists of ops, which the device has otherwise, have softmax, sums and norms in float32, and no ``cat``."""

    def f(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        with torch.autocast("cpu"):
            y = x @ w
            kept = [
                y.softmax(-1),
                y.sum(),
                y.norm(),
                y.norm(dim=0),
                F.layer_norm(y, (4,)),
                y.exp(),
                y.pow(2),
                y.cumsum(0),
            ]
            wide = [F.mse_loss(y, y * 2), y.prod(), F.pad(y[None], (1, 1), "reflect"), torch.fft.rfft(y).real]
            image = y[None, None]
            wide += [F.grid_sample(image, torch.zeros(1, 2, 2, 2), align_corners=False), y.quantile(0.5), y.trace()]
            promoted = [torch.cat([y, x]), torch.stack([y, x]), torch.cat([y, y]), torch.einsum("ij,jk->ik", x, w)]
            composite = [F.conv1d(x[None], w[:, :, None], padding="same"), F.cosine_similarity(y, y)]
            results = [y, *kept, *wide, *promoted, *composite]
            results.append(F.cross_entropy(y, torch.tensor([0, 1, 2, 3])))
            return [*results, F.scaled_dot_product_attention(y[None], x[None], w[None])]

    given = torch.rand(4, 4), torch.rand(4, 4)
    call = captured(enter, f, given, tmp_path)
    assert [each.dtype for each in call(*given)] == [each.dtype for each in f(*given)]
    lazily = torch.rand(4, 4).to("pjrt")
    with torch.autocast("pjrt"):  # afterwards the device's own lists apply again
        assert (lazily @ lazily).softmax(-1).dtype == torch.float32
        assert F.pad((lazily @ lazily)[None], (1, 1), "reflect").dtype == torch.float16
        assert torch.stack([lazily @ lazily] * 2).dtype == torch.float16
