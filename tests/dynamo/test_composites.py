"""Composites of compiled functions: ops, ops kept whole, and the user's groups."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt


@torch_pjrt.composite("compiled.norm", eps=1e-5)
def norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * (x * x).mean(-1, keepdim=True).add(1e-5).rsqrt() * scale


def names(programs: list[str]) -> list[list[str]]:
    return [re.findall(r'stablehlo\.composite "([^"]+)"', text.split("func.func private")[0]) for text in programs]


def compiled(function: Callable[..., Any], asked: str = "all") -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="pjrt", fullgraph=True, options={"composites": asked})


def test_ops_forward_and_backward(programs: list[str]) -> None:
    x = torch.randn(4, 8, requires_grad=True)
    compiled(lambda x: F.gelu(x).sum())(x).backward()
    assert names(programs) == [["aten.gelu.default"], ["aten.gelu_backward.default"]]


def test_the_switch_around_the_call(programs: list[str]) -> None:
    x = torch.randn(4, 8, requires_grad=True)
    torch._dynamo.reset()
    function = torch.compile(lambda x: F.gelu(x).sum(), backend="pjrt")
    with torch_pjrt.composites("aten.gelu_backward.default"):
        loss = function(x)
    loss.backward()
    assert names(programs) == [[], ["aten.gelu_backward.default"]], "a backward has what held when it was captured"


def test_groups_break_no_graph_and_have_a_backward(programs: list[str]) -> None:
    x, scale = torch.randn(4, 8), torch.randn(8)

    def net(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return norm(x, scale).tanh().sum()

    def gradients(function: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        inputs = [t.detach().clone().requires_grad_() for t in (x, scale)]
        function(*inputs).backward()
        return [t.grad for t in inputs]

    plain = gradients(torch.compile(net, backend="pjrt", fullgraph=True))
    programs.clear()
    grouped = gradients(compiled(net, "compiled.norm"))
    assert names(programs) == [["compiled.norm"], ["compiled.norm.backward"]]
    for a, b in zip(plain, grouped, strict=True):
        torch.testing.assert_close(a, b)


KEPT = {
    "aten.scaled_dot_product_attention.default": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(2, 3, 16, 8)] * 3,
        ["is_causal = true", "dropout_p = 0.0 : f64"],
    ),
    "aten.cross_entropy_loss.default": (
        lambda x, y: F.cross_entropy(x, y.softmax(-1), label_smoothing=0.5),
        [(4, 5), (4, 5)],
        ["label_smoothing = 0.5 : f64", "reduction = 1 : i64"],
    ),
    "aten.linear.default": (F.linear, [(4, 8), (5, 8), (5,)], []),
    "aten.instance_norm.default": (lambda x: F.instance_norm(x), [(2, 3, 8)], ["eps = 1.0e-05 : f64"]),
    "aten.rms_norm.default": (lambda x, w: F.rms_norm(x, (8,), w, 1e-6), [(4, 8), (8,)], ["eps = 1.0e-06 : f64"]),
    "aten.cosine_similarity.default": (lambda x, y: F.cosine_similarity(x, y, dim=-1), [(4, 8), (4, 8)], []),
}


@pytest.mark.compiled
@pytest.mark.parametrize("home", ["cpu", "pjrt"])
@pytest.mark.parametrize("name", KEPT)
@pytest.mark.sampled(2)
def test_ops_that_pytorch_takes_apart_are_kept_whole(name: str, home: str, programs: list[str]) -> None:
    function, shapes, attributes = KEPT[name]
    values = [torch.randn(shape) for shape in shapes]

    def run(call: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        inputs = [value.to(home).detach().requires_grad_() for value in values]
        result = call(*inputs)
        grads = torch.autograd.grad((result * result).sum(), inputs)
        return [result.detach().cpu(), *(grad.cpu() for grad in grads)]

    torch._dynamo.reset()
    plain = run(torch.compile(function, backend="pjrt") if home == "cpu" else function)
    programs.clear()
    if home == "cpu":
        given = run(compiled(function, name))
    else:
        with torch_pjrt.composites(name):
            given = run(function)
    made = {one for program in names(programs) for one in program}
    backward = "aten.linear_backward.default" if (name, home) == ("aten.linear.default", "pjrt") else f"{name}.backward"
    assert name in made
    assert backward in made or backward == "aten.linear_backward.default"
    (line, *_) = [line for program in programs for line in program.splitlines() if f'composite "{name}"' in line]
    assert [one for one in attributes if one not in line] == []
    for a, b in zip(plain, given, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("module", [torch.nn.LSTM, torch.nn.GRU], ids=["lstm", "gru"])
@pytest.mark.parametrize("home", ["cpu", "pjrt"])
@pytest.mark.sampled(2)
def test_recurrent_layers_are_kept_whole(module: Any, home: str, programs: list[str]) -> None:
    layer = module(4, 8).to(home)
    x = torch.randn(6, 2, 4).to(home)
    name = f"aten.{module.__name__.lower()}.input"
    plain = layer(x)[0].detach().cpu()
    programs.clear()
    if home == "cpu":
        result = compiled(lambda x: layer(x)[0], name)(x)
        result.sum().backward()
    else:
        with torch_pjrt.composites(name):
            result = layer(x)[0]
            result.sum().backward()
    torch.testing.assert_close(result.detach().cpu(), plain)
    layer.weight_hh_l0.grad.cpu()
    made = [one for program in names(programs) for one in program]
    assert name in made
    assert f"{name}.backward" in made


def text(function: Callable[..., Any], *args: Any) -> str:
    with torch_pjrt.composites("all"):
        return torch_pjrt.to_stablehlo(function, *args)


def test_dropout_in_attention_is_an_op_with_a_key() -> None:
    shown = text(lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5), torch.randn(2, 3, 16, 8))
    (line,) = [line for line in shown.splitlines() if "fused_attention_overrideable.default" in line and " = " in line]
    assert '"random_key"' in line


@torch_pjrt.composite("compiled.several")
def several(x: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x * 2, other * 3, x.detach().exp(), x > 0, x


def test_results_that_need_no_gradient(programs: list[str]) -> None:
    x, other = torch.randn(4, requires_grad=True), torch.randn(4)
    twice, thrice, exp, positive, same = compiled(lambda x, y: several(x, y), "compiled.several")(x, other)
    (twice.sum() + same.sin().sum()).backward()
    assert names(programs) == [["compiled.several"], ["compiled.several.backward"]]
    torch.testing.assert_close(x.grad, 2 + x.detach().cos())
    for given, expected in ((thrice, other * 3), (exp, x.exp()), (positive, x > 0), (same, x)):
        torch.testing.assert_close(given.detach(), expected.detach())


@torch_pjrt.composite("compiled.writes")
def writes(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    return total.add_(x) * 2


def test_a_write_to_an_argument_is_refused() -> None:
    x, total = torch.ones(2), torch.ones(2)
    with pytest.raises(Exception, match=r"composite 'compiled.writes' writes to argument number 1"):
        compiled(lambda x, total: writes(x, total), "compiled.writes")(x, total)
    assert total.tolist() == [1, 1]
