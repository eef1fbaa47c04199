"""A whole training step in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_pjrt


def training(make: Callable[[Any], torch.optim.Optimizer], device: str = "cpu", drop: float = 0.0) -> Any:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(drop), nn.Linear(8, 3)).to(device)
    optimizer = make(model.parameters())

    def train_step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, torch_pjrt.compile_step(train_step)


def batch(seed: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(5, 6, generator=generator), torch.randint(3, (5,), generator=generator)
    return x.to(device), y.to(device)


@pytest.mark.parametrize(
    ("make", "device"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), "pjrt"),
        (lambda p: torch.optim.AdamW(p, lr=0.01), "cpu"),
        (lambda p: torch.optim.AdamW(p, lr=0.01), "pjrt"),
        (lambda p: torch.optim.RMSprop(p, lr=0.01), "cpu"),
    ],
    ids=["SGD-pjrt", "AdamW-cpu", "AdamW-pjrt", "RMSprop-cpu"],
)
def test_a_file_trains_as_the_step_does(tmp_path: Path, device: str, make: Any) -> None:
    model, _, step = training(make, device)
    step(*batch(0, device))
    exported = torch_pjrt.export(step, batch(0, device), name="train_step")
    exported.save(tmp_path / "it.pjrt")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    for i in range(1, 6):
        expected, got = step(*batch(i, device)), program.train_step(*batch(i))
        torch.testing.assert_close(got, expected.detach().cpu(), rtol=1e-4, atol=1e-5)
    state = program.state()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(state[name], value.cpu(), rtol=1e-4, atol=1e-5)


def test_the_state_comes_back(tmp_path: Path) -> None:
    model, optimizer, step = training(lambda p: torch.optim.AdamW(p, lr=0.01))
    step(*batch(0))
    exported = torch_pjrt.export(step, batch(0), name="train_step")
    exported.save(tmp_path / "it.pjrt")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    for i in range(1, 4):
        program.train_step(*batch(i))
    program.save_state(tmp_path / "trained.safetensors")
    for i in range(1, 4):
        step(*batch(i))
    expected = [value.clone() for value in model.state_dict().values()]
    moments = [dict(optimizer.state[p]) for p in model.parameters()]
    with torch.no_grad():
        for value in model.parameters():
            value.zero_()
    exported.restore(tmp_path / "trained.safetensors")
    for got, wanted in zip(model.state_dict().values(), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    for p, wanted_of in zip(model.parameters(), moments, strict=True):
        assert optimizer.state[p]["step"].item() == 4
        torch.testing.assert_close(optimizer.state[p]["exp_avg"], wanted_of["exp_avg"], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(step(*batch(9)), program.train_step(*batch(9)), rtol=1e-4, atol=1e-5)


def test_names_of_what_an_optimizer_keeps(tmp_path: Path) -> None:
    _, _, step = training(lambda p: torch.optim.AdamW(p, lr=0.01))
    step(*batch(0))
    exported = torch_pjrt.export(step, batch(0))
    names = set(exported.state())
    assert {
        "0.weight",
        "1.running_mean",
        "optimizer.state.0.weight.exp_avg",
        "optimizer.state.4.bias.exp_avg_sq",
    } <= names
    assert sum(name.endswith(".step") for name in names) == 1, "the counts go on together"
    assert exported.signature()["hyperparameters"] == ["optimizer.param_groups.0.lr"]


def test_the_learning_rate_is_state(tmp_path: Path) -> None:
    model, _, step = training(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    step(*batch(0))
    torch_pjrt.export(step, batch(0)).save(tmp_path / "it.pjrt")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    program.set_state("hyperparameters", torch.tensor([0.0], dtype=torch.float64))
    program(*batch(1))
    for name, value in model.named_parameters():
        assert torch.equal(program.state()[name], value)


def test_train_and_predict_share_the_model(tmp_path: Path) -> None:
    model, _, step = training(lambda p: torch.optim.AdamW(p, lr=0.01), drop=0.5)
    step(*batch(0))
    exported = torch_pjrt.export(step, batch(0), name="train_step")
    exported.add("predict", model.eval(), batch(0)[0])
    exported.save(tmp_path / "it.pjrt")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    torch.testing.assert_close(program.predict(batch(1)[0]), model(batch(1)[0]))
    before = program.predict(batch(1)[0])
    program.train_step(*batch(1))
    assert not torch.equal(program.predict(batch(1)[0]), before)
    assert program.state()["random_state"].tolist() == [0, 1]


def test_steps_of_several_sizes_share_the_optimizer(tmp_path: Path) -> None:
    _, _, step = training(lambda p: torch.optim.AdamW(p, lr=0.01))
    step(*batch(0))
    sizes = {"x": {0: ("n", [5, 3])}, "y": {0: ("n", [5, 3])}}
    exported = torch_pjrt.export(step, batch(0), dynamic=sizes, name="train_step")
    exported.add("again", step, batch(0))
    exported.save(tmp_path / "it.pjrt")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    x, y = batch(1)
    for n, entry in ((5, program.train_step), (3, program.train_step), (5, program.again)):
        torch.testing.assert_close(entry(x[:n], y[:n]), step(x[:n], y[:n]), rtol=1e-4, atol=1e-5)
    (count,) = (value for name, value in program.state().items() if name.endswith(".step"))
    assert count.item() == 4


def test_an_optimizer_without_state_is_refused() -> None:
    _, _, step = training(lambda p: torch.optim.AdamW(p, lr=0.01))
    with pytest.raises(torch_pjrt.CaptureError, match="run the step once, then export it"):
        torch_pjrt.export(step, batch(0))


def test_gradients_for_the_next_call_are_refused() -> None:
    model = nn.Linear(2, 2)
    step = torch_pjrt.compile_step(lambda x: model(x).sum().backward())
    with pytest.raises(torch_pjrt.CaptureError, match="zero_grad"):
        torch_pjrt.export(step, torch.ones(1, 2))

    def zeroing(x: torch.Tensor) -> None:  # writes zeros into the gradient of the call before
        optimizer.zero_grad(set_to_none=False)
        model(x).sum().backward()
        optimizer.step()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(torch_pjrt.CaptureError, match=r"call zero_grad\(set_to_none=True\)"):
        torch_pjrt.export(torch_pjrt.compile_step(zeroing), torch.ones(1, 2))


def test_state_of_another_model_is_refused(tmp_path: Path) -> None:
    exported = torch_pjrt.export(nn.Linear(2, 2), torch.ones(1, 2))
    exported.save(tmp_path / "a.pjrt")
    torch_pjrt.export(nn.Linear(2, 3), torch.ones(1, 2)).save(tmp_path / "b.pjrt")
    torch_pjrt.load(tmp_path / "b.pjrt").save_state(tmp_path / "b.safetensors")
    with pytest.raises(RuntimeError, match=r"is state of another model: 'bias' is float32.2. in the program"):
        torch_pjrt.load(tmp_path / "a.pjrt").load_state(tmp_path / "b.safetensors")
    with pytest.raises(ValueError, match=r"is of another model: '(weight|bias)' is"):
        exported.restore(tmp_path / "b.safetensors")
