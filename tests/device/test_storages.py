"""Storages: memory that is resized, exchanged, copied and saved behaves as on the CPU."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.device.beside_cpu import DEVICE, both


def test_data_pointers() -> None:
    x, other = torch.zeros(4, 4, device=DEVICE), torch.zeros(4, 4, device=DEVICE)
    assert x.data_ptr() != 0
    assert x.data_ptr() != other.data_ptr()
    assert x.data_ptr() == x.view(16).data_ptr() == x.detach().data_ptr()
    assert x[1].data_ptr() - x.data_ptr() == 16
    before = x.data_ptr()
    x.add_(1)
    assert x.data_ptr() == before
    assert x.untyped_storage().data_ptr() == before
    assert torch.empty(0, device=DEVICE).untyped_storage().nbytes() == 0


def test_set() -> None:
    def program(device: str) -> list[Any]:
        a, b = torch.arange(6.0, device=device), torch.arange(10.0, 20.0, device=device)
        view = a[2:]
        a.set_(b)
        a.add_(1)
        c = torch.empty(0, device=device).set_(b.untyped_storage(), 2, (2, 3), (3, 1))
        c.mul_(2)
        d = torch.empty(0, dtype=torch.int32, device=device).set_(b.untyped_storage())
        e = torch.ones(3, device=device).set_()
        return [a, b, c, d, e, view, a.is_set_to(b)]

    both(program)


def test_data_assignment() -> None:
    def program(device: str) -> list[Any]:
        x = torch.nn.Parameter(torch.ones(3, device=device))
        alias = x.detach()
        x.data = torch.arange(4.0, device=device)
        x.data.mul_(3)
        return [x.detach(), alias]

    both(program)


def test_tensor_resize() -> None:
    def program(device: str) -> list[Any]:
        x = torch.arange(6.0, device=device)
        small = x.clone().resize_(2, 2)
        x.resize_(3, 4).view(-1)[6:].fill_(1)
        grown = torch.empty(0, device=device).resize_(2, 3).fill_(4)
        part = torch.arange(4, device=device)[1:]
        part.resize_(5)
        part[3:] = 9
        return [x, small, grown, part]

    both(program)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64])
def test_storage_resize(dtype: torch.dtype) -> None:
    def program(device: str) -> list[Any]:
        x = torch.arange(6, device=device).to(dtype)
        y = x + x  # pending on x's old value
        storage = x.untyped_storage()
        size = storage.nbytes()
        storage.resize_(0)
        assert x.untyped_storage().nbytes() == 0
        storage.resize_(size)
        x.copy_(torch.arange(6).flip(0))
        z = torch.arange(6, device=device).to(dtype)
        z.untyped_storage().resize_(2 * size)
        z.untyped_storage().resize_(size)
        w = torch.arange(6, device=device).to(dtype)[:3]
        w.untyped_storage().resize_(size // 2)
        return [x, y, z, w]

    both(program)


def test_storage_resize_to_odd_size() -> None:
    def program(device: str) -> list[Any]:
        x = torch.arange(6, dtype=torch.int32, device=device)[:2]
        x.untyped_storage().resize_(9)
        x.add_(1)
        return [x, x.untyped_storage().nbytes()]

    both(program)


def saved(value: Any, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


def test_deepcopy_keeps_sharing() -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = torch.arange(6.0, device=device).view(2, 3)
        pair = [x, x[1], x.t()]
        copied = copy.deepcopy(pair)
        copied[0].add_(10)
        x.mul_(2)
        return [*pair, *copied]

    device = program(DEVICE)
    host = program("cpu")
    for d, h in zip(device, host, strict=True):
        torch.testing.assert_close(d.cpu(), h)
        assert d.stride() == h.stride()
    assert device[3].device.type == DEVICE


@pytest.mark.parametrize("zipped", [True, False])
def test_save_and_load(zipped: bool) -> None:
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    content = {
        "x": x,
        "row": x[1],
        "t": x.t(),
        "p": torch.nn.Parameter(x * 2),
        "b": torch.tensor([True, False], device=DEVICE),
    }
    options = {"_use_new_zipfile_serialization": zipped}
    loaded = torch.load(saved(content, **options))
    for name, tensor in content.items():
        assert loaded[name].device == tensor.device
        assert loaded[name].stride() == tensor.stride()
        torch.testing.assert_close(loaded[name].cpu(), tensor.cpu())
    loaded["x"].add_(1)
    assert loaded["row"].cpu().tolist() == [4, 5, 6]

    on_cpu = torch.load(saved(content, **options), map_location="cpu")
    assert on_cpu["x"].device.type == "cpu"
    torch.testing.assert_close(on_cpu["t"], x.t().cpu())

    back = torch.load(saved({"x": x.cpu()}, **options), map_location=DEVICE)
    assert back["x"].device.type == DEVICE
    torch.testing.assert_close((back["x"] + 1).cpu(), x.cpu() + 1)


def test_state_dicts_move_between_devices(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3, device=DEVICE)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    state = torch.load(tmp_path / "state.pt", map_location="cpu")
    other.load_state_dict(state["model"])
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(a.cpu(), b)
    again = torch.optim.Adam(model.parameters())
    again.load_state_dict(torch.load(tmp_path / "state.pt")["optimizer"])
    assert all(s["exp_avg"].device.type == DEVICE for s in again.state.values())


def test_pickle() -> None:
    x = torch.arange(6.0, device=DEVICE).view(2, 3)[:, 1:]
    y = pickle.loads(pickle.dumps(x))
    assert y.device == x.device
    torch.testing.assert_close(y.cpu(), x.cpu())
    torch.testing.assert_close((y + 1).cpu(), x.cpu() + 1)


def test_untyped_storage() -> None:
    x = torch.arange(4, dtype=torch.int32, device=DEVICE)
    storage = x.untyped_storage()
    assert storage.device == x.device
    assert storage.nbytes() == 16
    assert storage.cpu().tolist()[:8] == [0, 0, 0, 0, 1, 0, 0, 0]
    assert storage.clone().device == x.device
    storage.fill_(1)
    assert x.cpu().tolist() == [0x01010101] * 4
    other = torch.UntypedStorage(16, device=DEVICE)
    other.copy_(storage)
    assert torch.empty(0, dtype=torch.int32, device=DEVICE).set_(other).cpu().tolist() == [0x01010101] * 4
    with pytest.raises(NotImplementedError, match=r"slice a tensor, or take the storage of tensor.cpu\(\)"):
        storage[4:8]  # it would share memory
    assert storage.cpu()[4:8].tolist() == [1] * 4


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch._foreach_add_([x, x[::2]], 1),
        lambda x: torch._foreach_add_([x[::2], x], [x[1::2], x.clone()]),
        lambda x: torch._foreach_mul_([x, x], 2),
        lambda x: torch._foreach_add_([x[:3], x[3:]], [x[3:], x[:3]]),  # the second reads what the first has written
        lambda x: torch._foreach_mul_([x[:3], x[3:]], [x[:3], x[3:]]),
        lambda x: torch._foreach_copy_([x[:3], x[3:]], [x[3:], x[:3]]),
    ],
)
def test_a_list_that_shares_memory_is_written_one_by_one(call: Callable[[torch.Tensor], object]) -> None:
    results = []
    for device in ("cpu", "pjrt"):
        x = torch.arange(6.0).to(device)
        call(x)
        results.append(x.cpu())
    assert torch.equal(*results)


@pytest.mark.each_way
def test_lazy_clone() -> None:
    x = torch.arange(6.0, device=DEVICE).view(2, 3).t()[1:]
    y = torch._lazy_clone(x)
    assert (y.stride(), y.storage_offset(), y.tolist()) == (x.stride(), x.storage_offset(), x.tolist())
    x.add_(10)
    y[0] = 7
    assert x.tolist() == [[11, 14], [12, 15]]
    assert y.tolist() == [[7, 7], [2, 5]]


def test_a_tensor_keeps_its_device_when_it_is_set() -> None:
    x, y = torch.ones(2), torch.ones(2, device=DEVICE)
    for a, b in ((x, y), (y, x), (y, x.to("meta"))):
        with pytest.raises(RuntimeError, match="the devices must match"):
            a.set_(b)
    assert (x.device.type, y.device.type) == ("cpu", "pjrt")
