"""Composites of the user, on the device."""

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torch_pjrt
from torch_pjrt import _C
from torch_pjrt.composite_ops.known import Known, known

pytestmark = pytest.mark.compiled


@torch_pjrt.composite("test.norm", eps=1e-5, axes=[1], kind="rms")
def norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * (x * x).mean(-1, keepdim=True).add(1e-5).rsqrt() * scale


@torch_pjrt.composite("test.block")
def block(x: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"sum": norm(x, scale) + x, "mask": x > 0}


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(6, 16, generator=generator), torch.randn(16, generator=generator)


def names(stablehlo: str) -> list[str]:
    return re.findall(r'stablehlo\.composite "([^"]+)"', stablehlo.split("func.func private")[0])


def shown(function: Callable[..., Any], *args: Any, asked: Any = "test.norm,test.block") -> str:
    with torch_pjrt.composites(asked):
        return torch_pjrt.to_stablehlo(function, *args)


def test_the_text() -> None:
    program = shown(norm, *inputs())
    (line,) = [line for line in program.splitlines() if "stablehlo.composite" in line]
    assert (
        '"test.norm" %arg0, %arg1 {composite_attributes = {axes = array<i64: 1>, eps = 1.0e-05 : f64, kind = "rms"}'
        in line
    )
    assert "stablehlo.composite" not in shown(norm, *inputs(), asked="none")
    assert program == shown(norm, *inputs())


def test_they_nest_and_give_structures() -> None:
    program = shown(block, *inputs())
    assert names(program) == ["test.block"]
    assert '"test.norm"' in program.split("func.func private")[1]
    with torch_pjrt.composites("all"):
        x, scale = (t.to("pjrt") for t in inputs())
        result = block(x, scale)
    assert torch.equal(result["sum"].cpu(), block(x, scale)["sum"].cpu())
    assert result["mask"].dtype == torch.bool


def gradients(x: torch.Tensor, scale: torch.Tensor, order: int = 1) -> list[torch.Tensor]:
    x, scale = x.detach().requires_grad_(), scale.detach().requires_grad_()
    y = block(x, scale)["sum"].pow(3).sum()
    for _ in range(order - 1):
        y = torch.autograd.grad(y, x, create_graph=True)[0].pow(2).sum()
    return list(torch.autograd.grad(y, (x, scale)))


@pytest.mark.parametrize("order", [1, 2])
def test_its_derivatives_are_composites(order: int) -> None:
    x, scale = (t.to("pjrt") for t in inputs())
    plain = [g.cpu() for g in gradients(x, scale, order)]
    with torch_pjrt.composites("test.block"):
        given = gradients(x, scale, order)
        program = _C.stablehlo(given)
        grouped = [g.cpu() for g in given]
    assert f'"test.block{".backward" * order}"' in program
    for a, b in zip(plain, grouped, strict=True):
        # For the second order, a tensor's gradients are summed in another order: those from within come first.
        torch.testing.assert_close(a, b, rtol=0 if order == 1 else 1e-5, atol=0 if order == 1 else 1e-2)


def test_a_backward_outside_of_the_block_is_none() -> None:
    x, scale = (t.to("pjrt").requires_grad_() for t in inputs())
    with torch_pjrt.composites("test.norm"):
        loss = norm(x, scale).sum()
    given = torch.autograd.grad(loss, x)
    assert '"test.norm.backward"' not in _C.stablehlo(given)
    torch.testing.assert_close(given[0].cpu(), torch.autograd.grad(norm(x, scale).sum(), x)[0].cpu())


def test_the_same_function_is_one_program() -> None:
    x, scale = (t.to("pjrt") for t in inputs())
    with torch_pjrt.composites("all"):
        for _ in range(3):
            norm(x, scale).cpu()
    metrics = torch_pjrt.metrics()
    assert metrics["graphs_compiled"] + metrics["graphs_loaded_from_disk"] == 1
    assert metrics["executions"] == 3


def test_numbers_that_vary_are_operands() -> None:
    @torch_pjrt.composite("test.power")
    def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
        return (x * by).tanh()

    x = inputs()[0].to("pjrt")
    with torch_pjrt.composites("test.power"):
        given = [scaled(x, by).cpu() for by in (0.5, 0.25, 0.125)]
    metrics = torch_pjrt.metrics()
    assert metrics["graphs_compiled"] + metrics["graphs_loaded_from_disk"] == 2
    for y, by in zip(given, (0.5, 0.25, 0.125), strict=True):
        torch.testing.assert_close(y, (x.cpu() * by).tanh())


def test_what_it_reads_besides_is_an_operand() -> None:
    table = torch.arange(16.0).to("pjrt")
    table.cpu()

    @torch_pjrt.composite("test.shift")
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x + table

    program = shown(shifted, inputs()[0], asked="test.shift")
    assert 'operands = ["argument", "captured"]' in program
    with torch_pjrt.composites("test.shift"):
        given = shifted(inputs()[0].to("pjrt")).cpu()
    assert torch.equal(given, inputs()[0] + torch.arange(16.0))


def test_layouts_and_views() -> None:
    @torch_pjrt.composite("test.double")
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    x = torch.arange(24.0).reshape(1, 2, 3, 4)
    for make in (
        lambda t: t.contiguous(memory_format=torch.channels_last),
        lambda t: t[..., ::2],
        lambda t: t.t() if t.dim() == 2 else t.mT,
    ):
        moved = make(x.to("pjrt"))
        with torch_pjrt.composites("test.double"):
            result = double(moved)
        assert result.stride() == double(moved).stride()
        assert torch.equal(result.cpu(), make(x) * 2)


def test_compile_step_and_jit() -> None:
    layer = torch.nn.Linear(16, 16)

    @torch_pjrt.composite("test.dense")
    def dense(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w.t()).tanh()

    def loss(x: torch.Tensor) -> torch.Tensor:
        return dense(x, layer.weight).sum()

    def step(x: torch.Tensor) -> torch.Tensor:
        layer.zero_grad()
        value = loss(x)
        value.backward()
        return value

    x = inputs()[0]
    plain = step(x)
    expected = layer.weight.grad.clone()
    programs: list[str] = []
    _C.set_program_listener(lambda _, stablehlo: programs.append(stablehlo))
    try:
        with torch_pjrt.composites("test.dense"):
            torch.testing.assert_close(torch_pjrt.compile_step(step)(x), plain)
            torch.testing.assert_close(torch_pjrt.jit(loss, [x])(x), plain)
    finally:
        _C.set_program_listener(None)
    assert ['"test.dense"' in program for program in programs] == [True, True]
    assert '"test.dense.backward"' in programs[0]
    torch.testing.assert_close(layer.weight.grad, expected)


def test_functorch_takes_the_function() -> None:
    x, scale = (t.to("pjrt") for t in inputs())
    with torch_pjrt.composites("all"):
        rows = torch.vmap(norm, in_dims=(0, None))(x, scale)
    torch.testing.assert_close(rows.cpu(), norm(*inputs()))


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["op", "", "my.", "my..op", "1.op"])
def test_a_name_without_a_namespace(name: str) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"composite: '{name}' has no namespace; a composite's name is like 'my.op'")
    ):
        torch_pjrt.composite(name)


def test_a_namespace_of_others() -> None:
    with pytest.raises(ValueError, match=r"'aten.gelu' is in a namespace of others"):
        torch_pjrt.composite("aten.gelu")


@pytest.mark.parametrize("value", [None, {"a": 1}, [1, "a"], torch.ones(1), 1j])
def test_an_attribute_of_another_kind(value: Any) -> None:
    with pytest.raises(TypeError, match=r"composite 'my.op': attribute 'x' is .*; attributes are numbers, strings"):
        torch_pjrt.composite("my.op", x=value)


def run(function: Callable[..., Any], *args: Any) -> Any:
    with torch_pjrt.composites("test.wrong"):
        return torch_pjrt.composite("test.wrong")(function)(*args)


def declared() -> None:
    torch_pjrt.composite("test.wrong")(lambda x: x)


def test_no_tensors() -> None:
    declared()
    with pytest.raises(TypeError, match=r"composite 'test.wrong' gives no tensors, but float"):
        run(lambda x: 1.0, torch.ones(2, device="pjrt"))


def test_a_mutated_argument_is_refused_by_name_and_keeps_its_value() -> None:
    declared()

    def add_one(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        total.add_(x)
        return total * 2

    x, total = torch.ones(2, device="pjrt"), torch.ones(2, device="pjrt")
    with pytest.raises(RuntimeError, match=r"composite 'test.wrong' writes to argument 'total'"):
        run(add_one, x, total)
    assert total.tolist() == [1, 1]


def test_a_write_to_another_tensor_is_refused_and_undone() -> None:
    declared()
    seen = torch.zeros(2, device="pjrt")
    seen.cpu()
    pending = torch.zeros(2, device="pjrt")

    def count(x: torch.Tensor) -> torch.Tensor:
        seen.add_(x)
        pending[0] = 7
        return x * 2

    with pytest.raises(RuntimeError, match=r"composite 'test.wrong' writes to a tensor that is none of its arguments"):
        run(count, torch.ones(2, device="pjrt"))
    assert seen.tolist() == [0, 0]
    assert pending.tolist() == [0, 0]


def test_random_numbers() -> None:
    declared()
    with pytest.raises(RuntimeError, match=r"composite 'test.wrong' draws random numbers"):
        run(lambda x: torch.nn.functional.dropout(x, 0.5), torch.ones(2, device="pjrt"))


def test_a_value_that_is_read() -> None:
    declared()
    with pytest.raises(NotImplementedError, match=r"composite 'test.wrong': "):
        run(lambda x: x * x.sum().item(), torch.ones(2, device="pjrt"))


def test_a_parameter_that_is_no_argument() -> None:
    declared()
    weight = torch.nn.Parameter(torch.ones(2, device="pjrt"))
    with pytest.raises(RuntimeError, match="uses a tensor that requires gradients and is none of its arguments"):
        run(lambda x: x * weight, torch.ones(2, device="pjrt"))


def test_another_thread_traces() -> None:
    """While AOTAutograd traces in one thread, a group of another thread is a node of the device."""
    opened, done = threading.Event(), threading.Event()

    def trace() -> None:
        with known.traced():
            opened.set()
            done.wait(60)

    thread = threading.Thread(target=trace)
    thread.start()
    try:
        assert opened.wait(60)
        assert not known.is_traced()
        x, scale = inputs()
        with torch_pjrt.composites("test.norm"):
            assert names(torch_pjrt.to_stablehlo(norm, x, scale)) == ["test.norm"]
    finally:
        done.set()
        thread.join()


def test_who_listens_hears_of_each_function() -> None:
    """Listeners hear of functions that exist already, and of later ones."""
    heard: list[Any] = []
    there = Known()
    there.leave(min)
    there.listen(heard.append)
    assert heard == [min]
    there.leave(max)
    assert heard == [min, max]
