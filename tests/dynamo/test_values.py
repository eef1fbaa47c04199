"""torch.compile: arguments and results with forms that their memory alone doesn't show."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch

import torch_pjrt

Function = Callable[[torch.Tensor], torch.Tensor]
FUNCTIONS: dict[str, Function] = {
    "scaled": lambda x: x * 2,
    "conjugate": lambda x: (x * 2).conj(),
    "imaginary part of a conjugate": lambda x: (x * 2).conj().imag,
    "product with its adjoint": lambda x: x @ x.mH,
}


@pytest.mark.parametrize("device", ["cpu", "pjrt"])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.sampled(3)
def test_lazy_conjugates(name: str, device: str) -> None:
    x = torch.randn(3, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(FUNCTIONS[name], backend="pjrt")
    for form in (lambda t: t, torch.Tensor.conj):
        result = compiled(form(x.to(device))).cpu().resolve_neg().resolve_conj()
        torch.testing.assert_close(result, FUNCTIONS[name](form(x)).resolve_neg().resolve_conj())


def test_lazy_negatives() -> None:
    x = torch.randn(3, 4, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    torch.testing.assert_close(torch.compile(lambda t: t * 2, backend="pjrt")(x), x * 2)


def test_an_inverse_transform() -> None:
    """Its decomposition passes one gradient for all batches to unfold_backward."""
    x = torch.randn(10, 5, 6, dtype=torch.complex128)
    window = torch.rand(8, dtype=torch.float64) + 0.5

    def inverse(x: torch.Tensor) -> torch.Tensor:
        return torch.istft(x, n_fft=8, window=window)

    torch.testing.assert_close(torch.compile(inverse, backend="pjrt")(x), inverse(x))


def test_statistics_that_a_batch_norm_in_evaluation_does_not_give() -> None:
    x, mean, variance = torch.randn(3, 2, 4), torch.zeros(2), torch.ones(2)

    def evaluate(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.native_batch_norm(x, None, None, mean, variance, False, 0.1, 1e-5)

    torch.testing.assert_close(torch.compile(evaluate, backend="pjrt")(x), evaluate(x))


def test_calls_of_the_device_module_are_made_not_traced() -> None:
    def seeded(x: torch.Tensor) -> torch.Tensor:
        state = torch.pjrt.get_rng_state()
        y = x + torch.rand(3, device=x.device)
        torch.pjrt.set_rng_state(state)
        torch.pjrt.synchronize()
        return y + len(torch_pjrt.metrics()) * 0

    x = torch.ones(3, device="pjrt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = torch.compile(seeded, backend="pjrt")
        assert torch.equal(compiled(x).cpu(), compiled(x).cpu())


@pytest.mark.parametrize("device", ["cpu", "pjrt"])
@pytest.mark.filterwarnings("ignore:.*set_.source_Tensor. is not compiled")
def test_parameters_that_become_views(device: str) -> None:
    """``.data =`` is a call of its own at the graph's end, with memory of any size."""

    def fill(parameters: list[torch.Tensor], values: torch.Tensor) -> torch.Tensor:
        values = values * 2
        torch.nn.utils.vector_to_parameters(values, parameters)
        return values.sum()

    torch_pjrt.reset_metrics()
    parameters = [torch.nn.Parameter(torch.zeros(sizes, device=device)) for sizes in ((3, 4), (3,), (2, 2))]
    values = torch.arange(19.0, device=device)
    assert torch.compile(fill, backend="pjrt")(parameters, values).item() == 342
    together = torch.cat([parameter.detach().flatten() for parameter in parameters])
    assert together.tolist() == (values * 2).tolist()
    assert [tuple(parameter.shape) for parameter in parameters] == [(3, 4), (3,), (2, 2)]
    # torch 2.14 keeps it out of the graph.
    by_the_host = {"aten.set_.source_Tensor": 3} if torch.__version__ < "2.14" else {}
    assert torch_pjrt.metrics()["host_fallbacks"] == by_the_host


def test_factories_without_a_device_and_numbers_alone() -> None:
    """torch.ops.aten's factories have no device; a call on two numbers returns a tensor on the CPU."""
    aten = torch.ops.aten

    def make(x: torch.Tensor, scale: float) -> tuple[torch.Tensor, ...]:
        return aten.rand([3]), aten.full([2], 3.5) + x, aten.arange(4), aten.add(2, scale), aten.mul(2, 3) * x

    compiled = torch.compile(make, backend="pjrt", fullgraph=True)
    x = torch.ones(2)
    (drawn, *results), (drawn_again, *_) = compiled(x, 0.5), compiled(x, 0.5)
    _, *expected = make(x, 0.5)
    torch.testing.assert_close(results, expected)
    assert all(result.device.type == "cpu" for result in results)
    assert not drawn.equal(drawn_again)


@pytest.mark.skipif(torch.__version__ < "2.13", reason="AOTAutograd of older torch drops the assertion, on any backend")
def test_an_assertion_that_fails_in_a_later_call() -> None:
    def found(x: torch.Tensor) -> torch.Tensor:
        positions = x.nonzero()
        torch._check(positions.size(0) == 2)
        return positions + 3

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(found, backend="pjrt", fullgraph=True)
        x = torch.tensor([0, 1, 0, 1])
        torch.testing.assert_close(compiled(x), found(x))
        with pytest.raises(RuntimeError, match="assertion failed"):
            compiled(torch.zeros(4))


@pytest.mark.parametrize("device", ["cpu", "pjrt"])
def test_assertions_of_data(device: str) -> None:
    def checked(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > 0).all(), "numbers must be positive")  # Dynamo's form of an assert statement
        y = x.sqrt()
        torch._assert_async((y < 10).all(), "and small")
        return y * 2

    compiled = torch.compile(checked, backend="pjrt", fullgraph=True)
    torch_pjrt.reset_metrics()
    x = torch.ones(3, device=device)
    for _ in range(2):
        torch.testing.assert_close(compiled(x).cpu(), torch.full((3,), 2.0))
        with pytest.raises(RuntimeError, match=r"numbers must be positive .*test_values.py:\d+"):
            compiled(-x).cpu()
        with pytest.raises(RuntimeError, match="and small"):
            compiled(x * 101).cpu()
    metrics = torch_pjrt.metrics()
    assert metrics["host_fallbacks"] == {}
    if device == "cpu":
        assert metrics["executions"] == 6


def test_an_assertion_is_heard_of_where_nothing_is_written() -> None:
    compiled = torch.compile(lambda x: torch._assert_async((x > 0).all(), "positive"), backend="pjrt", fullgraph=True)
    for _ in range(2):
        compiled(torch.ones(3))
        with pytest.raises(RuntimeError, match="positive"):
            compiled(torch.zeros(3))


def test_parameters_that_are_added_have_gradients_of_their_own() -> None:
    """Their gradients are one result of the backward, which autograd copies for the second if it sees that."""
    gradients = []
    for compiled in (False, True):
        a, b = (torch.nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(2))
        f = lambda a, b: ((a + b) ** 2).sum()  # noqa: E731
        if compiled:
            f = torch.compile(f, backend="pjrt")
        for _ in range(2):
            f(a, b).backward()
        assert a.grad is not None
        assert b.grad is not None
        assert a.grad.data_ptr() != b.grad.data_ptr()
        a.grad.mul_(3)
        gradients.append([a.grad, b.grad])
    torch.testing.assert_close(gradients[1], gradients[0])


def test_a_result_given_twice_is_one_tensor() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + 1
        return y, y

    for call in (torch.compile(f, backend="pjrt"), torch_pjrt.jit(f, (torch.ones(2),))):
        first, second = call(torch.ones(2))
        assert first is second


BESIDE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as_strided": lambda x: torch.as_strided(x, (3,), (2,), 1) + 1,
    "of a view": lambda x: torch.as_strided(x[1:], (3,), (2,)) + 1,
    "as_strided_copy": lambda x: torch.as_strided_copy(x, (3,), (2,), 1),
    "written": lambda x: x.as_strided((3,), (2,), 1).add_(100).sum() + x,
    "as_strided_scatter": lambda x: torch.as_strided_scatter(x, x.new_full((3,), -1), (3,), (2,), 2),
}
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "whole": lambda base: base,
    "with gaps": lambda base: base[::2],
    "of a part": lambda base: base[4:14],
    "with gaps, of a part": lambda base: base[3::2],
}


@pytest.mark.parametrize("device", ["cpu", "pjrt"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.sampled(4)
def test_memory_beside_an_argument(name: str, view: str, device: str) -> None:
    """as_strided sees the memory of its tensor's base; a program has only the tensor's elements."""
    f = BESIDE[name]
    bases = [torch.arange(20.0), torch.arange(20.0).to(device)]
    expected = f(VIEWS[view](bases[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        actual = torch.compile(f, backend="pjrt")(VIEWS[view](bases[1]))
    assert torch.equal(actual.cpu(), expected)
    if view == "whole":
        assert torch_pjrt.metrics()["host_fallbacks"] == {}
        assert torch.equal(torch_pjrt.jit(f, (bases[1],))(torch.arange(20.0).to(device)).cpu(), f(torch.arange(20.0)))
    else:
        with pytest.raises(torch_pjrt.CaptureError, match=r"as_strided.* reaches memory beside"):
            torch_pjrt.jit(f, (VIEWS[view](bases[1]),))
