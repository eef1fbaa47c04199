"""The user's mistakes: OpInfo's error inputs raise the CPU's errors."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
from torch.testing._internal.opinfo.core import ErrorInput, SampleInput
from torch.utils import _pytree as pytree

from tests.ops.opinfo import DEVICE, OPS, UNSUPPORTED, samples
from tests.ops.test_opinfo import run

pytestmark = pytest.mark.each_way

# Errors raised by other checks than the CPU's, in other words or as another type.
OTHERWISE: dict[str, str] = {
    "narrow_copy": "narrow's checks: they name the dimension as an IndexError, and a negative length",
}

# Errors that are not raised: (ops, a part of the CPU's message, why).
ACCEPTED: list[tuple[set[str], str, str]] = [
    (
        {"cat", "gather", "kthvalue", "masked_select", "take"},
        "some elements of the input tensor and the written-to tensor refer to a single memory location",
        "operands are values: an out that is an input gets the right result",
    ),
    (
        {"aminmax", "complex", "multinomial"},
        "out tensor to have dtype|for argument 'out'|Long tensor out",
        "out of another dtype gets the converted result, as with most ops",
    ),
]

# Calls computed in dtypes for which PyTorch has no kernel: (ops, why).
COMPUTED: list[tuple[set[str], str]] = [
    (
        {
            "max_unpool1d", "max_unpool2d", "max_unpool3d", "multi_margin_loss", "multilabel_margin_loss", "unfold",
        },
        "PyTorch's decompositions, which take integers too",
    ),
    ({"max_pool1d"}, "max_pool2d, which takes integers"),
    ({"dropout"}, "native_dropout, which the CPU has for complex numbers"),
    ({"normal"}, "a standard deviation of integers is converted"),
]  # fmt: skip


# If accepted input has two mistakes, these report another one than the CPU does.
ANOTHER_FIRST = {"multinomial"}  # probabilities that are all 0, before out's dtype


def is_accepted(name: str, error: Exception) -> bool:
    return any(name in ops and re.search(words, str(error)) for ops, words, _ in ACCEPTED)


def move(tree: Any) -> Any:
    """Returns the tree on the device; tensors that share memory still do."""
    storages: dict[int, torch.Tensor] = {}

    def move_tensor(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            return tensor
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in storages:
            storages[storage.data_ptr()] = torch.empty(0, dtype=tensor.dtype).set_(storage).to(DEVICE)
        moved = storages[storage.data_ptr()].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        return moved.requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(torch.Tensor, move_tensor, tree)


def move_sample(sample: SampleInput) -> SampleInput:
    kwargs = {k: (DEVICE if k == "device" else v) for k, v in sample.kwargs.items()}
    value, args, kwargs = move((sample.input, tuple(sample.args), kwargs))
    return SampleInput(value, args=args, kwargs=kwargs)


def raised(op: Any, sample: Any) -> Exception | None:
    try:
        for tensor in pytree.tree_leaves(run(op, sample)):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == DEVICE:
                tensor.cpu()  # errors that depend on data are raised after the program has run
    except Exception as error:
        return error
    return None


def error_inputs(op: Any) -> list[ErrorInput]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(op.error_inputs("cpu"))


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.error_inputs_func is not None])
def test_errors(name: str) -> None:
    if name in UNSUPPORTED:
        pytest.skip(UNSUPPORTED[name])
    op = OPS[name]
    for wrong in error_inputs(op):
        moved = move_sample(wrong.sample_input)
        expected = raised(op, wrong.sample_input)
        if expected is None:
            continue
        error = raised(op, moved)
        if (error is None or name in ANOTHER_FIRST) and is_accepted(name, expected):
            continue
        assert error is not None, f"nothing raised; on the CPU {expected!r}"
        if name in OTHERWISE:
            continue
        assert isinstance(error, type(expected)), f"{error!r}, on the CPU {expected!r}"
        assert re.search(wrong.error_regex, str(error)), f"{error!r}, on the CPU {expected!r}"


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize(
    "op",
    [
        lambda x: torch.fmod(x, 2),
        lambda x: torch.atan2(x, x),
        lambda x: torch.clamp_min(x, 1),
        torch.nn.functional.hardswish,
        torch.relu,
        torch.sort,
        torch.median,
        lambda x: torch.kthvalue(x, 2),
        lambda x: torch.mode(x, 0),
    ],
    ids=["fmod", "atan2", "clamp_min", "hardswish", "relu", "sort", "median", "kthvalue", "mode"],
)
def test_complex_numbers_have_no_order(op: Any, dtype: torch.dtype) -> None:
    x = torch.arange(4).to(dtype)
    with pytest.raises((RuntimeError, TypeError)) as expected:  # sort raises a TypeError in torch 2.15
        op(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(type(expected.value), match=re.escape(str(expected.value))):
            op(x.to(DEVICE)).cpu()


@pytest.mark.parametrize("name", OPS)
@pytest.mark.sampled(3)
def test_numbers_without_a_kernel(name: str) -> None:
    """Dtypes that PyTorch computes neither on the CPU nor on CUDA raise the CPU's error."""
    op = OPS[name]
    if name in UNSUPPORTED:
        pytest.skip(UNSUPPORTED[name])
    for ops, reason in COMPUTED:
        if op.name.removeprefix("nn.functional.") in ops:
            pytest.skip(reason)
    for dtype in (torch.bool, torch.int64, torch.complex64):
        if op.supports_dtype(dtype, "cpu") or op.supports_dtype(dtype, "cuda"):
            continue
        try:
            wrong = list(samples(op, dtype, 2))
        except Exception:  # samples that can't be drawn in this dtype
            continue
        for sample in wrong:
            moved = move_sample(sample)
            expected = raised(op, sample)
            if expected is None:
                continue
            error = raised(op, moved)
            # NotImplementedError is a RuntimeError, which PyTorch's Python code for triu_indices raises.
            assert isinstance(error, RuntimeError if isinstance(expected, RuntimeError) else type(expected)), (
                f"{error!r} of {dtype}, on the CPU {expected!r}"
            )
            assert "XLA refuses" not in str(error)
