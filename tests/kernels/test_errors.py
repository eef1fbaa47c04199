"""Errors that users can make with kernels, and their messages."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt

pytestmark = pytest.mark.compiled


def same(x: torch.Tensor, **_: Any) -> torch.Tensor:
    return x


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"name": "gelu"}, ValueError, "'gelu' has no namespace.*Is it 'aten.gelu.default'"),
    (
        {"name": "aten.gulu.default"},
        ValueError,
        "register_kernel: there is no composite 'aten.gulu.default'. Is it 'aten",
    ),
    ({"platform": "abacus"}, ValueError, "there is no platform 'abacus'; there are cpu, cuda"),
    ({"function": None}, TypeError, "one of function=, library=, jax=, stablehlo=, source=; got none"),
    ({"stablehlo": "module {}"}, TypeError, "got function and stablehlo"),
    ({"function": 3}, TypeError, "function= is a function of tensors, not 3"),
    ({"function": None, "library": "a.so"}, TypeError, "symbol= names the handler"),
    ({"symbol": "f"}, TypeError, "symbol= names the handler"),
    ({"aliases": {0: 0}}, TypeError, "layouts and aliases are for handlers"),
]


@pytest.mark.parametrize(("given", "kind", "said"), WRONG, ids=[said for _, _, said in WRONG])
def test_arguments(given: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        torch_pjrt.register_kernel(**({"name": "aten.gelu.default", "function": same} | given))


def test_the_same_one_twice() -> None:
    with torch_pjrt.register_kernel("aten.gelu.default", function=same):
        with pytest.raises(
            ValueError, match=r"same \(test_errors.py:\d+\) is registered for 'aten.gelu.default' on cpu"
        ):
            torch_pjrt.register_kernel("aten.gelu.default", function=same)
        torch_pjrt.register_kernel("aten.gelu.default", function=same, platform="cuda").remove()
    torch_pjrt.register_kernel("aten.gelu.default", function=same).remove()


def raises(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("by nothing")


def predicate(call: Any) -> bool:
    return bool(raises(call))


outside = torch.ones(3, device="pjrt")

WRONG_KERNELS: list[tuple[dict[str, Any], str]] = [
    ({"when": predicate}, r"its predicate predicate \(test_errors.py:\d+\) raised ZeroDivisionError: by nothing"),
    ({"function": raises}, r"raised ZeroDivisionError: by nothing"),
    ({"function": lambda x, **_: 3}, "gives int, and no tensor"),
    ({"function": lambda x, **_: (x, x)}, "gives 2 tensors, the composite gives 1"),
    ({"function": lambda x, **_: x.double()}, r"result 0 is Double\[3\], the composite's is Float\[3\]"),
    ({"function": lambda x, **_: x[:2]}, r"result 0 is Float\[2\], the composite's is Float\[3\]"),
    ({"function": lambda x, **_: x + outside}, "uses a tensor that is none of its operands"),
    ({"function": lambda x, **_: torch.rand_like(x)}, "draws random numbers"),
    ({"function": lambda x, **_: x * x.sum().item()}, "a tensor's value is needed"),
    ({"stablehlo": "module {}"}, "the module has no @main"),
    ({"stablehlo": lambda call: raises()}, "by nothing"),
]


@pytest.fixture
def clean() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(("given", "said"), WRONG_KERNELS, ids=[said for _, said in WRONG_KERNELS])
def test_kernels(given: dict[str, Any], said: str, clean: ExitStack) -> None:
    outside.cpu()
    ways = given if "stablehlo" in given else {"function": same} | given
    clean.enter_context(torch_pjrt.register_kernel("aten.hardswish.default", **ways))
    _raises(lambda: F.hardswish(torch.ones(3, device="pjrt")).cpu(), said)


def _raises(work: Callable[[], Any], said: str, name: str = "aten.hardswish.default") -> None:
    """Checks the error. Drops the traceback, which would keep a graph alive that can't run."""
    try:
        work()
    except Exception as error:
        text = str(error)
    assert re.search(said, text), text
    assert f"composite '{name}'" in text


def test_the_line_is_the_users(clean: ExitStack) -> None:
    clean.enter_context(torch_pjrt.register_kernel("aten.hardswish.default", function=raises))
    _raises(
        lambda: F.hardswish(torch.ones(3, device="pjrt")).cpu(),
        r"composite 'aten.hardswish.default' \(first recorded at .*test_errors.py:\d+",
    )


def test_the_line_of_a_compiled_function_of_pytorchs(clean: ExitStack) -> None:
    """Dynamo gets only the step, and records PyTorch's line alone."""
    parameters = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    for parameter in parameters:
        parameter.grad = torch.ones(3)
    step = torch.compile(torch.optim.Adam(parameters, foreach=True).step, backend="pjrt")
    name = "torch_pjrt.foreach_adam_.default"
    clean.enter_context(torch_pjrt.register_kernel(name, function=raises))
    _raises(step, rf"composite '{name}' \(first recorded at .*test_errors.py:\d+", name)
