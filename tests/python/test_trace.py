"""to_graph and to_stablehlo: programs as text, without running them; and the example in ARCHITECTURE.md is up to
date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import torch_pjrt

ARCHITECTURE = Path(__file__).resolve().parents[2] / "ARCHITECTURE.md"

GRAPH = """\
%0 = f32[2, 3] leaf
%1 = f32[3, 2] leaf
%2 = f32[2, 2] aten::mm(self=%0, mat2=%1)  # relu.py:5
%3 = f32[2, 2] aten::relu(self=%2)  # relu.py:5
return %3
"""

STABLEHLO = """\
module @"graph" {
  func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<3x2xf32>) -> (tensor<2x2xf32>) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] \
: (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32> loc("relu.py":5:0)
    %1 = stablehlo.constant dense<0.0> : tensor<2x2xf32> loc("relu.py":5:0)
    %2 = stablehlo.maximum %0, %1 : tensor<2x2xf32> loc("relu.py":5:0)
    return %2 : tensor<2x2xf32>
  }
}
"""


def without_lines(text: str) -> str:
    """Removes lines: a call keeps the line that first recorded it, which may be in another test."""
    return re.sub(r'  # \S+:\d+$| loc\("[^"]*":\d+:0\)', "", text, flags=re.MULTILINE)


def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ w)


def test_the_graph_of_a_function() -> None:
    assert without_lines(torch_pjrt.to_graph(layer, torch.ones(2, 3), torch.ones(3, 2))) == without_lines(GRAPH)


def test_the_stablehlo_of_a_function() -> None:
    text = torch_pjrt.to_stablehlo(layer, torch.ones(2, 3), torch.ones(3, 2))
    assert without_lines(text) == without_lines(STABLEHLO)


def test_architecture_shows_the_real_output() -> None:
    document = ARCHITECTURE.read_text()
    for text in (GRAPH, STABLEHLO):
        assert text in document
    # and its script makes exactly these
    scripts = re.findall(r"^```python\n# relu\.py\n(.*?)^```", document, flags=re.MULTILINE | re.DOTALL)
    assert len(scripts) == 1
    source = scripts[0].replace("print(y)", "")
    scope: dict[str, object] = {}
    exec(compile("\n" + source, "relu.py", "exec"), scope)
    y = scope["y"]
    assert without_lines(torch_pjrt._C.graph([y])) == without_lines(GRAPH)
    assert without_lines(torch_pjrt._C.stablehlo([y])) == without_lines(STABLEHLO)


def test_the_users_line_is_in_it() -> None:
    text = torch_pjrt.to_graph(lambda x: x.cumsum(0), torch.ones(17, 3))
    assert re.search(
        rf"aten::cumsum\(self=%0, dim=0, dtype=None\)  # {re.escape(__file__)}:\d+$", text, re.MULTILINE
    ), text


def test_views_writes_and_numbers() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x[1:].mul_(3)
        return x.t()

    assert without_lines(torch_pjrt.to_graph(fn, torch.ones(4, 3))) == (
        "%0 = f32[4, 3] leaf\n"
        "%1 = f32[3, 3] pjrt::view(base=%0, sizes=[3, 3], strides=[3, 1], offset=3)\n"
        "%2 = f32[3, 3] aten::mul_.Tensor(self=%1, other=3)\n"
        "%3 = f32[4, 3] pjrt::write(base=%0, update=%2, sizes=[3, 3], strides=[3, 1], offset=3, box=True)\n"
        "%4 = f32[3, 4] pjrt::view(base=%3, sizes=[3, 4], strides=[1, 3], offset=0)\n"
        "return %4\n"
    )


def test_several_results_and_keyword_arguments() -> None:
    def fn(x: torch.Tensor, *, scale: float) -> dict[str, torch.Tensor]:
        values, indices = x.max(dim=1)
        return {"values": values * scale, "indices": indices}

    assert without_lines(torch_pjrt.to_graph(fn, torch.ones(4, 3), scale=0.5)) == (
        "%0 = f32[4, 3] leaf\n"
        "%1 = f32[4], i64[4] aten::max.dim(self=%0, dim=1, keepdim=False)\n"
        "%2 = f32[4] aten::mul.Tensor(self=%1.0, other=0.5)\n"
        "return %2, %1.1\n"
    )


def test_a_module_and_its_gradient() -> None:
    model = torch.nn.Linear(3, 2).to("pjrt")

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(model(x).square().sum(), tuple(model.parameters()))

    text = torch_pjrt.to_stablehlo(fn, torch.ones(4, 3))
    assert "-> (tensor<2x3xf32>, tensor<2xf32>)" in text
    assert "stablehlo.dot_general" in text


def test_nothing_runs() -> None:
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()
    torch_pjrt.to_stablehlo(layer, torch.ones(2, 3), torch.ones(3, 2))
    m = torch_pjrt.metrics()
    assert (m["syncs"], m["graphs_compiled"], m["executions"]) == (0, 0, 0)


@pytest.mark.parametrize("show", [torch_pjrt.to_graph, torch_pjrt.to_stablehlo])
def test_a_function_without_tensors(show: object) -> None:
    with pytest.raises(ValueError, match=r"^the function gives no tensor, so there is no program to show$"):
        show(lambda x: x.shape[0], torch.ones(3))  # type: ignore[operator]


@pytest.mark.parametrize("show", [torch_pjrt.to_graph, torch_pjrt.to_stablehlo])
def test_a_function_that_leaves_the_device(show: object) -> None:
    message = r"^the function gives tensors on cpu; its parameters must be on 'pjrt'$"
    with pytest.raises(ValueError, match=message):
        show(lambda x: x.cpu(), torch.ones(3))  # type: ignore[operator]


def test_a_module_on_another_device() -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch_pjrt.to_graph(torch.nn.Linear(3, 2), torch.ones(4, 3))


def test_compiled_functions_are_refused() -> None:
    """Their calls record nothing, so that an empty program would be shown."""
    x = torch.ones(3)
    by_method = torch.nn.Linear(3, 3)
    by_method.compile(backend="pjrt")
    for fn, compiler in (
        (torch.compile(torch.relu, backend="pjrt"), "torch.compile"),
        (torch.compile(torch.nn.Linear(3, 3), backend="pjrt"), "torch.compile"),
        (torch.nn.Sequential(torch.nn.ReLU(), by_method), "torch.compile"),
        (torch_pjrt.compile_step(lambda x: x + 1), "compile_step"),
        (torch_pjrt.jit(lambda x: x + 1, (x,)), "jit"),
        (torch_pjrt.jit(lambda x: [x + 1], (x,)), "jit"),
    ):
        for show in (torch_pjrt.to_stablehlo, torch_pjrt.to_graph):
            with pytest.raises(TypeError, match=f"{compiler} made this function.*Give the function that was compiled"):
                show(fn, x)
    assert "add" in torch_pjrt.to_graph(torch._dynamo.disable(lambda x: x + 1), x)
