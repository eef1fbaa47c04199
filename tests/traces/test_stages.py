"""Each stage in Python runs, and returns what eager returns, forward and gradients."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import torch_pjrt
from tests.traces.subclasses import Optional, Refuses, Scaled, Silent, Unit, Wide
from torch_pjrt.program.subclasses import leaves_of, with_leaves
from torch_pjrt.traces import Traces


def two(*size: int) -> TwoTensor:
    return TwoTensor(torch.randn(*size), torch.randn(*size))


def scaled(*size: int) -> Scaled:
    return Scaled(torch.randn(*size), torch.rand(()) + 1)


def nested() -> TwoTensor:
    return TwoTensor(scaled(3, 3), scaled(3, 3))


def learned(t: Any) -> Any:
    return t.requires_grad_()


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> Any:
        ctx.save_for_backward(x, w, s)
        return Scaled(x, s) @ Scaled(w, s)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        (g,), (x, w, s) = gradients, ctx.saved_tensors
        return Scaled(g, s) @ Scaled(w.t(), s), Scaled(x.t(), s) @ Scaled(g, s), None


class Module(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(two(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weight).sin()


def in_place(x: Any, w: Any) -> Any:
    y = x * w
    y.add_(1)
    y[0].mul_(2)
    return y.sin()


def written_view(x: Any, w: Any) -> Any:
    y = x @ w
    v = y[0]
    v.mul_(2)
    y.t().add_(1)
    return (y + v).sin()


def by_context(x: Any, y: Any) -> Any:
    z = x * y
    return z + 1 if z.context == "m*s" else z - 1


def by_dtype(x: Any) -> Any:
    y = x * 2
    return y.sin() if y.dtype is torch.float64 and y.shape[0] == 3 else y.cos()


def branches(x: Any, p: Any, y: Any) -> Any:
    return torch.cond(p, lambda x: x.sin(), lambda x: x.cos(), (x,)) + (y * y).a


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "product": (lambda x, w: (x @ w).relu(), lambda: (two(4, 4), learned(two(4, 4)))),
    "plain result": (lambda x, w: (x @ w).relu(), lambda: (scaled(3, 4), scaled(4, 5))),
    "nested": (lambda x: (x @ x + 1).relu(), lambda: (learned(TwoTensor(two(3, 3), two(3, 3))),)),
    "another within": (lambda x, w: (x @ w).sin(), lambda: (nested(), nested())),
    "views": (lambda x: (x.view(2, 8).t() * 2, x[1:3] + 1), lambda: (two(4, 4),)),
    "several results": (lambda x: x.split(2), lambda: (two(4, 3),)),
    "in place": (in_place, lambda: (two(4, 4), learned(two(4, 4)))),
    "written view": (written_view, lambda: (two(4, 4), learned(two(4, 4)))),
    "context": (by_context, lambda: (Unit(torch.randn(3), context="m"), Unit(torch.randn(3), context="s"))),
    "promotion": (by_dtype, lambda: (Wide(torch.randn(3), context="m"),)),
    "made inside": (lambda x, s: Scaled(x, s) @ Scaled(x, s * 2), lambda: (torch.randn(3, 3), torch.rand(()))),
    "taken out": (lambda x: (x * 2).a + x.b, lambda: (two(3),)),
    "aten": (lambda x, w: torch.ops.aten.mm(x, w).relu(), lambda: (two(3, 3), learned(two(3, 3)))),
    "function": (
        lambda x, w, s: Function.apply(x, w, s).relu(),
        lambda: (torch.randn(3, 4), learned(torch.randn(4, 5)), torch.rand(())),
    ),
    "checkpoint": (
        lambda x, w: checkpoint(lambda x: (x @ w).sin().cos(), x, use_reentrant=False),
        lambda: (two(3, 3), learned(two(3, 3))),
    ),
    "plain module": (
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), lambda: (torch.randn(3, 4),),
    ),
    "module": (Module(), lambda: (two(2, 4),)),
    "branches": (branches, lambda: (torch.randn(3), torch.tensor(True), two(3))),
    "torch function": (lambda x: F.silu(x) + 1, lambda: (Silent(torch.randn(3), context="m"),)),
    "optional part": (
        lambda x, y: x * 2 + y, lambda: (Optional(torch.randn(3)), Optional(torch.randn(3), torch.ones(2))),
    ),
}  # fmt: skip


def same(got: Any, wanted: Any) -> None:
    got, wanted = ([t for t in pytree.tree_leaves(x) if isinstance(t, torch.Tensor)] for x in (got, wanted))
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert type(a.detach()) is type(b.detach())
        for (_, x), (_, y) in zip(leaves_of(a), leaves_of(b), strict=True):
            assert_close(x.detach(), y.detach(), rtol=1e-4, atol=1e-5)


def in_order(f: Any, arguments: tuple[Any, ...], traces: Traces) -> list[Any]:
    """Returns the stages' arguments by name: parameters, the function's arguments, and attributes of these."""
    names = inspect.signature(f.forward if isinstance(f, nn.Module) else f).parameters
    found = {} if not isinstance(f, nn.Module) else {f"_{n}".replace(".", "_"): p for n, p in f.named_parameters()}
    for name, value in zip(names, arguments, strict=True):
        found[name] = found["_args_0"] = value
        found |= {f"{name}_{part}": getattr(value, part) for part in ("a", "b") if hasattr(value, part)}
    line = next(line for line in traces["as_written"].text.splitlines() if line.startswith("def "))
    given = line[line.index("(") + 1 : line.rindex(")")].split(", ")
    return [found[name] if name in found else found[f"_{name}"] for name in given]


def check(f: Any, arguments: tuple[Any, ...], traces: Traces) -> None:
    inputs = in_order(f, arguments, traces)

    def fresh() -> list[Any]:
        return [
            with_leaves(x, lambda leaf, _: leaf.detach().clone()).requires_grad_(x.requires_grad)
            if isinstance(x, torch.Tensor) else x
            for x in inputs
        ]  # fmt: skip

    wanted = f(*arguments)
    given = fresh()
    same(results := traces["as_written"].python_callable()(*given), wanted)
    labels = [each.label for each in traces]
    with torch.no_grad():
        if "backward" not in labels:
            same(traces["forward_with_subclasses"].python_callable()(*fresh()), wanted)
            same(traces["forward"].python_callable()(*fresh()), wanted)
            return
    outputs = [t for t in pytree.tree_leaves(results) if isinstance(t, torch.Tensor) and t.requires_grad]
    seeds = [torch.ones_like(t) for t in outputs]
    need = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad]
    gradients = torch.autograd.grad(outputs, need, seeds)
    with torch.no_grad():
        for suffix in ("_with_subclasses", ""):
            outs, saved = traces["forward" + suffix].python_callable()(*fresh())
            same(outs, wanted)
            same(traces["backward" + suffix].python_callable()(*saved, *(s.detach() for s in seeds)), gradients)


@pytest.mark.parametrize("name", CASES)
def test_runs_as_eager(name: str) -> None:
    f, make = CASES[name]
    arguments = make()
    torch._dynamo.reset()
    traces = torch_pjrt.trace(f, *arguments)
    check(f, arguments, traces)
    assert max(len(line) for t in traces if t.language == "python" for line in t.text.splitlines()) <= 100
    for accounts in traces.accounts:
        for event, recorded in accounts.recorded.items():
            assert sum(accounts.of(event).values()) == recorded
    assert any((t.language == "mlir" and "stablehlo" in t.text) or "func.func" in t.text for t in traces)


def test_twice_gives_the_same() -> None:
    f, make = CASES["product"]
    arguments = make()
    one, other = torch_pjrt.trace(f, *arguments), torch_pjrt.trace(f, *arguments)
    assert [t.text for t in one] == [t.text for t in other]
    assert [t.label for t in one][-2:] == ["stablehlo_forward", "stablehlo_backward"]


def test_names_stay_when_something_else_is_added() -> None:
    def short(x: Any, w: Any, y: Any) -> Any:
        return (x @ w).relu(), y * 2

    def long(x: Any, w: Any, y: Any) -> Any:
        z = y.cos().exp()
        return (x @ w).relu(), y * 2 + z

    arguments = two(3, 3), two(3, 3), torch.ones(2)
    one, other = (torch_pjrt.trace(f, *arguments) for f in (short, long))
    for stage in ("as_written", "forward_with_subclasses", "forward"):
        lines = [re.sub(r"test_stages.py:\d+ in \w+", "", t[stage].text).splitlines() for t in (one, other)]
        kept = [line for line in lines[0] if re.search(r" = |\[\d/\d\]", line)]
        assert len(kept) >= 3
        assert set(kept) <= set(lines[1])


def test_where_lines_come_from() -> None:
    def f(x: Any, w: Any) -> Any:
        return x @ w

    traces = torch_pjrt.trace(f, scaled(3, 4), scaled(4, 5))
    text = traces["forward"].text
    assert re.search(r"# test_stages.py:\d+ in f: return x @ w", text)
    assert "# [1/3] unrolled __torch_dispatch__ of torch.ops.aten.mm(x: Scaled, w: Scaled)," in text
    assert "subclasses.py:" in text
    assert "x is a Scaled of .x, .scale; context None" in text
    assert '# x: "Scaled[cpu f32[3, 4]; x f32[3, 4], scale f32[]]"' in traces["as_written"].text


def test_sizes_that_vary() -> None:
    """The stages have the sizes of the call, while the program is valid for others as well."""

    def f(x: Any, w: Any) -> Any:
        return (x @ w).view(-1) * x.shape[0]

    torch._dynamo.reset()
    compiled = torch.compile(f, backend="pjrt", dynamic=True, options={"trace": True})
    for size in (5, 3):
        x, w = two(size, 4), learned(two(4, 4))
        result = compiled(x, w)
        same(result, f(x, w))
        seed = TwoTensor(torch.ones_like(result.a), torch.ones_like(result.b))
        wanted = torch.autograd.grad(f(x, w), w, seed)
        same(torch.autograd.grad(result, w, seed), wanted)
    traces = torch_pjrt.last_traces(compiled)
    assert [t.label for t in traces].count("forward") == 1
    assert re.search(r"# +sizes: s\d+ = 5, s\d+ = 4 where", traces["forward"].text)
    x = two(5, 4)
    y = f(x, w)
    seed = TwoTensor(torch.ones(20), torch.ones(20))
    values = {"x": x, "w": w, "x_size_0": 5, "x_size_1": 4, "x_stride_0": 4, "w_size_0": 4, "w_size_1": 4}
    wanted = torch.autograd.grad(y, w, seed)
    for suffix in ("_with_subclasses", ""):
        run = traces["forward" + suffix].python_callable()
        with torch.no_grad():
            outs, saved = run(*(values.get(name.rstrip("_"), 4) for name in inspect.signature(run).parameters))
            same(outs, y)
            same(traces["backward" + suffix].python_callable()(*saved, seed), wanted)


def test_merged_lines_are_reported() -> None:
    def f(x: Any, w: Any) -> Any:
        return (x @ w) + (x @ w)  # neither is for the backward alone: since torch 2.14 such a one stays

    text = torch_pjrt.trace(f, two(3, 3), learned(two(3, 3)))["forward"].text
    assert text.count("= torch.ops.aten.mm.default(") == 2
    assert re.search(r"aten.mm\(x: TwoTensor, w: TwoTensor\) \(0 of 2 shown: 2\s+(# +)?merged\)", text)


def test_saved_file_runs_alone(tmp_path: Path) -> None:
    x = Unit(torch.arange(3.0), context="m")
    torch_pjrt.trace(lambda x: x * x, x)["forward"].save(tmp_path / "step.py")
    script = "import torch, step; print(step.forward(step.Unit(torch.arange(3.0), context='m'))[0].value.tolist())"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0.0, 1.0, 4.0]\n"


def test_last_traces() -> None:
    f = lambda x: (x * 2).sum()  # noqa: E731
    compiled = torch.compile(f, backend="pjrt", options={"trace": True})
    with pytest.raises(ValueError, match="no traces: compile with"):
        torch_pjrt.last_traces(compiled)
    compiled(two(3).requires_grad_()).backward(TwoTensor(torch.ones(()), torch.ones(())))
    labels = [t.label for t in torch_pjrt.last_traces(compiled)]
    assert (labels[0], labels[-1]) == ("as_written", "stablehlo_backward")


def test_last_traces_of_each_that_was_compiled() -> None:
    models = [nn.Sequential(nn.Linear(2, size), nn.ReLU()) for size in (3, 5)]
    compiled = [torch.compile(m, backend="pjrt", options={"trace": True}) for m in models]
    for each in compiled:
        each(torch.ones(1, 2))
    for each, size in zip(compiled, (3, 5), strict=True):
        traces = torch_pjrt.last_traces(each)
        assert f"f32[1, {size}]" in traces["forward"].text
        assert sum(t.label.startswith("as_written") for t in traces) == 1

    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + 1
            torch._dynamo.graph_break()
            return x * 2

    broken = torch.compile(Broken(), backend="pjrt", options={"trace": True})
    broken(torch.ones(2))
    assert [t.label for t in torch_pjrt.last_traces(broken) if "written" in t.label] == ["as_written", "as_written_1"]


def test_refused_op() -> None:
    x = Refuses(torch.randn(3), context="m").requires_grad_()
    message = (
        r"torch.ops.aten.cos\(.*: Refuses\) in the backward, at .* in <lambda>.*Refuses can't do this .*NotImplemented"
    )
    with pytest.raises(Exception, match=message):
        torch_pjrt.trace(lambda x: x.sin() * 2, x)


def test_shown_in_color_and_html() -> None:
    trace = torch_pjrt.trace(lambda x: x * 2, two(3))["forward"]
    assert "\x1b[33m" in trace.colored()
    assert "<summary>forward, unrolled</summary>" in trace._repr_html_()


def test_a_line_is_the_users_not_one_of_torch() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x / torch.nn.utils.get_total_norm([x, x * 2])

    text = str(torch_pjrt.trace(scaled, torch.randn(2, 3)))
    assert "in scaled: return x / torch.nn.utils.get_total_norm([x, x * 2])" in text
    assert "clip_grad.py" not in text
