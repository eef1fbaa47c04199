"""Arguments: a program in a file is called like its function, and binds arguments to parameters as Python does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import torch_pjrt
from torch_pjrt.capture.binding import VARIADIC, bind, signature_of

DEFAULTS = ("None", "2.0", "'sum'", "()")


@dataclass
class Case:
    """A function that returns its arguments by parameter, and two equivalent calls."""

    fn: Callable[..., Any]
    source: str
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]]


@st.composite
def cases(draw: st.DrawFn, whats: tuple[str, ...] = ("tensor", "nested", "constant")) -> Case:
    before, between, after = (draw(st.integers(0, 2)) for _ in range(3))
    positional = [f"p{i}" for i in range(before + between)]
    first_default = draw(st.integers(0, len(positional)))
    rest, more = draw(st.booleans()), draw(st.booleans())
    defaults = {name: draw(st.sampled_from(DEFAULTS)) for name in positional[first_default:]}
    named = [f"k{i}" for i in range(after)]
    defaults |= {name: draw(st.sampled_from(DEFAULTS)) for name in named if draw(st.booleans())}

    def declared(names: list[str]) -> list[str]:
        return [f"{name}={defaults[name]}" if name in defaults else name for name in names]

    parts = declared(positional[:before]) + (["/"] if before else []) + declared(positional[before:])
    parts += ["*rest"] if rest else ["*"] if named else []
    parts += declared(named) + (["**more"] if more else [])
    kept = [*positional, *(["rest"] if rest else []), *named, *(["more"] if more else [])]
    source = f"def f({', '.join(parts)}):\n    return {{{', '.join(f'{n!r}: {n}' for n in kept)}}}"
    scope: dict[str, Any] = {}
    exec(source, scope)

    count = iter(range(100))

    def value() -> Any:
        what = draw(st.sampled_from(whats))
        if what == "constant":
            return draw(st.sampled_from([1, 1.5, True, "mean", None, (1, 2)]))
        tensor = torch.full((2,), float(next(count)))
        return (tensor, {"in": [torch.full((1,), float(next(count)))]}) if what == "nested" else tensor

    # Positional-only arguments that are given are the first ones. Extra ones are given only if all before are.
    extra = draw(st.integers(0, 2)) if rest else 0
    only = before if extra else draw(st.integers(min(before, first_default), before))
    given_here = {name: value() for name in positional[:only]}
    for name in positional[before:]:
        if extra or name not in defaults or draw(st.booleans()):
            given_here[name] = value()
    rest_here = [value() for _ in range(extra)]
    by_keyword = {name: value() for name in named if name not in defaults or draw(st.booleans())}
    # A keyword may have the name of a positional-only parameter.
    by_keyword |= {name: value() for name in [*positional[:only], "any"] if more and draw(st.booleans())}

    def call() -> tuple[tuple[Any, ...], dict[str, Any]]:
        most = next((i for i, name in enumerate(positional) if name not in given_here), len(positional))
        count = len(positional) if extra else draw(st.integers(min(only, most), most))
        keywords = {name: given_here[name] for name in positional[count:] if name in given_here} | by_keyword
        order = draw(st.permutations(list(keywords)))
        args = tuple(given_here[name] for name in positional[:count])
        return (*args, *rest_here), {name: keywords[name] for name in order}

    return Case(scope["f"], source, [call(), call()])


def is_same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(is_same(each, b[key]) for key, each in a.items())
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(is_same, a, b))
    return type(a) is type(b) and a == b


FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FEW
@given(cases())
def test_what_a_file_is_given_is_what_the_function_is(tmp_path: Path, case: Case) -> None:
    (args, kwargs), (other_args, other_kwargs) = case.calls
    if not any(isinstance(each, torch.Tensor) for each in pytree.tree_leaves((args, kwargs))):
        return
    torch_pjrt.export(case.fn, args, kwargs).save(tmp_path / "it.pjrt", form="text")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    assert is_same(program(*args, **kwargs), case.fn(*args, **kwargs)), case.source
    later = pytree.tree_map_only(torch.Tensor, lambda each: each + 100, (other_args, other_kwargs))
    assert is_same(program(*later[0], **later[1]), case.fn(*later[0], **later[1])), case.source


@FEW
@given(cases(("tensor",)))
def test_steps_and_jit(case: Case) -> None:
    step = torch_pjrt.compile_step(case.fn)
    for args, kwargs in case.calls:
        if args or kwargs:
            assert is_same(step(*args, **kwargs), case.fn(*args, **kwargs)), case.source
    args, kwargs = max(case.calls, key=lambda call: len(call[0]))
    if not args or kwargs:
        return
    jitted = torch_pjrt.jit(case.fn, args)
    for args, kwargs in case.calls:
        later = pytree.tree_map_only(torch.Tensor, lambda each: each + 100, (args, kwargs))
        assert is_same(jitted(*later[0], **later[1]), case.fn(*later[0], **later[1])), case.source


@settings(max_examples=200, deadline=None)
@given(cases())
def test_binding_is_pythons(case: Case) -> None:
    given_by_python = case.fn(*case.calls[0][0], **case.calls[0][1])
    for args, kwargs in case.calls:
        bound = bind(signature_of(case.fn), args, kwargs)
        bound.apply_defaults()
        assert is_same(dict(bound.arguments), given_by_python), case.source


def test_an_optional_parameter_that_is_left_out(tmp_path: Path) -> None:
    def f(x: torch.Tensor, weight: Any = None, bias: Any = None) -> torch.Tensor:
        return x * (1 if weight is None else weight) + (0 if bias is None else bias)

    x, bias = torch.ones(2), torch.full((2,), 3.0)
    for fn in (f, torch_pjrt.compile_step(f)):
        torch_pjrt.export(fn, {"x": x, "bias": bias}).save(tmp_path / "it.pjrt")
        program = torch_pjrt.load(tmp_path / "it.pjrt")
        for got in (program(x=x, bias=bias), program(x, bias=bias), program(x, None, bias)):
            assert got.tolist() == [4, 4]
        with pytest.raises(TypeError, match=r"'weight' is tensor.*, and the program is for None"):
            program(x, bias, bias)
        with pytest.raises(TypeError, match="bias is missing"):
            program(x)
        with pytest.raises(TypeError, match="too many positional arguments"):
            program(x, None, bias, bias)
        with pytest.raises(TypeError, match="multiple values for argument 'x'"):
            program(x, x=x, bias=bias)


def test_a_mask_of_a_transformer(tmp_path: Path) -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    x, mask = torch.randn(2, 3, 4), torch.tensor([[False, False, True]] * 2)
    torch_pjrt.export(layer, {"src": x, "src_key_padding_mask": mask}).save(tmp_path / "it.pjrt")
    with torch.no_grad():
        expected = layer(x, src_key_padding_mask=mask)
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    torch.testing.assert_close(program(x, src_key_padding_mask=mask), expected)


@pytest.mark.parametrize(
    "fn",
    [torch.add, functools.partial(torch.add, alpha=2), functools.partial(F.linear, weight=torch.ones(2, 2)), F.relu],
    ids=["builtin", "partial of a builtin", "partial", "function"],
)
def test_functions_that_are_none_of_python(tmp_path: Path, fn: Any) -> None:
    x = torch.randn(2, 2)
    args = (x, x) if getattr(fn, "func", fn) is torch.add else (x,)
    torch_pjrt.export(fn, args).save(tmp_path / "it.pjrt")
    torch.testing.assert_close(torch_pjrt.load(tmp_path / "it.pjrt")(*args), fn(*args))


def test_a_signature_that_tells_less_than_the_function_takes(tmp_path: Path) -> None:
    def scaled(fn: Any) -> Any:
        @functools.wraps(fn)
        def call(*args: Any, by: Any = 1.0) -> Any:
            return fn(*args) * by

        return call

    fn = scaled(lambda x: x + 1)
    x, by = torch.ones(2), torch.full((2,), 3.0)
    torch_pjrt.export(fn, (x,), {"by": by}).save(tmp_path / "it.pjrt")
    assert torch_pjrt.load(tmp_path / "it.pjrt")(x, by=by).tolist() == [6, 6]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        torch_pjrt.export(lambda x: x)


def test_signatures_of_modules() -> None:
    layer = nn.Linear(2, 2)
    assert list(signature_of(layer).parameters) == ["input"]
    assert list(signature_of(torch.fx.symbolic_trace(layer)).parameters) == ["input"]
    assert signature_of(torch.add) is VARIADIC


def test_jit_takes_keywords() -> None:
    def f(x: torch.Tensor, weight: Any = None, bias: Any = None) -> torch.Tensor:
        return x - (weight if bias is None else bias)

    x, weight = torch.ones(2), torch.full((2,), 3.0)
    jitted = torch_pjrt.jit(f, (x, weight))
    assert jitted(weight=weight, x=x).tolist() == jitted(x, weight).tolist() == [-2, -2]
    with pytest.raises(TypeError, match="f: expected the arguments x, weight, got x, bias"):
        jitted(x, bias=weight)
