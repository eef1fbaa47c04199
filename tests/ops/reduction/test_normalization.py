"""Weight normalization, forward and backward, and the dtypes of batch norm's statistics."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torch_pjrt

pytestmark = pytest.mark.each_way


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dim", [0, 1, 3])
def test_weight_norm(dim: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    torch_pjrt.reset_metrics()
    v = torch.randn(4, 3, 2, 5)
    g = torch.rand([size if d == dim else 1 for d, size in enumerate(v.shape)])
    answers = []
    for device in ("cpu", "pjrt"):
        leaves = [t.to(device, dtype, copy=True).requires_grad_() for t in (v, g)]
        w = torch._weight_norm(*leaves, dim)
        w.sin().sum().backward()
        answers.append([t.detach().cpu() for t in (w, *(leaf.grad for leaf in leaves)) if t is not None])
    tolerance = {} if dtype == torch.float32 else {"rtol": 3e-2, "atol": 3e-2}
    torch.testing.assert_close(answers[1], answers[0], **tolerance)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


def test_a_layer_learns() -> None:
    answers = []
    for device in ("cpu", "pjrt"):
        torch.manual_seed(0)
        model = nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 3)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 3, 6, device=device)).square().sum().backward()
            optimizer.step()
        answers.append([p.detach().cpu() for p in model.parameters()])
    torch.testing.assert_close(answers[1], answers[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("training", [True, False])
def test_new_running_statistics_keep_their_dtype(training: bool, dtype: torch.dtype) -> None:
    x, mean, variance = (t.to(dtype) for t in (torch.randn(8, 4), torch.zeros(4), torch.ones(4)))
    answers = []
    for device in ("cpu", "pjrt"):
        given = (x.to(device), None, None, mean.to(device, copy=True), variance.to(device, copy=True))
        results = torch.ops.aten._native_batch_norm_legit_functional(*given, training, 0.1, 1e-5)
        torch._native_batch_norm_legit(*given, training, 0.1, 1e-5)
        answers.append([t.cpu() for t in (*results[3:], *given[3:])])
    torch.testing.assert_close(answers[1], answers[0])
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("shape", [(2, 6, 4, 5), (2, 6, 3, 2, 4)])
def test_group_norm_has_its_inputs_layout(shape: tuple[int, ...]) -> None:
    """PyTorch's composite makes the input contiguous on every device but the CPU."""
    torch.manual_seed(0)
    format = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    given = [torch.randn(shape).contiguous(memory_format=format), torch.rand(6), torch.rand(6)]
    answers = []
    for device in ("cpu", "pjrt"):
        leaves = [t.to(device, copy=True).requires_grad_() for t in given]
        result = nn.functional.group_norm(leaves[0], 3, *leaves[1:])
        gradients = torch.autograd.grad(result.sin().sum(), leaves)
        assert result.is_contiguous(memory_format=format)
        assert gradients[0].is_contiguous(memory_format=format)
        answers.append([t.detach().cpu() for t in (result, *gradients)])
    torch.testing.assert_close(answers[1], answers[0])
    assert answers[1][0].stride() == answers[0][0].stride()


@pytest.mark.parametrize(("groups", "sizes"), [(4, (6,)), (0, (6,)), (3, (5,))])
def test_group_norms_that_are_mistakes(groups: int, sizes: tuple[int, ...]) -> None:
    words = []
    for device in ("cpu", "pjrt"):
        x = torch.ones(2, 6, 4, 5, device=device).contiguous(memory_format=torch.channels_last)
        with pytest.raises((RuntimeError, ZeroDivisionError)) as raised:
            nn.functional.group_norm(x, groups, torch.ones(sizes, device=device))
        words.append(str(raised.value))
    assert words[0] == words[1]


@pytest.mark.parametrize("training", [True, False])
def test_a_batch_norm_whose_weight_has_more_dimensions(training: bool) -> None:
    x, weight, bias = torch.randn(4, 3, 5), torch.randn(3, 1, 1), torch.randn(1, 3)
    statistics = torch.randn(3), torch.rand(3)
    answers = [
        torch.nn.functional.batch_norm(*(t.to(device, copy=True) for t in (x, *statistics, weight, bias)), training)
        for device in ("cpu", "pjrt")
    ]
    torch.testing.assert_close(answers[1].cpu(), answers[0])
