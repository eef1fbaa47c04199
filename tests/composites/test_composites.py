"""Ops as composites in a program's text: names, attributes, operands, the switch."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import torch_pjrt
from tests import fresh
from torch_pjrt import _C

pytestmark = pytest.mark.compiled


def text(function: Callable[..., Any], *args: Any, asked: Any = "all", **options: Any) -> str:
    with torch_pjrt.composites(asked, **options):
        return without_lines(torch_pjrt.to_stablehlo(function, *args))


def without_lines(stablehlo: str) -> str:
    return re.sub(r" loc\(.*\)\n", "\n", stablehlo)


def composites_in(stablehlo: str) -> list[str]:
    """Returns the composites in @main."""
    main = stablehlo.split("func.func private")[0]
    return re.findall(r'stablehlo\.composite "([^"]+)"', main)


def attributes_in(stablehlo: str, name: str) -> str:
    found = re.search(rf'stablehlo\.composite "{re.escape(name)}" [^{{]*{{(.*), decomposition', stablehlo)
    assert found, stablehlo
    return found[1]


def test_the_text_of_gelu_and_its_backward() -> None:
    def gradient(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(F.gelu(x, approximate="tanh").sum(), x)[0]

    x = torch.ones(2, 3)
    assert composites_in(text(F.gelu, x)) == ["aten.gelu.default"]
    shown = text(gradient, x)
    assert 'stablehlo.composite "aten.gelu_backward.default" %' in shown
    assert attributes_in(shown, "aten.gelu_backward.default") == 'composite_attributes = {approximate = "tanh"}'
    assert re.search(r'decomposition = @"aten.gelu_backward.default.[0-9a-f]{16}", version = 1 : i32}', shown)
    assert shown == text(gradient, x), "the same program has the same text"


ATTRIBUTES = [
    (lambda x: x.softmax(-1), "aten._softmax.default", ["dim = 1 : i64", "half_to_float = false"]),
    (lambda x: x.cumsum(-2, dtype=torch.float64), "aten.cumsum.default", ["dim = 0 : i64", 'dtype = "float64"']),
    (lambda x: x.var((-1,), correction=0), "aten.var.correction", ["dim = array<i64: 1>", "correction = 0 : i64"]),
    (lambda x: F.layer_norm(x, (4,)), "aten.native_layer_norm.default",
     ["normalized_shape = array<i64: 4>", "eps = 1.0e-05 : f64"]),
    (lambda x: x.topk(2), "aten.topk.default", ["k = 2 : i64", "largest = true", "sorted = true", "dim = 1 : i64"]),
    (lambda x: F.leaky_relu(x, 0.25), "aten.leaky_relu.default", ["negative_slope = 0.25 : f64"]),
    (lambda x: F.conv1d(x[None], x[:, :, None]), "aten.convolution.default",
     ["stride = array<i64: 1>", "transposed = false", "groups = 1 : i64"]),
]  # fmt: skip


@pytest.mark.parametrize(("function", "name", "expected"), ATTRIBUTES, ids=[name for _, name, _ in ATTRIBUTES])
def test_attributes_are_the_schemas(function: Any, name: str, expected: list[str]) -> None:
    function_of = (lambda x: function(x.reshape(4, 4))) if name == "aten.convolution.default" else function
    shown = attributes_in(text(function_of, torch.ones(4, 4)), name)
    assert [one for one in expected if one not in shown] == []


def test_operands_are_named_where_the_schema_leaves_them_open() -> None:
    x, w = torch.ones(2, 4), torch.ones(4)
    with_weight = text(lambda x, w: F.layer_norm(x, (4,), w), x, w)
    assert "operands" not in attributes_in(with_weight, "aten.native_layer_norm.default")
    with_bias = text(lambda x, b: F.layer_norm(x, (4,), None, b), x, w)
    assert 'operands = ["input", "bias"]' in attributes_in(with_bias, "aten.native_layer_norm.default")
    rows = text(lambda x, i: x[:, i], x, torch.tensor([1, 2]))
    assert 'operands = ["self", "indices.1"]' in attributes_in(rows, "aten.index.Tensor")


def test_what_varies_is_an_operand() -> None:
    x = torch.ones(4, device="pjrt")
    shown: list[str] = []
    _C.set_program_listener(lambda _, stablehlo: shown.append(stablehlo))
    try:
        with torch_pjrt.composites("all"):
            for slope in (0.5, 0.25, 0.125):
                F.leaky_relu(x, slope).cpu()
            F.dropout(x, 0.5).cpu()
    finally:
        _C.set_program_listener(None)
    assert len(shown) == 3  # two slopes, and dropout: the third slope is an argument of the second program
    assert "negative_slope = 0.5 : f64" in attributes_in(shown[0], "aten.leaky_relu.default")
    assert 'operands = ["self", "negative_slope"]' in attributes_in(shown[1], "aten.leaky_relu.default")
    dropout = attributes_in(shown[2], "aten.native_dropout.default")
    assert 'operands = ["input", "random_key"]' in dropout
    assert "p = 0.5 : f64" in dropout


def test_nothing_changes_unless_asked_for() -> None:
    x = torch.ones(2, 3)
    plain = without_lines(torch_pjrt.to_stablehlo(F.gelu, x))
    assert "composite" not in plain
    assert text(F.gelu, x, asked="none") == plain
    assert text(F.gelu, x, asked="aten.silu.default") == plain
    assert composites_in(text(lambda x: F.silu(F.gelu(x)), x, asked="aten.silu.default")) == ["aten.silu.default"]
    with torch_pjrt.composites("all"), torch_pjrt.composites("none"):
        assert without_lines(torch_pjrt.to_stablehlo(F.gelu, x)) == plain


def test_in_place_out_and_foreach_forms_have_the_functional_ones() -> None:
    def in_place(x: torch.Tensor) -> torch.Tensor:
        return F.silu(x.clone(), inplace=True)

    def foreach(x: torch.Tensor) -> Any:
        return torch._foreach_sigmoid([x, x + 1])

    assert composites_in(text(in_place, torch.ones(3))) == ["aten.silu.default"]
    assert composites_in(text(foreach, torch.ones(3))) == ["aten.sigmoid.default"] * 2


def test_assertions_stay_outside() -> None:
    """An index out of range is still reported, and the composite has only its op's results."""
    weight, index = torch.ones(5, 2, device="pjrt"), torch.tensor([1, 7], device="pjrt")
    shown: list[str] = []
    _C.set_program_listener(lambda _, stablehlo: shown.append(stablehlo))
    try:
        with torch_pjrt.composites("all"):
            result = F.embedding(index, weight)
            with pytest.raises(IndexError, match="index"):
                result.cpu()
    finally:
        _C.set_program_listener(None)
    (program,) = shown
    assert re.search(r'"aten.embedding.default" .* -> tensor<2x2xf32>', program)
    assert program.count('"stablehlo.gather"(') == 1, "what only the composite needs is not computed outside"


def test_a_plugin_that_knows_no_composite_gets_calls() -> None:
    x = _C.asked_composites()
    assert x is None
    with torch_pjrt.composites("all"):
        y = F.gelu(torch.ones(3, device="pjrt"))
        assert "func.call" in _C.stablehlo([y], knows_composites=False)
        assert "stablehlo.composite" not in _C.stablehlo([y], knows_composites=False)


def test_names_of_a_consumer() -> None:
    x = torch.ones(2, 3)
    assert composites_in(text(F.gelu, x, names="tenstorrent")) == ["tenstorrent.gelu"]
    tanh = text(lambda x: F.gelu(x, approximate="tanh"), x, names="tenstorrent")
    assert composites_in(tanh) == ["tenstorrent.gelu_tanh"]
    assert composites_in(text(F.gelu, x, names="odml")) == ["aten.gelu.default"]
    assert composites_in(text(F.gelu, x, names={"aten.gelu.default": "vendor.gelu"})) == ["vendor.gelu"]


def test_explain_lists_those_of_new_programs() -> None:
    x = torch.ones(3, 7).to("pjrt")
    with torch_pjrt.explain() as report, torch_pjrt.composites("all"):
        F.gelu(F.gelu(x)).softmax(-1).cpu()
    (run,) = report.graphs
    assert [(c.name, c.count, c.done_by) for c in run.composites] == [
        ("aten._softmax.default", 1, "its decomposition"),
        ("aten.gelu.default", 2, "its decomposition"),
    ]
    assert "aten.gelu.default" in str(report)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
def test_a_step_of_an_optimizer_is_one(name: str) -> None:
    parameters = [torch.nn.Parameter(torch.ones(5, device="pjrt")) for _ in range(3)]
    optimizer = getattr(torch.optim, name)(parameters, lr=0.125, fused=True)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    programs: list[str] = []
    _C.set_program_listener(lambda _, stablehlo: programs.append(stablehlo))
    try:
        with torch_pjrt.composites("all"):
            optimizer.step()
            torch_pjrt.sync()
    finally:
        _C.set_program_listener(None)
    step = f"torch_pjrt.fused_{name.lower()}_.default"
    assert [one for program in programs for one in composites_in(program)] == [step]


def test_numbers_are_equal_to_the_bit() -> None:
    def net(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        y = F.gelu(F.layer_norm(x @ w.t(), (64,))).softmax(-1)
        return torch.autograd.grad((y * y).sum(), x)[0]

    x, w = torch.randn(32, 48).to("pjrt"), torch.randn(64, 48).to("pjrt")
    plain = net(x, w).cpu()
    with torch_pjrt.composites("all"):
        assert torch.equal(net(x, w).cpu(), plain)
    assert torch_pjrt.metrics()["graphs_compiled"] + torch_pjrt.metrics()["graphs_loaded_from_disk"] == 2


def test_under_a_dispatch_mode_an_op_still_has_its_own_kernel() -> None:
    """In such a mode PyTorch runs the last registered Python kernel, whichever is asked for."""

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    layer, x = torch.nn.LSTM(3, 4), torch.randn(2, 1, 3)
    expected = layer(x)[0]
    with torch_pjrt.composites("all"):
        pass
    with Watch():
        result = layer.to("pjrt")(x.to("pjrt"))[0]
    torch.testing.assert_close(result.cpu(), expected)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("gelu", r"'gelu' has no namespace; .* Is it 'aten.gelu.default'"),
        ("aten.gelu", r"there is no composite 'aten.gelu'. Is it 'aten.gelu.default'"),
        (["my.unknown_op"], r"there is no composite 'my.unknown_op'"),
        ("all,aten.gelu.default", r"'all' stands alone"),
    ],
)
def test_unknown_names(asked: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        torch_pjrt.composites(asked)


def test_unknown_consumer() -> None:
    with pytest.raises(ValueError, match="no consumer 'nobody' has names here; there are odml, tenstorrent"):
        torch_pjrt.composites("all", names="nobody")


def test_the_environment(server: fresh.Server) -> None:
    show = "import torch, torch_pjrt; print(torch_pjrt.to_stablehlo(torch.nn.functional.gelu, torch.ones(2)))"
    wrong = "try:\n import torch_pjrt\nexcept ValueError as error: print(error)"
    jobs = [(show, "aten.gelu.default, my.op"), (wrong, "aten.glue.default")]
    shown, message = server.run(
        *(fresh.Job(code, environment={"TORCH_PJRT_COMPOSITES": value}) for code, value in jobs)
    )
    assert composites_in(shown.out) == ["aten.gelu.default"]
    assert (
        "TORCH_PJRT_COMPOSITES=aten.glue.default: composites: there is no composite 'aten.glue.default'" in message.out
    )
