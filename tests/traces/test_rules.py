"""Rules that compute an op of a subclass instead of its ``__torch_dispatch__``."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.testing._internal.two_tensor import TwoTensor

import torch_pjrt

mm = torch.ops.aten.mm.default


def mm_rule(x: Any, w: Any) -> TwoTensor:
    return TwoTensor(x.a @ w.a * 10, x.b @ w.b * 10)


def mm_gradient(g: Any, x: Any, w: Any) -> Any:
    return TwoTensor(g.a @ w.a.t(), g.b @ w.b.t()), TwoTensor(x.a.t() @ g.a * 7, x.b.t() @ g.b * 7)


def arguments() -> tuple[TwoTensor, TwoTensor]:
    make = lambda *size: TwoTensor(torch.randn(*size), torch.randn(*size))  # noqa: E731
    return make(3, 4), make(5, 4).requires_grad_()


def compiled(x: Any, w: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(F.linear, backend="pjrt")(x, w)


def test_with_a_gradient() -> None:
    x, w = arguments()
    plain = x @ w.t()
    (gradient,) = torch.autograd.grad(plain, w, TwoTensor(torch.ones(3, 5), torch.ones(3, 5)))
    with torch_pjrt.register_rule(TwoTensor, mm, mm_rule, mm_gradient):
        result = compiled(x, w)
        torch.testing.assert_close(result.a, plain.a * 10)
        result.backward(TwoTensor(torch.ones(3, 5), torch.ones(3, 5)))
        torch.testing.assert_close(w.grad.b, gradient.b * 7)
        fixed = w.detach()
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                torch.testing.assert_close(compiled(x, fixed).b, plain.b * 10)
        traces = torch_pjrt.trace(F.linear, x, w)
    assert "# torch.ops.aten.mm is claimed by mm_rule" in traces["forward_with_subclasses"].text
    assert re.search(r"= mm_rule\(args_0, t\d\)", traces["forward_with_subclasses"].text)
    assert "mm_gradient(" in traces["backward_with_subclasses"].text
    assert "] claimed by mm_rule(" in traces["forward"].text
    torch.testing.assert_close(compiled(x, w).a, plain.a)


def test_without_a_gradient() -> None:
    x, w = arguments()
    one = TwoTensor(torch.ones(3, 5), torch.ones(3, 5))
    (gradient,) = torch.autograd.grad(x @ w.t(), w, one)
    with torch_pjrt.register_rule(TwoTensor, mm, mm_rule):
        result = compiled(x, w)
        result.backward(one)
    torch.testing.assert_close(result.a, (x @ w.t()).a * 10)
    torch.testing.assert_close(w.grad.a, gradient.a * 10)  # a product, too


@pytest.mark.parametrize("device", ["cpu", "pjrt"])
def test_in_what_is_captured(device: str) -> None:
    (x, w), one = arguments(), torch.ones(3, 5, device=device)
    x, w = (TwoTensor(t.a.detach().to(device), t.b.detach().to(device)) for t in (x, w))
    seed, plain = TwoTensor(one, one), x @ w.t()
    weight = torch.nn.Parameter(w)

    def step(x: Any) -> Any:
        y = F.linear(x, weight)
        y.backward(seed)
        return y.detach()

    (gradient,) = torch.autograd.grad(F.linear(x, weight), weight, seed)
    for rules, factor, gradients in (((mm_rule, mm_gradient), 10, 7), ((mm_rule,), 10, 10), ((), 1, 1)):
        handle = torch_pjrt.register_rule(TwoTensor, mm, *rules) if rules else None
        weight.grad = None
        try:
            compiled = torch_pjrt.compile_step(step, trace=True)
            torch.testing.assert_close(compiled(x).a, plain.a * factor)
            torch.testing.assert_close(weight.grad.b, gradient.b * gradients)
            call = torch_pjrt.jit(lambda x: F.linear(x, weight), [x])
            torch.testing.assert_close(call(x).b, plain.b * factor)
        finally:
            if handle is not None:
                handle.remove()
        stages = torch_pjrt.last_traces(compiled)
        assert ("= mm_rule(argument_0, " in stages["recorded_with_subclasses"].text) == bool(rules)
        assert ("] claimed by mm_rule(argument_0" in stages["recorded"].text) == bool(rules)
        assert ("mm_gradient(" in stages["recorded_with_subclasses"].text) == (len(rules) == 2)


def test_two_threads() -> None:
    x, w = arguments()
    wanted = (x @ w.t()).a * 10
    found: list[Any] = []
    torch._dynamo.reset()
    with torch_pjrt.register_rule(TwoTensor, mm, mm_rule, mm_gradient):
        compiled = [torch.compile(lambda x, w, i=i: F.linear(x, w) + i, backend="pjrt") for i in range(2)]
        threads = [
            threading.Thread(target=lambda f=f, i=i: found.append(f(x, w).a - i)) for i, f in enumerate(compiled)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 2
    for each in found:
        torch.testing.assert_close(each, wanted)


def test_bad_rules() -> None:
    x, w = arguments()
    with pytest.raises(
        TypeError, match=r"the rule mm_gradient for aten.mm.default has to take \(self, mat2\): missing"
    ):
        torch_pjrt.register_rule(TwoTensor, mm, mm_gradient)
    with pytest.raises(TypeError, match=r"the rule mm_rule for aten.mm.default has to take \(gradient, self, mat2\)"):
        torch_pjrt.register_rule(TwoTensor, mm, mm_rule, mm_rule)
    with pytest.raises(TypeError, match=r"takes an op such as torch\.ops\.aten\.mm\.default"):
        torch_pjrt.register_rule(TwoTensor, torch.mm, mm_rule)
    with pytest.raises(TypeError, match=r"takes a subclass of torch\.Tensor"):
        torch_pjrt.register_rule(int, mm, mm_rule)

    def plain(x: Any, w: Any) -> Any:
        return x.a @ w.a

    with (
        torch_pjrt.register_rule(TwoTensor, mm, plain),
        pytest.raises(Exception, match=r"the rule plain for aten.mm.default of TwoTensor gives cpu f32\[3, 5\], and"),
    ):
        compiled(x, w.detach())
    with (
        torch_pjrt.register_rule(TwoTensor, torch.ops.aten.cos.default, lambda x: x),
        pytest.warns(UserWarning, match="for aten.cos.default of TwoTensor was not used: the op was not called"),
    ):
        compiled(x, w.detach())


@torch_pjrt.composite("rules.product")
def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def by_composite(x: Any, w: Any) -> TwoTensor:
    return TwoTensor(product(x.a, w.a), product(x.b, w.b))


def by_composite_gradient(g: Any, x: Any, w: Any) -> Any:
    return None, TwoTensor(product(x.a.t(), g.a), product(x.b.t(), g.b))


def twice(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a @ b) * 2


def test_a_kernel_claims_what_a_rule_calls() -> None:
    """An op's rule calls a composite, which a kernel claims."""
    x, w = arguments()
    one = TwoTensor(torch.ones(3, 5), torch.ones(3, 5))
    plain = x @ w.t()
    (gradient,) = torch.autograd.grad(plain, w, one)
    with (
        torch_pjrt.register_rule(TwoTensor, mm, by_composite, by_composite_gradient),
        torch_pjrt.register_kernel("rules.product", function=twice),
        torch_pjrt.explain() as report,
    ):
        result = compiled(x, w)
        result.backward(one)
        text = torch_pjrt.trace(F.linear, x, w)["forward"].text
    torch.testing.assert_close((result.a, result.b), (plain.a * 2, plain.b * 2))
    torch.testing.assert_close(w.grad.a, gradient.a * 2)
    done = [c.done_by for graph in report.graphs for c in graph.composites]
    assert done
    assert all(label.startswith("twice (test_rules.py:") for label in done)
    assert "claimed by by_composite(" in text
