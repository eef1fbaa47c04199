"""DLPack both ways: no copy on host memory, and no surprise but the documented one."""

from __future__ import annotations

import gc
import importlib.util
from typing import Any

import numpy as np
import pytest
import torch

import torch_pjrt

DEVICE = "pjrt"


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0]) if isinstance(array, np.ndarray) else int(array.data_ptr())


def aligned(values: list[float]) -> np.ndarray[Any, Any]:
    """Returns a NumPy array whose memory begins at a multiple of 64 bytes."""
    memory = np.zeros(len(values) * 4 + 64, np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    array = memory[start : start + len(values) * 4].view(np.float32)
    array[:] = values
    return array


@pytest.mark.host_memory
def test_export_to_numpy() -> None:
    x = torch.arange(6.0, device=DEVICE).reshape(2, 3) + 1
    array = np.from_dlpack(x)
    assert array.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 9
    assert address(array) == address(np.from_dlpack(x))  # the device's own memory
    assert np.from_dlpack(x[1:, ::2]).tolist() == [[4, 6]]
    assert np.from_dlpack(x.t()).strides == (4, 12)
    assert address(np.from_dlpack(x[1:])) == address(array) + 12


@pytest.mark.host_memory
def test_numpys_array_of_a_tensor() -> None:
    x = torch.arange(6.0, device=DEVICE).reshape(2, 3) + 1
    array = np.asarray(x)
    assert array.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert address(array) == address(np.asarray(x))  # the device's own memory, so it must not be written
    assert not array.flags.writeable
    assert np.array(x).flags.writeable
    assert np.asarray(x, dtype=np.int64).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert np.asarray(x.t()[1:]).tolist() == [[2, 5], [3, 6]]
    assert (np.ones((2, 3), np.float32) * np.asarray(x)).sum() == 21
    assert np.asarray(torch.ones(0, device=DEVICE)).shape == (0,)
    assert np.asarray((x * 1j).conj())[0, 0] == -1j
    x.add_(1)
    torch_pjrt.sync(x)
    assert array[0, 0] == 1


@pytest.mark.parametrize("make", [lambda x: x.requires_grad_(), lambda x: x.bfloat16()])
@pytest.mark.host_memory
def test_what_torch_gives_no_array_of(make: Any) -> None:
    refusals = []
    for device in ("cpu", DEVICE):
        with pytest.raises((RuntimeError, TypeError)) as refused:
            np.asarray(make(torch.ones(3, device=device)))
        refusals.append((refused.type, str(refused.value)))
    assert refusals[0] == refusals[1]


@pytest.mark.host_memory
def test_an_exported_value_stays() -> None:
    x = torch.ones(1000, device=DEVICE)
    array = np.from_dlpack(x)
    x.add_(1)
    torch_pjrt.sync(x)
    assert set(array.tolist()) == {1}
    assert set(x.tolist()) == {2}
    second = np.from_dlpack(x)
    assert address(second) != address(array)
    del x
    gc.collect()
    torch.ones(1000, device=DEVICE).cpu()
    assert set(second.tolist()) == {2}


@pytest.mark.host_memory
def test_export_to_torch() -> None:
    x = torch.ones(3, device=DEVICE)
    for y in (torch.from_dlpack(x), torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))):
        assert y.device.type == "cpu"
        assert y.tolist() == [1, 1, 1]
        y[0] = 5  # as documented: a write changes the value
        assert x.tolist() == [5, 1, 1]
        y[0] = 1
    copy = torch.from_dlpack(x, copy=True)
    copy[0] = 7
    assert x.tolist() == [1, 1, 1]
    assert x.__dlpack_device__() == (torch.utils.dlpack.DLDeviceType.kDLCPU, 0)


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
@pytest.mark.host_memory
def test_export_to_jax() -> None:
    import jax

    x = torch.arange(3.0, device=DEVICE) + 1
    array = jax.numpy.from_dlpack(x)
    assert array.tolist() == [1, 2, 3]
    back = torch_pjrt.from_dlpack(jax.numpy.arange(1024.0))
    assert back.sum().item() == 1023 * 512


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.complex64])
@pytest.mark.host_memory
def test_dtypes(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1], dtype=dtype)
    assert torch.equal(torch.from_dlpack(x.to(DEVICE)), x)
    assert torch.equal(torch_pjrt.from_dlpack(x).cpu(), x)


@pytest.mark.host_memory
def test_what_dlpack_has_no_words_for() -> None:
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    uses = {
        r"Can't export tensors that require gradient": lambda: np.from_dlpack(x),
        r"with the conjugate bit set": lambda: np.from_dlpack(
            torch.ones(2, dtype=torch.complex64, device=DEVICE).conj()
        ),
    }
    for message, use in uses.items():
        with pytest.raises(BufferError, match=message):
            use()
    assert np.from_dlpack(x.detach()).tolist() == [1, 1, 1]
    with pytest.raises(TypeError, match="stream must be ``int`` or ``none``"):
        x.detach().__dlpack__(stream=object())
    negative = torch.ones(2, dtype=torch.complex64, device=DEVICE).conj().imag
    assert negative.is_neg()
    assert np.from_dlpack(negative).tolist() == [0, 0]


def test_a_device_with_a_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(3, device=DEVICE)
    monkeypatch.setattr(torch_pjrt._C, "is_host_memory", lambda: False)
    for export in (torch.utils.dlpack.to_dlpack, torch.from_dlpack, np.from_dlpack):
        with pytest.raises(BufferError, match=r"a memory of its own, .* export tensor.cpu\(\) instead"):
            export(x)


@pytest.mark.host_memory
def test_import_without_a_copy() -> None:
    array = aligned([1, 2, 3, 4])
    x = torch_pjrt.from_dlpack(array, copy=False)
    assert x.device == torch.device("pjrt:0")
    assert x.tolist() == [1, 2, 3, 4]
    assert address(np.from_dlpack(x)) == address(array)
    array[0] = 10  # as documented
    assert x.tolist() == [10, 2, 3, 4]
    assert (x * 2).tolist() == [20, 4, 6, 8]


@pytest.mark.host_memory
def test_the_device_never_writes_to_imported_memory() -> None:
    array = aligned([1, 2, 3, 4])
    x = torch_pjrt.from_dlpack(array, copy=False)
    for expected in ([2, 3, 4, 5], [3, 4, 5, 6]):
        x.add_(1)
        assert x.tolist() == expected
    x[0] = 7
    assert x.tolist() == [7, 4, 5, 6]
    assert array.tolist() == [1, 2, 3, 4]


@pytest.mark.host_memory
def test_imported_memory_lives_as_long_as_it_is_needed() -> None:
    class Owner(np.ndarray[Any, Any]):
        pass

    import weakref

    memory = aligned([1, 2, 3, 4])
    array = memory.view(Owner)
    gone = weakref.ref(array)
    x = torch_pjrt.from_dlpack(array, copy=False)
    y = x + 1
    del array
    gc.collect()
    assert gone() is not None
    del x
    assert y.tolist() == [2, 3, 4, 5]
    torch.pjrt.synchronize()
    gc.collect()
    assert gone() is None


@pytest.mark.host_memory
def test_import_of_cpu_tensors() -> None:
    host = torch.arange(6.0).reshape(2, 3)
    x = torch_pjrt.from_dlpack(host.t(), copy=False)
    assert x.stride() == (1, 3)
    assert x.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert torch.equal(host, torch.arange(6.0).reshape(2, 3))
    del host
    assert x.sum().item() == 15


def test_import_with_a_copy() -> None:
    host = torch.arange(6.0)
    for x in (
        torch_pjrt.from_dlpack(host, copy=True),
        torch_pjrt.from_dlpack(host[1:]),
        torch_pjrt.from_dlpack(host[::2]),
    ):
        expected = x.tolist()
        host.add_(1)
        assert x.tolist() == expected
    for array in (host[1:], host[::2], torch.empty(0)):
        with pytest.raises(BufferError, match=r"can't use this memory in place: .* begin at a multiple of 64 bytes"):
            torch_pjrt.from_dlpack(array, copy=False)
    assert torch_pjrt.from_dlpack(torch.empty(0)).shape == (0,)
    assert torch_pjrt.from_dlpack(torch.utils.dlpack.to_dlpack(host)).tolist() == host.tolist()


@pytest.mark.host_memory
def test_import_of_an_exported_tensor() -> None:
    x = torch.arange(4.0, device=DEVICE) + 1
    y = torch_pjrt.from_dlpack(x)
    x.add_(1)
    y.mul_(2)
    assert x.tolist() == [2, 3, 4, 5]
    assert y.tolist() == [2, 4, 6, 8]
