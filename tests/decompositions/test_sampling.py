"""Images: grid_sample's gradients in every mode, and bytes resized, on the device."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import torch_pjrt

pytestmark = pytest.mark.each_way

SIZES = ((2, 3, 5, 4, 3), (1, 1, 1, 1, 1), (2, 3, 1, 4, 2))
PADDINGS = ("zeros", "border", "reflection")


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(
    ("rank", "mode"), [(2, "bilinear"), (2, "nearest"), (2, "bicubic"), (3, "bilinear"), (3, "nearest")]
)
@pytest.mark.sampled(8)
def test_grid_sample(rank: int, mode: str, padding: str, align_corners: bool) -> None:
    torch.manual_seed(0)
    # Each mode meets each of the sizes, paddings and corners.
    batch, channels, *image_sizes = SIZES[(PADDINGS.index(padding) + align_corners) % len(SIZES)]
    sizes, to = (batch, channels, *image_sizes[:rank]), (6, 3, 2)[:rank]
    image, grid = torch.randn(sizes), 1.5 * torch.randn(batch, *to, rank)
    weights = torch.randn(batch, channels, *to)
    results = []
    for device in ("cpu", "pjrt"):
        x = image.detach().to(device, copy=True).requires_grad_()
        at = grid.detach().to(device, copy=True).requires_grad_()
        sampled = functional.grid_sample(x, at, mode=mode, padding_mode=padding, align_corners=align_corners)
        (sampled * weights.to(device)).sum().backward()
        results.append([t.detach().cpu() for t in (sampled, x.grad, at.grad)])
    for got, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


def test_grid_sample_of_an_image_without_gradient() -> None:
    grid = torch.rand(1, 3, 3, 2, device="pjrt", requires_grad=True)
    functional.grid_sample(torch.rand(1, 2, 4, 4, device="pjrt"), grid, align_corners=False).sum().backward()
    assert grid.grad is not None
    assert grid.grad.device.type == "pjrt"


@pytest.mark.parametrize("to", [{"size": (7, 9)}, {"size": (29, 40)}, {"scale_factor": (0.6, 1.7)}], ids=str)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_resized_to_the_same_bytes(
    mode: str, antialias: bool, align_corners: bool, to: dict[str, tuple[float, float]]
) -> None:
    torch.manual_seed(0)
    torch_pjrt.reset_metrics()
    for channels in (3, 5):
        image = torch.randint(0, 256, (2, channels, 13, 17), dtype=torch.uint8)
        results = [
            functional.interpolate(image.to(device), mode=mode, antialias=antialias, align_corners=align_corners, **to)
            for device in ("cpu", "pjrt")
        ]
        assert torch.equal(results[1].cpu(), results[0])
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
