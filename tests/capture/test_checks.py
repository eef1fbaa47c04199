"""Checks of values in what is captured are assertions of the program: branches that only raise, and those of linalg."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributions import Geometric, MultivariateNormal, Normal
from torch.nn import functional as F

import torch_pjrt
from tests.capture.checked import (
    falls_back,
    is_any,
    is_any_of_helpers,
    is_below,
    is_positive,
    refuses_by_helper,
    refuses_large,
)
from torch_pjrt.dynamo import control_flow
from torch_pjrt.program import loops

pytestmark = pytest.mark.compiled

torch.manual_seed(0)
SQUARE = torch.randn(4, 4)
DEFINITE = SQUARE @ SQUARE.T + 4 * torch.eye(4)
SINGULAR = torch.tensor([[1.0, 2.0], [2.0, 4.0]])


def exported(fn: Callable[..., Any], examples: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".pjrt") as file:
        torch_pjrt.export(fn, examples).save(file.name, form="text")
        program = torch_pjrt.load(file.name)
        program(*examples)  # the file is read
        return program


WAYS: dict[str, Callable[[Callable[..., Any], tuple[torch.Tensor, ...]], Callable[..., Any]]] = {
    "jit": torch_pjrt.jit,
    "compile_step": lambda fn, _: torch_pjrt.compile_step(fn),
    "export": exported,
    "torch.compile": lambda fn, _: torch.compile(fn, backend="pjrt", fullgraph=True),
}
# The function, its arguments, and arguments that fail its check.
CHECKED: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]] = {
    "cholesky": (lambda x: torch.linalg.cholesky(x), (DEFINITE,), (-DEFINITE,)),
    "batched cholesky": (
        lambda x: torch.linalg.cholesky(x),
        (torch.stack([DEFINITE] * 3),),
        (torch.stack([DEFINITE, DEFINITE, -DEFINITE]),),
    ),
    "inv": (lambda x: torch.linalg.inv(x), (DEFINITE[:2, :2],), (SINGULAR,)),
    "solve": (lambda x, y: torch.linalg.solve(x, y), (DEFINITE[:2, :2], SQUARE[:2]), (SINGULAR, SQUARE[:2])),
    "lu_factor": (lambda x: torch.linalg.lu_factor(x), (DEFINITE[:2, :2],), (SINGULAR,)),
    "log_prob": (
        lambda m, c, x: MultivariateNormal(m, c, validate_args=False).log_prob(x),
        (torch.zeros(4), DEFINITE, SQUARE[0]),
        (torch.zeros(4), -DEFINITE, SQUARE[0]),
    ),
    "assert": (lambda x: is_positive(x), (torch.ones(3),), (-torch.ones(3),)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CHECKED)
def test_checks(name: str, way: str) -> None:
    fn, right, wrong = CHECKED[name]
    call = WAYS[way](fn, right)
    torch.testing.assert_close(call(*right), fn(*right), rtol=1e-4, atol=1e-4)
    with pytest.raises(Exception) as eager:
        fn(*wrong)
    with pytest.raises(Exception) as raised:
        call(*wrong)
    words = str(eager.value).split("\n")[0].removeprefix("linalg.")
    assert words in str(raised.value)
    if not isinstance(eager.value, AssertionError) and way != "export":  # a file's errors are RuntimeErrors
        assert type(raised.value) is type(eager.value)
    torch.testing.assert_close(call(*right), fn(*right), rtol=1e-4, atol=1e-4)  # it goes on


# Branches of which one side only raises; torch.compile can't capture them.
BRANCHES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]] = {
    "gaussian_nll_loss": (F.gaussian_nll_loss, (SQUARE, SQUARE * 2, SQUARE.abs()), (SQUARE, SQUARE, -SQUARE.abs())),
    "validated": (
        lambda m, s, x: Normal(m, s, validate_args=True).log_prob(x),
        (torch.zeros(3), torch.ones(3), torch.ones(3)),
        (torch.zeros(3), -torch.ones(3), torch.ones(3)),
    ),
    "validated sample": (
        lambda m, s, x: Normal(m, s, validate_args=True).log_prob(x),
        (torch.zeros(3), torch.ones(3), torch.ones(3)),
        (torch.zeros(3), torch.ones(3), torch.full((3,), torch.nan)),
    ),
    "validated twice": (
        lambda p, x: Geometric(p, validate_args=True).log_prob(x),
        (torch.full((3,), 0.5), torch.ones(3)),
        (torch.zeros(3), torch.ones(3)),
    ),
    "helper": (refuses_by_helper, (torch.ones(3),), (-torch.ones(3),)),
    "bool": (refuses_by_helper, (torch.ones(3),), (torch.full((3,), 101.0),)),
    "user's own": (refuses_large, (torch.ones(3),), (torch.tensor([0.0, 11.0, 0.0]),)),
}


@pytest.mark.parametrize("way", ["jit", "compile_step", "export"])
@pytest.mark.parametrize("name", BRANCHES)
def test_branches_that_raise(name: str, way: str) -> None:
    fn, right, wrong = BRANCHES[name]
    call = WAYS[way](lambda *args: fn(*args), right)
    torch.testing.assert_close(call(*right), fn(*right))
    with pytest.raises((ValueError, IndexError)) as eager:
        fn(*wrong)
    # The distributions of PyTorch 2.15 say less where they are exported.
    kind, words = (
        (RuntimeError, str(eager.value)[:18]) if way == "export" else (type(eager.value), str(eager.value)[:40])
    )
    with pytest.raises(kind, match=re.escape(words)):
        call(*wrong)


def test_a_branch_that_does_more_is_no_check() -> None:
    seen: list[str] = []

    def both(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            seen.append("positive")
            raise ValueError("positive")
        return x

    def first(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0 and x.numel() > 5:  # whether this raises isn't the tensor's alone to say
            raise ValueError("positive")
        return x

    def either(x: torch.Tensor) -> torch.Tensor:
        return is_any([(x > 0).all(), (x > -2).all()])

    for fn in (both, first, falls_back, either, is_any_of_helpers, lambda x: x + 1 if x.sum() > 0 else x):
        with pytest.raises(torch_pjrt.CaptureError, match="needs the value of a tensor"):
            torch_pjrt.jit(fn, (torch.ones(3),))


def test_only_a_check_is_a_program() -> None:
    """No result depends on the checked value, or on the value that it is compared with."""
    limit = torch.tensor(1.0)
    call = torch_pjrt.compile_step(lambda x: is_below(x, limit))
    assert call(torch.zeros(3)).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match=r"AssertionError: too large .*checked.py:\d+"):
        call(torch.full((3,), 2.0))
    limit.fill_(5)
    assert call(torch.full((3,), 2.0)).tolist() == [1, 1]


def test_a_training_step_through_checks() -> None:
    def steps(optimizer: torch.optim.Optimizer, root: torch.nn.Parameter) -> Callable[[torch.Tensor], torch.Tensor]:
        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            covariance = root @ root.T + torch.eye(4)
            loss = -MultivariateNormal(torch.zeros(4), covariance).log_prob(x).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    results = []
    for wrap in (lambda step: step, torch_pjrt.compile_step):
        root = torch.nn.Parameter(SQUARE.clone())
        step = wrap(steps(torch.optim.SGD([root], lr=0.1), root))
        results.append(([step(SQUARE) for _ in range(3)], root.detach()))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_gradients_that_must_be_finite() -> None:
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        model(x).sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
        return norm

    call = torch_pjrt.compile_step(step)
    assert call(torch.ones(2, 3)).isfinite()
    with pytest.raises(RuntimeError, match="The total norm of order"):
        call(torch.full((2, 3), torch.inf))


def test_what_rests_on_no_argument_is_read() -> None:
    """cov() compares the number of observations with zero."""
    for fn in (torch.cov, torch.corrcoef):
        torch.testing.assert_close(torch_pjrt.jit(fn, (SQUARE,))(SQUARE), fn(SQUARE))


def test_a_check_in_a_loop_and_in_a_branch() -> None:
    def factors(x: torch.Tensor) -> torch.Tensor:
        def iteration(carry: torch.Tensor, each: torch.Tensor) -> list[torch.Tensor]:
            return [carry + 1, torch.linalg.cholesky(each)]

        return loops.looped(loops.apply, iteration, [x.new_zeros(1)], [x], [])[1]

    def chosen(x: torch.Tensor) -> torch.Tensor:
        return control_flow.cond(
            loops.apply, x[0, 0] > 0, lambda x: [torch.linalg.cholesky(x)], lambda x: [x * 1], [x]
        )[0]

    stack = torch.stack([DEFINITE] * 3)
    call = torch_pjrt.jit(factors, (stack,))
    torch.testing.assert_close(call(stack), torch.linalg.cholesky(stack))
    with pytest.raises(torch.linalg.LinAlgError, match="leading minor of order 1"):
        call(stack * torch.tensor([1.0, -1, 1]).view(3, 1, 1))
    call = torch_pjrt.jit(chosen, (DEFINITE,))
    torch.testing.assert_close(call(DEFINITE), torch.linalg.cholesky(DEFINITE))
    torch.testing.assert_close(call(-DEFINITE), -DEFINITE)  # what isn't chosen isn't checked
    flipped = DEFINITE.flip(0, 1) * torch.tensor([1.0, 1, 1, -1])
    with pytest.raises(torch.linalg.LinAlgError, match="leading minor"):
        call(flipped)


def test_a_check_in_a_composite() -> None:
    @torch_pjrt.composite("tests.factor")
    def factor(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cholesky(x)

    call = torch_pjrt.jit(lambda x: factor(x) * 2, (DEFINITE,))
    torch.testing.assert_close(call(DEFINITE), torch.linalg.cholesky(DEFINITE) * 2)
    with pytest.raises(torch.linalg.LinAlgError, match="leading minor of order 1"):
        call(-DEFINITE)


def test_checks_of_items(tmp_path: Path) -> None:
    def fn(lengths: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        if lengths.max().item() > x.shape[1]:
            raise ValueError(f"lengths go to {x.shape[1]} at most")
        if x.abs().max().item() >= 100 or (lengths < 0).any().item():
            raise IndexError("out of range")
        return x * lengths[:, None]

    right = torch.tensor([3, 2]), torch.ones(2, 3)
    torch_pjrt.export(fn, right).save(tmp_path / "checked.pjrt")
    for call in (torch_pjrt.jit(fn, right), torch_pjrt.compile_step(fn), torch_pjrt.load(tmp_path / "checked.pjrt")):
        torch.testing.assert_close(call(*right), fn(*right))
        for lengths, x, said in ((4, 1.0, "go to 3 at most"), (3, -200.0, "out of range"), (-1, 1.0, "out of range")):
            with pytest.raises((ValueError, IndexError, RuntimeError), match=said):
                call(torch.tensor([lengths, 2]), torch.full((2, 3), x))


@pytest.mark.parametrize("way", ["jit", "compile_step", "export"])
def test_a_covariance_with_weights(way: str) -> None:
    def fn(x: torch.Tensor, f: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        both = torch.cov(x, fweights=f, aweights=a), torch.cov(x, correction=0, aweights=a)
        return (*both, torch.cov(x, fweights=f), x[0].cov(aweights=a))

    right = torch.randn(3, 5), torch.tensor([1, 2, 0, 3, 1]), torch.rand(5)
    call = WAYS[way](fn, right)
    torch.testing.assert_close(call(*right), fn(*right))
    with pytest.raises(RuntimeError, match=r"cov\(\): fweights cannot be negative"):
        call(right[0], -right[1], right[2])
    with pytest.raises(RuntimeError, match=r"cov\(\): weights sum to zero"):
        call(right[0], right[1], right[2] * 0)
    with pytest.raises(RuntimeError, match=r"cov\(\): expected fweights to have integral dtype"):
        WAYS[way](lambda x, a: torch.cov(x, fweights=a), right[::2])(*right[::2])
