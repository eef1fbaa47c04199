"""PyTorch's own shape functions check a call when it is recorded: mistakes raise the CPU's errors at the call."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import nn

import torch_pjrt

DEVICE = "pjrt"


def fails_alike(call: Callable[[str], object]) -> str:
    """Asserts that the call raises on both devices, with the same type and message; returns the message."""
    with pytest.raises(Exception) as expected:
        call("cpu")
    torch_pjrt.reset_metrics()
    with pytest.raises(type(expected.value)) as error:
        call(DEVICE)
    words = str(expected.value).split("\n")[0]
    assert str(error.value).split("\n")[0] == words
    return words


@pytest.mark.parametrize(
    "name", ["atan2_", "eq_", "fmod_", "pow_", "remainder_", "lt_", "mul_", "add_", "copysign_", "masked_scatter_"]
)
def test_an_in_place_result_must_fit(name: str) -> None:
    def call(device: str) -> object:
        other = torch.ones(2, 3, device=device)
        args = (other > 0, other) if name == "masked_scatter_" else (other,)
        return getattr(torch.ones(1, 3, device=device), name)(*args)

    fails_alike(call)


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "sign"])
def test_dtypes_that_an_op_does_not_have(name: str) -> None:
    fails_alike(lambda device: getattr(torch, name)(torch.ones(2, device=device, dtype=torch.complex64)))


def test_out_of_another_dtype() -> None:
    def ones(device: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.ones(3, device=device, dtype=dtype)

    fails_alike(lambda d: torch.neg(ones(d), out=ones(d, torch.float64)))
    fails_alike(lambda d: torch.floor(ones(d, torch.int64), out=ones(d, torch.float32)))
    fails_alike(lambda d: torch.all(ones(d), out=ones(d, torch.float32).sum()))
    fails_alike(lambda d: torch.add(ones(d), 1, out=ones(d, torch.int64)))
    for device in ("cpu", DEVICE):  # where the CPU converts, so does the device
        out = ones(device, torch.float64)
        assert torch.add(ones(device), 1, out=out).tolist() == [2.0, 2.0, 2.0]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            out = torch.empty(4, 2, device=device, dtype=torch.uint8)
            torch.cat([torch.ones(2, 2, device=device, dtype=torch.int64)] * 2, out=out)


def test_values_written_at_indices_have_the_tensors_dtype() -> None:
    def call(device: str) -> None:
        x = torch.ones(5, 2, dtype=torch.float64, device=device)
        x[:, [1]] = torch.zeros(5, 1, dtype=torch.int32, device=device)

    fails_alike(call)


def test_structured_ops_have_the_cpus_strides() -> None:
    x = torch.randn(2, 3, 4, 5)
    for given in (x, x.to(memory_format=torch.channels_last), x.permute(3, 1, 0, 2), x[:, :, ::2]):
        for f in (torch.sin, lambda t: t * 2, lambda t: torch.cumsum(t, 1), lambda t: t.sum(1), torch.sigmoid):
            assert f(given.to(DEVICE)).stride() == f(given).stride()


def normalized(x: torch.Tensor, training: bool) -> torch.Tensor:
    zeros, ones = (torch.full((x.shape[1],), value, device=x.device) for value in (0.0, 1.0))
    return functional.batch_norm(x, zeros, ones, training=training)


LAID_OUT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "batch_norm": lambda x: normalized(x, True),
    "batch_norm in evaluation": lambda x: normalized(x, False),
    "batch_norm without statistics": lambda x: functional.batch_norm(x, None, None, training=True),
    "batch_norm of points": lambda x: normalized(x.flatten(1).t(), True),
    "batch_norm of sequences": lambda x: normalized(x.flatten(2).transpose(1, 2), True),
    "reflection_pad2d": lambda x: functional.pad(x, (1, 1, 1, 1), mode="reflect"),
    "replication_pad2d": lambda x: functional.pad(x, (1, 1, 1, 1), mode="replicate"),
    "replication_pad3d": lambda x: functional.pad(
        x[..., None].contiguous(memory_format=torch.channels_last_3d), (1,) * 6, mode="replicate"
    ),
    "floor_divide": lambda x: x // x.new_full((), 2),
    "max_unpool2d": lambda x: functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2),
    "angle of complex numbers": lambda x: torch.complex(x, x + 1).angle(),
    "pixel_shuffle": lambda x: functional.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: functional.pixel_unshuffle(x, 2),
    "channel_shuffle": lambda x: functional.channel_shuffle(x, 2),
    "roll": lambda x: x.roll(1, 2),
    "roll by a whole": lambda x: x.roll((1, -6), (0, 2)),
    "attention": lambda x: functional.scaled_dot_product_attention(x, x, x),
    "attention of one head": lambda x: functional.scaled_dot_product_attention(*[x[0].transpose(0, 1)] * 3),
}


@pytest.mark.parametrize("name", LAID_OUT)
def test_other_ops_have_the_cpus_strides(name: str) -> None:
    f, x = LAID_OUT[name], torch.randn(2, 4, 6, 8)
    for given in (x, x.to(memory_format=torch.channels_last), x.transpose(1, 2).contiguous().transpose(1, 2)):
        expected, found = f(given), f(given.to(DEVICE))
        assert found.stride() == expected.stride()
        torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize("name", ["index_add_", "index_copy_", "index_fill_", "put_", "index_put_"])
def test_an_index_must_not_overlap_what_is_written(name: str) -> None:
    def call(device: str) -> None:
        index = torch.tensor([2, 1, 0], device=device)
        if name == "put_":
            index.put_(index, index.clone())
        elif name == "index_put_":
            index.index_put_((index,), index.clone())
        else:
            getattr(index, name)(0, index, 0 if name == "index_fill_" else index.clone())

    assert "unsupported operation" in fails_alike(call)


def test_new_memory_in_deterministic_mode() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3, device=DEVICE).isnan().all()
        assert (torch.empty(3, device=DEVICE, dtype=torch.int32) == torch.iinfo(torch.int32).max).all()
        x = torch.zeros(2, device=DEVICE).resize_(4)
        assert x[:2].tolist() == [0.0, 0.0]
        assert x[2:].isnan().all()
        # Ops that other ops replace in this mode.
        x = torch.zeros(3, 2, dtype=torch.complex64, device=DEVICE)
        x.scatter_(0, torch.tensor([[1, 2]], device=DEVICE), torch.ones(1, 2, dtype=torch.complex64, device=DEVICE))
        assert x.real.tolist() == [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    finally:
        torch.use_deterministic_algorithms(False)


def test_numbers_above_the_largest_int64() -> None:
    most = torch.iinfo(torch.uint64).max
    with pytest.warns(UserWarning, match="runs on the host"):
        x = torch.full((2,), 0, dtype=torch.uint64, device=DEVICE).fill_(most)
    assert x.tolist() == [most, most]


@pytest.mark.parametrize("last", ["input", "weight", "neither"])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_keep_channels_last(last: str, transposed: bool) -> None:
    layer = (nn.ConvTranspose2d if transposed else nn.Conv2d)(4, 4, 3)
    x = torch.randn(2, 4, 6, 6, requires_grad=True)
    if last == "weight":
        layer = layer.to(memory_format=torch.channels_last)
    x = (x.to(memory_format=torch.channels_last) if last == "input" else x).detach().requires_grad_()
    on_device = copy.deepcopy(layer).to("pjrt")
    y = x.detach().to("pjrt").requires_grad_()
    expected, result = layer(x), on_device(y)
    assert result.stride() == expected.stride()
    expected.sum().backward()
    result.sum().backward()
    assert y.grad.stride() == x.grad.stride()
    torch.testing.assert_close(result.cpu(), expected)
    torch.testing.assert_close(on_device.weight.grad.cpu(), layer.weight.grad)


@pytest.mark.filterwarnings("ignore:.*is out of bounds")
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.float32])
def test_random_integers_are_in_the_dtypes_range(dtype: torch.dtype) -> None:
    largest = int(torch.finfo(dtype).max) if dtype.is_floating_point else 1
    if dtype not in (torch.bool, torch.float16, torch.float32):
        largest = torch.iinfo(dtype).max
    for bounds in ((0, 2), (-1, 1), (0, 257), (largest + 1,), (-(2**62), 5), (-(2**15), -5)):
        bounds = tuple(min(bound, 2**63 - 1) for bound in bounds)
        try:
            torch.zeros(3, dtype=dtype).random_(*bounds)
        except RuntimeError:
            fails_alike(lambda device, bounds=bounds: torch.zeros(3, dtype=dtype, device=device).random_(*bounds))
        else:
            drawn = torch.zeros(3, dtype=dtype, device=DEVICE).random_(*bounds)
            low, high = (0, *bounds)[-2:]
            assert all(low <= value <= high for value in drawn.tolist())
