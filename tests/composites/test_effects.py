"""Groups with dropout or writes: masks are operands, new values are results, and numbers don't change."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt
from torch_pjrt import _C

pytestmark = pytest.mark.compiled

Run = Callable[[], list[torch.Tensor]]


def both(run: Run, name: str) -> tuple[list[torch.Tensor], list[torch.Tensor], list[str]]:
    """Returns results without composites and with this one, and the lines that have it."""

    def numbers() -> list[torch.Tensor]:
        torch.manual_seed(0)
        return [x.detach().cpu() for x in run()]

    programs: list[str] = []
    with torch_pjrt.composites("none"):
        plain = numbers()
    _C.set_program_listener(lambda _, text: programs.append(text))
    try:
        with torch_pjrt.composites(name):
            grouped = numbers()
    finally:
        _C.set_program_listener(None)
    return plain, grouped, [line for text in programs for line in text.splitlines() if f'composite "{name}' in line]


def operands_of(line: str) -> list[str]:
    found = re.search(r"operands = \[(.*?)\]", line)
    return found[1].replace('"', "").split(", ") if found else []


@pytest.mark.parametrize("is_training", [True, False])
def test_running_statistics(is_training: bool) -> None:
    x = torch.randn(2, 3, 8).to("pjrt")

    def run() -> list[torch.Tensor]:
        mean, deviation = torch.zeros(3, device="pjrt"), torch.ones(3, device="pjrt")
        given = x.detach().requires_grad_()
        y = F.instance_norm(given, mean, deviation, use_input_stats=is_training)
        return [y, *torch.autograd.grad(y.pow(3).sum(), given), mean, deviation]

    plain, grouped, lines = both(run, "aten.instance_norm.default")
    for a, b in zip(plain, grouped, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(plain[2], torch.zeros(3)) != is_training
    assert operands_of(lines[0]) == ["input", "running_mean", "running_var"]
    assert ":3 = " in lines[0], "the new statistics are results"
    assert "gradients_of = array<i64: 0>" in lines[1]


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.sampled(3)
def test_dropout_between_layers(kind: str) -> None:
    torch.manual_seed(1)
    layer = getattr(torch.nn, kind)(3, 4, num_layers=2, dropout=0.5).to("pjrt")
    x = torch.randn(5, 2, 3).to("pjrt")

    def run() -> list[torch.Tensor]:
        y = layer(x)[0]
        return [y, *torch.autograd.grad(y.square().sum(), list(layer.parameters()))]

    plain, grouped, lines = both(run, "aten.rnn_tanh.input" if kind == "RNN" else f"aten.{kind.lower()}.input")
    for a, b in zip(plain, grouped, strict=True):
        torch.testing.assert_close(a, b)
    assert operands_of(lines[0])[-1] == "dropout_mask"
    assert "dropout_mask" in operands_of(lines[1])


COMPILED: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "aten.instance_norm.default": (lambda x, mean: F.instance_norm(x, mean, mean.abs() + 1), [(2, 3, 8), (3,)]),
    "aten.gru.input": (torch.nn.GRU(3, 4, num_layers=2, dropout=0.5), [(5, 2, 3)]),
    "aten._scaled_dot_product_fused_attention_overrideable.default": (
        lambda x, mask: F.scaled_dot_product_attention(x, x, x, mask > 0, dropout_p=0.5),
        [(2, 3, 8, 4), (8, 8)],
    ),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str) -> None:
    function, shapes = COMPILED[name]
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(shape, generator=generator) for shape in shapes]

    def run() -> list[torch.Tensor]:
        torch._dynamo.reset()
        given = [value.clone() for value in values]
        given[0].requires_grad_()
        result = torch.compile(function, backend="pjrt", fullgraph=True)(*given)
        y = result[0] if isinstance(result, tuple) else result
        return [y, *torch.autograd.grad(y.pow(3).sum(), given[0]), *given[1:]]

    plain, grouped, lines = both(run, name)
    assert len(lines) == (1 if "attention" in name else 2), "its backward is an op of another name, or the group's"
    if name.startswith("aten.instance"):
        assert not torch.equal(plain[2], values[1]), "the new mean"
        assert ":3 = " in lines[0], "the new statistics are results"
    elif "attention" not in name:
        assert operands_of(lines[0])[-1] == "dropout_mask"
    for a, b in zip(plain, grouped, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "adam": (torch.optim.Adam, {}),
    "adam, decoupled": (torch.optim.AdamW, {"weight_decay": 0.1, "amsgrad": True}),
    "adam, capturable": (torch.optim.Adam, {"capturable": True}),
    "sgd": (torch.optim.SGD, {"lr": 0.125}),
    "sgd, nesterov": (torch.optim.SGD, {"lr": 0.125, "momentum": 0.5, "nesterov": True}),
}


def sizes(name: str, home: str = "pjrt") -> tuple[int, int]:
    """Returns sizes that differ for each, so that each has a program of its own, which can be inspected."""
    return 5 + list(OPTIMIZERS).index(name), 3 if home == "pjrt" else 4


def steps(name: str, count: int = 3, home: str = "pjrt", *, is_compiled: bool = False) -> Run:
    kind, options = OPTIMIZERS[name]

    def run() -> list[torch.Tensor]:
        torch._dynamo.reset()
        parameters = [torch.nn.Parameter(torch.randn(size).to(home)) for size in sizes(name, home)]
        optimizer = kind(parameters, foreach=True, **options)
        step = torch.compile(optimizer.step, backend="pjrt") if is_compiled else optimizer.step
        for i in range(count):
            for parameter in parameters:
                parameter.grad = parameter.detach() * 2 + i
            step()
            torch_pjrt.sync()
        return [*parameters, *(parameter.grad for parameter in parameters)]

    return run


COMPILED_STEPS = [(name, home, True) for name in ("adam, decoupled", "sgd, nesterov") for home in ("pjrt", "cpu")]


@pytest.mark.parametrize(
    ("name", "home", "is_compiled"), [*((name, "pjrt", False) for name in OPTIMIZERS), *COMPILED_STEPS]
)
@pytest.mark.sampled(2)
def test_a_step_of_foreach_calls_is_one(name: str, home: str, is_compiled: bool) -> None:
    composite = f"torch_pjrt.foreach_{name[:4].rstrip(',')}_.default"
    plain, grouped, lines = both(steps(name, 3, home, is_compiled=is_compiled), composite)
    for a, b in zip(plain, grouped, strict=True):
        assert torch.equal(a, b)
    assert operands_of(lines[0])[:2] == ["params.0", "params.1"]
    assert "lr = " not in lines[0]


def test_a_step_is_claimed() -> None:
    def own(*tensors: torch.Tensor, **attributes: Any) -> list[torch.Tensor]:
        return [tensors[0] + 1, tensors[1] + 2]

    with torch_pjrt.register_kernel("torch_pjrt.foreach_sgd_.default", function=own):
        torch.manual_seed(0)
        values = [x.detach().cpu() for x in steps("sgd", 1)()[:2]]
    torch.manual_seed(0)
    for value, size, plus in zip(values, sizes("sgd"), (1, 2), strict=True):
        assert torch.equal(value, torch.randn(size) + plus)


def test_what_is_made_within_may_be_written() -> None:
    @torch_pjrt.composite("effects.copied")
    def copied(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.add_(1)
        return y

    x = torch.ones(3, device="pjrt")
    with torch_pjrt.composites("effects.copied"):
        assert copied(x).tolist() == [2, 2, 2]
        assert x.tolist() == [1, 1, 1]
