"""Memory of compiled functions: PyTorch allocates large results, and little is kept for a backward."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

LARGE = 512 * 1024  # floats


def compiled(fn: Callable) -> Callable:
    return torch.compile(fn, backend="pjrt")


def allocated(fn: Callable, *arguments: torch.Tensor) -> int:
    """Returns the bytes that PyTorch's allocator gave during a call, and the bytes of its result."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = fn(*arguments)
    del kept
    return max(event.cpu_memory_usage for event in profiler.events())


def test_large_results_are_memory_of_pytorch() -> None:
    double, small = compiled(lambda x: x * 2), compiled(lambda x: x + 2)
    x = torch.rand(LARGE)
    assert torch.equal(double(x), x * 2)
    assert allocated(double, x) >= 4 * LARGE
    few = torch.rand(8)
    small(few)
    assert allocated(small, few) < 4 * LARGE


def test_large_results_are_apart() -> None:
    def several(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x + 1
        y.mul_(2)
        return a, a, a[1:], x + 1, y, y * 1, torch.zeros(LARGE), x

    fn = compiled(several)
    x, y = torch.rand(LARGE), torch.rand(LARGE)
    expected_y = y.clone()
    first = None
    for _ in range(3):
        expected = several(x.clone(), expected_y)
        results = fn(x, y)
        for result, wanted in zip(results, expected, strict=True):
            assert torch.equal(result, wanted)
        assert results[4] is y
        assert results[7] is x
        assert results[0].data_ptr() + 4 == results[2].data_ptr()
        results[3].zero_()  # has memory of its own
        assert torch.equal(results[0], expected[0])
        if first is not None:  # the last call's results are unchanged
            assert torch.equal(first[0], expected[0])
        first = results
    assert torch.equal(y, expected_y)


def test_a_large_result_grows_as_any_tensor_of_the_cpu() -> None:
    result = compiled(lambda x: x * 2)(torch.ones(LARGE))
    result.resize_(2 * LARGE)
    assert torch.equal(result[:LARGE], torch.full((LARGE,), 2.0))


def test_there_is_no_memory_for_a_large_result() -> None:
    fn = compiled(lambda x: x.expand(1 << 30, 1 << 16).clone())
    with pytest.raises(RuntimeError, match=r"(?i)alloc|memory"):
        fn(torch.ones(1))
    assert torch.equal(compiled(lambda x: x + 1)(torch.ones(3)), torch.full((3,), 2.0))


def kept(model: nn.Module, x: torch.Tensor) -> list[tuple[torch.dtype, tuple[int, ...]]]:
    parameters = {tensor.data_ptr() for tensor in (x, *model.parameters())}
    result = compiled(model)(x)
    saved = result.grad_fn.saved_tensors
    return [(tensor.dtype, tuple(tensor.shape)) for tensor in saved if tensor.data_ptr() not in parameters]


def test_a_backward_keeps_masks_and_short_indices() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
    assert sorted(kept(model, torch.rand(2, 3, 10, 10)), key=str) == [
        (torch.bool, (2, 4, 8, 8)),
        (torch.int32, (2, 4, 4, 4)),
    ]


POOLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1),
    "ceil_mode": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "indices": lambda x: F.max_pool2d(x, 2, return_indices=True)[0],
    "unpooled": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    "large windows": lambda x: F.max_pool2d(x, 7, 1),
    "adaptive": lambda x: F.adaptive_max_pool2d(x, (3, 2)),
    "max_pool3d": lambda x: F.max_pool3d(x.unsqueeze(0), 2).squeeze(0),
}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", POOLS)
def test_gradients_of_rectified_and_pooled(name: str, layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    pool = POOLS[name]
    values = torch.randn(2, 4, 8, 8)
    values[0, 0, 0, :2] = torch.tensor([float("nan"), 0.0])
    gradients = []
    for fn in (lambda x: pool(F.relu(x)), compiled(lambda x: pool(F.relu(x)))):
        x = values.clone().contiguous(memory_format=layout).requires_grad_()
        fn(x).sin().sum().backward()
        gradients.append(x.grad)
    assert torch.allclose(gradients[0], gradients[1], atol=1e-6, equal_nan=True)
    assert gradients[0].stride() == gradients[1].stride()


def test_gradients_of_pooled_with_symbolic_sizes() -> None:
    fn = torch.compile(lambda x: F.max_pool2d(F.relu(x), 2), backend="pjrt", dynamic=True)
    for size in (6, 8):
        x, y = (torch.randn(1, 2, size, size).requires_grad_() for _ in range(2))
        with torch.no_grad():
            y.copy_(x)
        fn(x).sum().backward()
        F.max_pool2d(F.relu(y), 2).sum().backward()
        assert torch.equal(x.grad, y.grad)
