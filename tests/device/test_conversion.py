"""Modules and tensors that move: parameters stay the same objects, so tied weights stay tied and optimizers valid."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import torch_pjrt

DEVICE = "pjrt"

TO_DEVICE: list[Callable[[nn.Module], nn.Module]] = [
    lambda m: m.to(DEVICE),
    lambda m: m.pjrt(),
    lambda m: m.to(torch.ones(1, device=DEVICE)),
    torch_pjrt.to_lazy,
]
TO_HOST: list[Callable[[nn.Module], nn.Module]] = [lambda m: m.cpu(), lambda m: m.to("cpu"), torch_pjrt.to_eager]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.middle = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.middle(self.embedding(x)) * self.scale)  # type: ignore[no-any-return]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> list[float]:
    device = next(model.parameters()).device
    x = torch.arange(7).to(device)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), x)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("back", range(3))
@pytest.mark.parametrize("there", range(4))
def test_identity_ties_and_optimizers(there: int, back: int) -> None:
    torch.manual_seed(0)
    model = Tied()
    expected_model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = train(expected_model, torch.optim.SGD(expected_model.parameters(), lr=0.1), 6)
    parameters = dict(model.named_parameters())
    for move, kind in ((TO_DEVICE[there], DEVICE), (TO_HOST[back], "cpu")):
        assert move(model) is model
        assert {name: id(p) for name, p in model.named_parameters()} == {n: id(p) for n, p in parameters.items()}
        assert model.head.weight is model.embedding.weight
        assert {p.device.type for p in model.parameters()} == {kind}
        assert model.scale.device.type == kind
        losses = train(model, optimizer)
        torch.testing.assert_close(losses, expected[:3])
        expected = expected[3:]


def test_a_graph_that_is_still_alive() -> None:
    """The loss still holds the graph of a backward on the CPU, but gradients must arrive on the device."""
    model = nn.Linear(3, 1)
    loss = model(torch.ones(2, 3)).sum()
    loss.backward()
    gradient = model.weight.grad
    assert gradient is not None
    model.to(DEVICE)
    assert model.weight.grad is not None
    assert model.weight.grad.device.type == DEVICE
    assert model.weight.grad.tolist() == gradient.tolist()
    model(torch.ones(2, 3, device=DEVICE)).sum().backward()
    assert model.weight.grad.tolist() == [[4, 4, 4]]
    assert loss.grad_fn is not None


def test_what_hangs_on_a_parameter_stays() -> None:
    model = nn.Linear(3, 1)
    calls: list[str] = []
    model.weight.register_hook(lambda g: calls.append(g.device.type))
    model.weight.register_post_accumulate_grad_hook(lambda p: calls.append("accumulated"))
    model.weight.note = "mine"  # type: ignore[attr-defined]
    reference = weakref.ref(model.weight)
    model.register_state_dict_pre_hook(lambda *_: calls.append("saving"))
    model.to(DEVICE)
    model(torch.ones(1, 3, device=DEVICE)).sum().backward()
    state = model.state_dict()
    assert calls == [DEVICE, "accumulated", "saving"]
    assert state["weight"].device.type == DEVICE
    assert model.weight.note == "mine"
    assert reference() is model.weight
    assert model.weight.requires_grad
    assert model.weight.is_leaf
    del model, state
    gc.collect()
    assert reference() is None


def test_deepcopy() -> None:
    model = Tied().to(DEVICE)
    twin = copy.deepcopy(model)
    assert twin.head.weight is twin.embedding.weight
    assert twin.head.weight is not model.head.weight
    with torch.no_grad():
        model.middle.bias.add_(1)
    assert not torch.equal(twin.middle.bias, model.middle.bias)
    twin.cpu()
    assert twin.head.weight is twin.embedding.weight
    assert model.head.weight.device.type == DEVICE
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    copied = copy.deepcopy(optimizer)
    assert copied.state_dict()["state"][0]["exp_avg"].device.type == DEVICE


def test_parametrizations() -> None:
    model = nn.Sequential(
        parametrizations.weight_norm(nn.Linear(3, 4)), parametrizations.spectral_norm(nn.Linear(4, 2))
    )
    originals = [id(p) for p in model.parameters()]
    x = torch.rand(2, 3)
    model.eval()
    expected = model(x)
    model.to(DEVICE)
    assert [id(p) for p in model.parameters()] == originals
    assert parametrize.is_parametrized(model[0], "weight")
    torch.testing.assert_close(model(x.to(DEVICE)).cpu(), expected, atol=1e-5, rtol=1e-5)
    model.cpu()
    torch.testing.assert_close(model(x), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("there", range(4))
def test_lazy_modules(there: int) -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
    optimizer_would_hold = list(model.parameters())
    TO_DEVICE[there](model)
    assert all(isinstance(p, nn.parameter.UninitializedParameter) for p in model.parameters())
    assert {p.device.type for p in model.parameters()} == {DEVICE}
    assert model(torch.ones(2, 3, device=DEVICE)).shape == (2, 2)
    assert [id(p) for p in model.parameters()] == [id(p) for p in optimizer_would_hold]
    assert {p.device.type for p in model.parameters()} == {DEVICE}


def test_dtypes_move_too() -> None:
    model = Tied()
    identities = [id(p) for p in model.parameters()]
    model.to(DEVICE, torch.bfloat16)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    model.half().float().double().cpu()
    assert {(p.dtype, p.device.type) for p in model.parameters()} == {(torch.float64, "cpu")}
    assert [id(p) for p in model.parameters()] == identities


def test_recurrent_modules() -> None:
    model = nn.LSTM(3, 4)
    identities = [id(p) for p in model.parameters()]
    x = torch.rand(5, 2, 3)
    expected = model(x)[0]
    model.to(DEVICE)
    assert [id(p) for p in model.parameters()] == identities
    torch.testing.assert_close(model(x.to(DEVICE))[0].cpu(), expected)


def test_modules_that_stay_on_the_host_are_as_ever() -> None:
    model = Tied()
    weight, address = model.middle.weight, model.middle.weight.data_ptr()
    model.to("cpu")
    assert model.middle.weight is weight
    assert model.middle.weight.data_ptr() == address
    model.double()
    assert model.middle.weight is weight
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        model.float()
        assert model.middle.weight is not weight
        weight = model.middle.weight
        model.to(DEVICE)
        assert model.middle.weight is not weight
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    meta = nn.Linear(2, 2, device="meta")
    before = meta.weight
    assert meta.to_empty(device=DEVICE).weight is not before
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        nn.Linear(2, 2, device="meta").to(DEVICE)


def test_swapping_parameters() -> None:
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model = Tied()
        identities = [id(p) for p in model.parameters()]
        model.to(DEVICE)
        assert [id(p) for p in model.parameters()] == identities
        assert model.head.weight is model.embedding.weight
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def test_data_assignment_between_devices() -> None:
    """Older scripts move parameters by ``p.data = p.data.to(device)``."""
    p = nn.Parameter(torch.ones(3))
    p.data = p.data.to(DEVICE)
    (p * 2).sum().backward()
    assert p.grad is not None
    assert (p.device.type, p.grad.device.type, p.grad.tolist()) == (DEVICE, DEVICE, [2, 2, 2])
    p.grad = None
    p.data = torch.zeros(2)
    (p * 3).sum().backward()
    assert p.grad is not None
    assert (p.device.type, p.shape, p.grad.tolist()) == ("cpu", (2,), [3, 3])
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        p.data = torch.eye(2).to_sparse()


# --- to_lazy and to_eager ---------------------------------------------------------------------------------------------


def test_tensors_there_and_back() -> None:
    x = torch.rand(3, requires_grad=True)
    lazy = torch_pjrt.to_lazy(x)
    y = lazy * 2
    assert lazy.is_pjrt
    assert torch_pjrt._C.is_pending(y)
    back = torch_pjrt.to_eager(y)
    assert back.device.type == "cpu"
    assert not torch_pjrt._C.is_pending(y)
    back.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]
    assert torch_pjrt.to_eager(x) is x
    assert torch_pjrt.to_lazy(y) is y


def test_containers() -> None:
    x = torch.ones(2)
    batch = torch_pjrt.to_lazy({"x": x, "more": [x, (torch.zeros(1), 3, "text")]})
    assert batch["x"] is batch["more"][0]  # type: ignore[index, comparison-overlap]
    assert batch["x"].is_pjrt  # type: ignore[attr-defined]
    assert batch["more"][1][1:] == (3, "text")  # type: ignore[index]
    host = torch_pjrt.to_eager(batch)
    assert host["x"].tolist() == [1, 1]  # type: ignore[attr-defined]
    assert host["x"].device.type == "cpu"  # type: ignore[attr-defined]


def test_wrong_ways() -> None:
    with pytest.raises(ValueError, match="to_lazy takes to a pjrt device, got cpu; to_eager takes elsewhere"):
        torch_pjrt.to_lazy(torch.ones(1), "cpu")
    with pytest.raises(ValueError, match=r"to_eager takes away from the pjrt device, got pjrt; torch_pjrt.eager_mode"):
        torch_pjrt.to_eager(torch.ones(1), "pjrt")
