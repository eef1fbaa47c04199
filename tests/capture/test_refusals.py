"""compile_step and jit: what can't be one program is refused, and leaves nothing behind."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torch_pjrt
from tests.capture.test_capture import fresh as fresh, same, same_state


class Regularised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.dropout = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.norm(self.layer(x)))


def refused(fn: Callable[..., Any], message: str, *args: torch.Tensor) -> None:
    with pytest.raises(torch_pjrt.CaptureError, match=message):
        torch_pjrt.compile_step(fn)(*args)


def test_what_is_refused() -> None:
    x = torch.ones(3)
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    refused(lambda x: x.sum().item(), "return the tensor", x)
    refused(lambda x: x + 1 if x.sum() > 0 else x, "return the tensor", x)
    refused(lambda x: x * float(x.sum()), "return the tensor", x)
    refused(lambda x: print(x), "return the tensor", x)
    for change in (
        lambda x: setattr(x, "data", x + 1),
        lambda x: setattr(model.weight, "data", model.weight * 2 + x),
        lambda x: x.set_(torch.ones(5)),
        lambda x: x.resize_(1),
        lambda x: x.unsqueeze_(0),
    ):
        refused(lambda x, change=change: (change(x), x * 2)[1], "other memory or another shape", x.clone())
    assert (model.weight.shape, x.shape) == ((3, 3), (3,))
    refused(lambda x: torch.nonzero(x), "nonzero can't be part of a program", x)
    refused(lambda x: (model(x), optimizer.step(), schedule.step())[0], "call the scheduler outside", x)
    refused(lambda x: setattr(model, "kept", x * 2), "attribute 'kept'", x)
    refused(lambda x: model(x), "on one device, but.*'cpu'.*'pjrt:0'", x.to("pjrt"))
    refused(lambda x: (torch.manual_seed(0), torch.rand(3) + x)[1], "seeds a generator.*do it outside", x)
    refused(lambda x: (torch.seed(), torch.rand(3) + x)[1], "seeds a generator.*do it outside", x)
    for generator in (torch.Generator(), torch.Generator("pjrt")):
        refused(lambda x, g=generator: torch.rand(3, generator=g) + x, "rand is given a generator.*leave it out", x)
        refused(lambda x, g=generator: x.clone().normal_(generator=g), "normal_ is given a generator.*outside", x)
    embedding = nn.Embedding(4, 2, max_norm=1.0)
    refused(embedding, r"embedding with max_norm.*leave max_norm out.*weight\.renorm", torch.tensor([0, 2]))
    refused(lambda x: x.sum().backward(), "gradient in argument 0.*return it", torch.ones(3, requires_grad=True))
    assert not hasattr(model, "kept")


WRONG: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "complex": (lambda x: torch.complex(x, x.int()), "Expected both inputs to be Half, Float or Double"),
    "embedding": (lambda x: torch.embedding(x.reshape(-1)[0], x.long()), "'weight' must be 2-D"),
    "dilation": (lambda x: torch.conv1d(x, x, dilation=0), "^(non-positive dilation|dilation should be)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls_raise_the_errors_of_eager(name: str) -> None:
    """Also those that only the CPU's kernel tells, which can't run in a capture."""
    fn, words = WRONG[name]
    x = torch.ones(3, 3, 3)
    for call in (fn, torch_pjrt.compile_step(fn), lambda x: torch_pjrt.jit(fn, (x,))(x)):
        with pytest.raises(RuntimeError, match=words):
            call(x)


@pytest.mark.parametrize("kind", ["RAdam", "ASGD", "AveragedModel", "GradScaler"])
def test_library_calls_that_decide_by_values_are_named(kind: str) -> None:
    model = nn.Linear(3, 3)
    make = getattr(torch.optim, kind, torch.optim.SGD)
    optimizer = make(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=kind == "GradScaler")
    averaged = torch.optim.swa_utils.AveragedModel(model)

    def step(x: torch.Tensor) -> None:
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)
        if kind == "AveragedModel":
            averaged.update_parameters(model)

    cure = ", or give it capturable=True and a model on 'pjrt'" if kind in ("RAdam", "ASGD") else ""
    call = "update_parameters" if kind == "AveragedModel" else "step"
    words = f"{kind}.{call} decides in Python by a value: call it after the captured function{cure} (at "
    if kind in ("RAdam", "ASGD"):
        step(torch.ones(3))  # makes the optimizer's state
    refused(step, re.escape(words), torch.ones(3))


def test_everything_is_restored_after_an_exception() -> None:
    model = Regularised()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    held = dict(model.named_parameters()), dict(model.named_buffers()), optimizer.param_groups, optimizer.state
    values = copy.deepcopy(model.state_dict())

    def step(x: torch.Tensor) -> None:
        model(x).sum().backward()
        optimizer.step()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        torch_pjrt.compile_step(step)(torch.ones(2, 4))
    now = dict(model.named_parameters()), dict(model.named_buffers()), optimizer.param_groups, optimizer.state
    for before, after in zip(held[:2], now[:2], strict=True):
        assert list(before) == list(after)
        assert all(before[k] is after[k] for k in before)
    assert held[2] is now[2]
    assert held[2][0]["foreach"] is None
    assert held[3] is now[3]
    assert len(optimizer.state) == 0
    same_state(model, type("Values", (), {"state_dict": lambda self: values})())
    assert all(p.grad is None for p in model.parameters())
    assert (torch.ones(2).to("pjrt") + 1).sum().item() == 4  # the device records as ever


def test_aliases_of_what_is_updated_are_refused() -> None:
    buffer = torch.zeros(4)
    fast = torch_pjrt.compile_step(lambda x: buffer.add_(x))
    fast(torch.ones(4))
    for other in (buffer, torch.from_dlpack(buffer)):
        with pytest.raises(RuntimeError, match=r"share memory.*Pass a clone\(\)"):
            fast(other)
    same(buffer, torch.ones(4))


def test_columns_of_one_matrix_share_no_memory() -> None:
    fast = torch_pjrt.compile_step(lambda a, b: a.add_(b))
    x = torch.arange(24.0).reshape(4, 6)
    expected = torch.cat([x[:, :3] + x[:, 3:], x[:, 3:]], 1)
    fast(x[:, :3], x[:, 3:])
    same(x, expected)
    with pytest.raises(RuntimeError, match="share memory"):
        fast(x[:, :3], x[:, 2:5])


def test_a_tensor_that_was_kept_from_a_capture_has_no_value() -> None:
    kept: list[torch.Tensor] = []
    keep = type("Unseen", (), {"__slots__": (), "append": staticmethod(lambda tensor, to=[kept]: to[0].append(tensor))})
    torch_pjrt.compile_step(lambda x: keep.append(x + 1))(torch.ones(2))
    for read in (torch.Tensor.cpu, torch.Tensor.item, repr, lambda t: t + 1, lambda t: torch.stack([t])):
        with pytest.raises(torch_pjrt.CaptureError, match="kept somewhere by the captured function"):
            read(kept[0])
    assert kept[0].shape == (2,)
    refused(lambda x: x + kept[0], "kept somewhere.*Make it before", torch.ones(2))
    kept.clear()
    assert (torch.ones(2).to("pjrt") + 1).sum().item() == 4


def test_a_tensor_that_depends_on_nothing_may_be_kept() -> None:
    kept: list[torch.Tensor] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        if not kept:
            kept.append(torch.ones(2, 2).tril())
        return kept[0] @ x

    fast = torch_pjrt.compile_step(fn)
    for n in (2, 3):
        same(fast(torch.ones(2, n)), torch.ones(2, 2).tril() @ torch.ones(2, n))
    assert kept[0].tolist() == [[1.0, 0.0], [1.0, 1.0]]


def test_modules_of_torchscript() -> None:
    model = nn.Sequential(nn.Linear(3, 2), torch.jit.script(nn.Linear(2, 2))).to("pjrt")
    x = torch.ones(4, 3, device="pjrt")
    with pytest.raises(torch_pjrt.CaptureError, match=r"'1', a module of torch\.jit\.script or trace, can't be part"):
        torch_pjrt.compile_step(lambda: model(x))()
    assert model(x).shape == (4, 2), "the module is whole again"
