"""FakeTensorMode: the device never reads values that don't exist, and a compiled function returns what ``aot_eager``
returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import torch_pjrt

DEVICES = ("cpu", "pjrt")


def test_generators() -> None:
    before = torch.pjrt.get_rng_state()
    with FakeTensorMode() as mode:
        state = torch.pjrt.get_rng_state()
        assert state.tolist() == before.tolist()
        torch.pjrt.set_rng_state(state)
        assert torch.pjrt.get_rng_state_all()[0].tolist() == before.tolist()
        torch.pjrt.manual_seed(3)
        assert torch.pjrt.initial_seed() == 3
        with pytest.raises(RuntimeError, match="a tensor without memory"):
            torch.pjrt.set_rng_state(mode.from_tensor(state))
    torch.pjrt.set_rng_state(before)


def test_the_device() -> None:
    with FakeTensorMode():
        x = torch.randn(4, 8, device="pjrt", requires_grad=True)
        model = nn.Sequential(nn.Linear(8, 8, device="pjrt"), nn.Dropout(0.5), nn.LayerNorm(8, device="pjrt"))
        loss = nn.functional.cross_entropy(model(x), torch.zeros(4, dtype=torch.int64, device="pjrt"))
        loss.backward()
        query = torch.randn(2, 2, 4, 8, device="pjrt")
        attended = nn.functional.scaled_dot_product_attention(query, query, query)
        for value in (loss, x.grad, attended, torch.ones(3).to("pjrt"), x.detach().cpu(), x.bfloat16()):
            assert isinstance(value, FakeTensor)
        torch.pjrt.synchronize()
        torch.pjrt.memory_stats()
        torch.pjrt.current_stream().record_event().synchronize()
        torch_pjrt.sync()
        assert repr(x)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda x: x * 2 + 1,
    "views": lambda x: (x.view(-1), x * 2),
    "writes": lambda x: x.add_(1) * 2,
    "random": lambda x: x + torch.rand_like(x),
    "a constant": lambda x: x[:, torch.tensor([0, 1])] * 2,
    "makes": lambda x: torch.ones(3) * 2,
}


def described(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [described(v) for v in value]
    return type(value), value.shape, value.stride(), value.dtype, value.device


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled(name: str, device: str) -> None:
    f = FUNCTIONS[name]
    reported = {}
    for backend in ("aot_eager", "pjrt"):
        torch._dynamo.reset()
        with FakeTensorMode() as mode:
            compiled = torch.compile(f, backend=backend)
            reported[backend] = [described(compiled(torch.ones(2, 3, device=device))) for _ in range(2)]
        if name not in ("makes", "a constant"):  # outside of the mode what is made has values
            x = mode.from_tensor(torch.ones(2, 3)).to(device)
            reported[backend].append(described(torch.compile(f, backend=backend)(x)))
    assert reported["pjrt"] == reported["aot_eager"]


@pytest.mark.parametrize("device", DEVICES)
def test_training_then_values(device: str) -> None:
    model = nn.Linear(3, 2)
    compiled = torch.compile(lambda x: torch.tanh(x * 2).sum(), backend="pjrt")
    with FakeTensorMode():
        x = torch.ones(3, device=device, requires_grad=True)
        compiled(x).backward()
        assert isinstance(x.grad, FakeTensor)
        made = torch.compile(nn.Linear(3, 2, device=device), backend="pjrt")
        assert isinstance(made(x), FakeTensor)
    y = torch.ones(3, device=device, requires_grad=True)
    compiled(y).backward()
    assert y.grad is not None
    torch.testing.assert_close(y.grad.cpu(), torch.full((3,), 2 * (1 - torch.tanh(torch.tensor(2.0)).item() ** 2)))
    assert model(torch.ones(3)).shape == (2,)


def test_captured() -> None:
    jitted = torch_pjrt.jit(lambda x: x * 2, [torch.ones(3)])
    step = torch_pjrt.compile_step(lambda x: x * 2)
    assert step(torch.ones(3)).tolist() == [2.0] * 3
    mode = FakeTensorMode()
    fake = mode.from_tensor(torch.ones(3))
    with pytest.raises(TypeError, match="a fake tensor has no values"):
        jitted(fake)
    assert isinstance(step(fake), FakeTensor)
    with mode:
        assert isinstance(step(torch.ones(3)), FakeTensor)
        with pytest.raises(torch_pjrt.CaptureError, match="where PyTorch traces"):
            torch_pjrt.jit(lambda x: x * 2, [torch.ones(3)])
    with pytest.raises(torch_pjrt.CaptureError, match="FakeTensor"):
        torch_pjrt.jit(lambda x: x * 2, [fake])
    assert step(torch.ones(3)).tolist() == jitted(torch.ones(3)).tolist() == [2.0] * 3
