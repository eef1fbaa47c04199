"""Batch norms of bfloat16 by PyTorch's kernels, beside the library's convolutions."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torch_pjrt
from tests import fresh
from tests.kernels.library import HAS_BF16_DOTS

pytestmark = [pytest.mark.compiled, pytest.mark.host_memory]

SIZES = (4, 24, 20, 18)


def layer(
    dtype: torch.dtype, affine: bool = True, running: bool = True, momentum: float | None = 0.1
) -> nn.BatchNorm2d:
    torch.manual_seed(1)
    made = nn.BatchNorm2d(SIZES[1], affine=affine, track_running_stats=running, momentum=momentum)
    if affine:
        nn.init.normal_(made.weight)
        nn.init.normal_(made.bias)
    if running:
        made.running_mean.normal_()
        made.running_var.uniform_(0.5, 2)
    return made.to(dtype)


def results(made: nn.BatchNorm2d, x: torch.Tensor, gradient: torch.Tensor) -> list[torch.Tensor]:
    x = x.detach().requires_grad_()
    y = made(x)
    leaves = [x, *made.parameters()]
    gradients = torch.autograd.grad(y, leaves, gradient)
    buffers = [b for b in made.buffers() if b.is_floating_point()]
    return [b.detach().cpu() for b in (y, *gradients, *buffers)]


@pytest.mark.parametrize(
    "options",
    [{}, {"affine": False}, {"running": False}, {"momentum": None}, {"affine": False, "running": False}],
    ids=str,
)
@pytest.mark.parametrize("parameters", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_values(options: dict[str, bool], parameters: torch.dtype, layout: torch.memory_format) -> None:
    x = (torch.randn(SIZES) * 3 + torch.randn(24, 1, 1) * 5).bfloat16().contiguous(memory_format=layout)
    gradient = torch.randn(SIZES).bfloat16()
    exact = results(layer(parameters, **options).double(), x.double(), gradient.double())
    eager = results(layer(parameters, **options), x, gradient)
    mine = results(layer(parameters, **options).to("pjrt"), x.to("pjrt"), gradient.to("pjrt"))
    for given, cpu, expected in zip(mine, eager, exact, strict=True):
        assert given.dtype == cpu.dtype
        near = 1e-2 if given.dtype == torch.bfloat16 else 1e-4
        torch.testing.assert_close(given.double(), expected, rtol=near, atol=near * float(expected.abs().max()))


def test_the_variance_of_equal_elements_is_nothing() -> None:
    """The running variance keeps its share of the old one."""
    x = torch.full(SIZES, 1000.0).bfloat16()
    made = layer(torch.float32)
    expected = made.running_var * 0.9
    made = made.to("pjrt")
    y = made(x.to("pjrt")).cpu()
    torch.testing.assert_close(made.running_var.cpu(), expected)
    bias = made.bias.detach().cpu().bfloat16().view(-1, 1, 1).expand(SIZES)
    torch.testing.assert_close(y, bias, rtol=1e-2, atol=5e-2)  # float32 subtracts 1000 * 316 from as much


@pytest.mark.skipif(not HAS_BF16_DOTS, reason="oneDNN has no instructions for bfloat16 here: images are XLA's")
def test_dispatch(programs: list[str]) -> None:
    def asked(made: nn.Module, x: torch.Tensor) -> bool:
        made.to("pjrt")(x.to("pjrt")).cpu()
        return "torch_pjrt::batch_norm_in_training(" in programs[-1]

    x = torch.randn(5, *SIZES[1:])  # unlike other tests' programs
    assert asked(layer(torch.float32), x.bfloat16())
    assert not asked(layer(torch.float32), x)
    assert not asked(layer(torch.float32), x[:1, :, :3].bfloat16())  # small
    assert not asked(layer(torch.float32).eval(), x.bfloat16())
    results(layer(torch.float32).to("pjrt"), x.bfloat16().to("pjrt"), x.bfloat16().to("pjrt"))
    assert "aten::native_batch_norm_backward(grad_out=%" in "".join(programs)


OFF = """
import torch, torch_pjrt
from torch_pjrt import _C
texts = []
_C.set_program_listener(lambda _, text: texts.append(text))
torch.nn.BatchNorm2d(24).to("pjrt")(torch.randn(4, 24, 20, 18).bfloat16().to("pjrt")).cpu()
print(any("torch_pjrt::batch_norm_in_training(" in text for text in texts))
"""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({"TORCH_PJRT_LIBRARY_KERNELS": "0"}, False), ({"TORCH_PJRT_LIBRARY_KERNELS": "all"}, True)],
)
def test_other_processes(server: fresh.Server, environment: dict[str, str], expected: bool) -> None:
    (reported,) = server.run(fresh.Job(OFF, environment=environment))
    assert reported.out.split() == [str(expected)]


def test_a_network_learns_alike() -> None:
    """Twenty steps of convolution, norm and relu under autocast give eager's losses."""
    x, target = torch.randn(8, 3, 40, 40), torch.arange(8)

    def losses(device: str) -> list[float]:
        torch.manual_seed(0)
        layers = (
            nn.Conv2d(3, 32, 3, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, 2),
            nn.BatchNorm2d(32),
        )
        model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 8)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        images, classes = x.to(device), target.to(device)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16):
                loss = nn.functional.cross_entropy(model(images).float(), classes)
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = step if device == "cpu" else torch_pjrt.compile_step(step)
        return [float(run()) for _ in range(20)]

    mine, expected = losses("pjrt"), losses("cpu")
    torch.testing.assert_close(torch.tensor(mine), torch.tensor(expected), rtol=5e-2, atol=5e-2)
    assert mine[-1] < mine[0]
