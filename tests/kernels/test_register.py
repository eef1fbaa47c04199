"""Kernels in place of composites: which kernel claims, the resulting program, and that the kernel runs."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt
from torch_pjrt.kernels.call import Call

pytestmark = pytest.mark.compiled


def marked(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """A function unlike gelu, which shows that it ran."""
    return x * 2 if approximate == "none" else x * 3


@pytest.fixture
def kernels() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def done_by(report: Any) -> dict[str, str]:
    return {one.name: one.done_by for run in report.graphs for one in run.composites}


X = torch.tensor([-1.0, 0.5, 2.0])


def test_a_function_takes_the_place_of_an_op(kernels: ExitStack) -> None:
    x = X.to("pjrt")
    handle = kernels.enter_context(torch_pjrt.register_kernel("aten.gelu.default", function=marked))
    with torch_pjrt.explain() as report:
        assert torch.equal(F.gelu(x).cpu(), X * 2)
    assert done_by(report) == {"aten.gelu.default": handle.label}
    assert handle.label.startswith("marked (test_register.py:")
    assert torch.equal(F.gelu(x, approximate="tanh").cpu(), X * 3), "attributes are keywords"
    with torch_pjrt.composites("none"):
        assert torch.allclose(F.gelu(x).cpu(), F.gelu(X))
    with torch_pjrt.composites("aten.silu.default"):
        assert torch.allclose(F.gelu(x).cpu(), F.gelu(X)), "a list says which composites there are"
    with torch_pjrt.composites("all"):
        assert torch.equal(F.gelu(x).cpu(), X * 2)
    handle.remove()
    handle.remove()
    assert torch.allclose(F.gelu(x).cpu(), F.gelu(X))


AROUND = {"autocast": lambda: torch.autocast("pjrt", dtype=torch.bfloat16), "strict": torch_pjrt.strict_mode,
          "inference": torch.inference_mode}  # fmt: skip


@pytest.mark.parametrize("name", AROUND)
@pytest.mark.parametrize("is_compiled", [False, True])
def test_what_is_on_around_a_program_changes_no_kernel(name: str, is_compiled: bool, kernels: ExitStack) -> None:
    """A kernel is recorded where its composite is lowered, so modes around the program must not affect it."""
    rows = torch.arange(12.0).reshape(4, 3) / 7  # a bfloat16 product would differ

    def product(x: torch.Tensor, **_: Any) -> torch.Tensor:
        return x.mT @ (x + 0.123)

    kernels.enter_context(
        torch_pjrt.register_kernel("aten.hardswish.default", function=lambda x, **_: product(x) @ x.mT)
    )
    torch._dynamo.reset()
    function = torch.compile(F.hardswish, backend="pjrt", fullgraph=True) if is_compiled else F.hardswish
    x = rows[:3].to("pjrt")
    with AROUND[name]():
        result = function(x).cpu()
    torch.testing.assert_close(result, product(rows[:3]) @ rows[:3].mT)


def test_the_last_one_that_claims_wins(kernels: ExitStack) -> None:
    x = X.to("pjrt")
    offered: list[Call] = []

    def only_long(call: Call) -> bool | str:
        offered.append(call)
        return call.operands[0].shape[0] > 3

    kernels.enter_context(torch_pjrt.register_kernel("aten.gelu.default", function=marked))
    kernels.enter_context(torch_pjrt.register_kernel("aten.gelu.default", function=lambda x, **_: -x, when=only_long))
    kernels.enter_context(torch_pjrt.register_kernel("aten.gelu.default", function=lambda x, **_: x, platform="tpu"))
    assert torch.equal(F.gelu(x).cpu(), X * 2)
    assert torch.equal(F.gelu(torch.cat([x, x])).cpu(), -torch.cat([X, X]))
    (form,) = offered[0].operands
    assert (form.dtype, form.shape, str(form)) == (torch.float32, (3,), "float32[3]")
    assert offered[0].attributes == {"approximate": "none"}
    assert offered[0].place.startswith("composite 'aten.gelu.default' (first recorded at ")


def test_why_all_declined(kernels: ExitStack) -> None:
    x = X.to("pjrt")
    kernels.enter_context(
        torch_pjrt.register_kernel("aten.silu.default", function=marked, when=lambda call: "it is odd")
    )
    kernels.enter_context(torch_pjrt.register_kernel("aten.silu.default", function=marked, platform="cuda"))
    with torch_pjrt.explain() as report:
        assert torch.allclose(F.silu(x).cpu(), F.silu(X))
    (said,) = done_by(report).values()
    assert said.startswith("its decomposition: marked (test_register.py:")
    assert "declined: it is for cuda; marked" in said
    assert said.endswith("declined: it is odd")
    assert said in " ".join(str(report).split()) or "it is odd" in str(report)


def test_what_is_only_shown_has_no_kernels(kernels: ExitStack) -> None:
    plain = torch_pjrt.to_stablehlo(F.silu, X)
    kernels.enter_context(torch_pjrt.register_kernel("aten.silu.default", function=marked))
    assert torch_pjrt.to_stablehlo(F.silu, X).count("stablehlo") == plain.count("stablehlo")


def test_forward_and_backward_are_claimed_apart(kernels: ExitStack) -> None:
    def half(grad: torch.Tensor, x: torch.Tensor, approximate: str) -> torch.Tensor:
        return grad / 2

    x = X.to("pjrt").requires_grad_()
    kernels.enter_context(torch_pjrt.register_kernel("aten.gelu_backward.default", function=half))
    y = F.gelu(x)
    assert torch.allclose(y.detach().cpu(), F.gelu(X))
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), torch.full((3,), 0.5))


def test_a_group_of_ones_own(kernels: ExitStack) -> None:
    @torch_pjrt.composite("kernels.scaled", factor=3)
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    def plus(x: torch.Tensor, factor: int) -> torch.Tensor:
        return scaled(x) + factor  # its decomposition doesn't call itself

    def gradient(x: torch.Tensor, grad: torch.Tensor, factor: int, gradients_of: list[int]) -> torch.Tensor:
        assert gradients_of == [0]
        return grad * 7

    x = X.to("pjrt").requires_grad_()
    backward = kernels.enter_context(torch_pjrt.register_kernel("kernels.scaled.backward", function=gradient))
    y = scaled(x)
    y.sum().backward()
    assert torch.equal(y.detach().cpu(), X * 3)
    assert torch.equal(x.grad.cpu(), torch.full((3,), 7.0))
    backward.remove()
    kernels.enter_context(torch_pjrt.register_kernel("kernels.scaled", function=plus))
    assert torch.equal(scaled(x.detach()).cpu(), X * 3 + 3)


def test_an_op_that_pytorch_takes_apart(kernels: ExitStack) -> None:
    def attention(q: Any, k: Any, v: Any, **attributes: Any) -> torch.Tensor:
        return v + 1

    kernels.enter_context(torch_pjrt.register_kernel("aten.scaled_dot_product_attention.default", function=attention))
    q = torch.ones(1, 2, 4, 8, device="pjrt")
    assert torch.equal(F.scaled_dot_product_attention(q, q, q).cpu(), torch.full((1, 2, 4, 8), 2.0))


def test_compiled_functions_keep_what_they_were_compiled_with(kernels: ExitStack) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x) + 1

    handle = kernels.enter_context(torch_pjrt.register_kernel("aten.gelu.default", function=marked))
    compiled = torch.compile(step, backend="pjrt")
    assert torch.equal(compiled(X), X * 2 + 1)
    x = X.to("pjrt")
    jitted, stepped = torch_pjrt.jit(step, (x,)), torch_pjrt.compile_step(step)
    assert torch.equal(jitted(x).cpu(), X * 2 + 1)
    assert torch.equal(stepped(x).cpu(), X * 2 + 1)
    handle.remove()
    assert torch.equal(compiled(X), X * 2 + 1), "it keeps working"
    assert torch.allclose(torch.compile(lambda x: F.gelu(x) + 2, backend="pjrt")(X), F.gelu(X) + 2)


def test_a_compiled_backward(kernels: ExitStack) -> None:
    kernels.enter_context(
        torch_pjrt.register_kernel("aten.gelu_backward.default", function=lambda grad, x, approximate: grad * 5)
    )
    x = X.clone().requires_grad_()
    torch.compile(lambda x: F.gelu(x).sum(), backend="pjrt")(x).backward()
    assert torch.equal(x.grad, torch.full((3,), 5.0))


def test_a_number_that_varies_is_a_keyword_too(kernels: ExitStack) -> None:
    def own(x: torch.Tensor, negative_slope: Any) -> torch.Tensor:
        return x * negative_slope

    kernels.enter_context(torch_pjrt.register_kernel("aten.leaky_relu.default", function=own))
    x = X.to("pjrt")
    for slope in (0.5, 0.25, 0.125):
        assert torch.equal(F.leaky_relu(x, slope).cpu(), X * slope)


TWICE = """
module {
  func.func private @twice(%x: tensor<3xf32>) -> tensor<3xf32> {
    %0 = stablehlo.add %x, %x : tensor<3xf32>
    return %0 : tensor<3xf32>
  }
  func.func public @main(%arg0: tensor<3xf32> {test.name = "x"}) -> (tensor<3xf32> {test.name = "y"}) {
    %0 = call @twice(%arg0) : (tensor<3xf32>) -> tensor<3xf32> loc("a.py":1:2)
    return %0 : tensor<3xf32>
  }
}
"""


def test_stablehlo_takes_its_place(kernels: ExitStack) -> None:
    kernels.enter_context(torch_pjrt.register_kernel("aten.gelu.default", stablehlo=TWICE))
    x = X.to("pjrt")
    assert torch.equal((F.gelu(x) + F.gelu(x + 1)).cpu(), X * 2 + (X + 1) * 2)
    with pytest.raises(TypeError, match=r"@main takes \(tensor<3xf32>\), the composite takes \(tensor<4xf32>\)"):
        F.gelu(torch.ones(4, device="pjrt")).cpu()


def test_jax_takes_its_place(kernels: ExitStack) -> None:
    jax = pytest.importorskip("jax")

    def own(x: Any, approximate: str) -> Any:
        return jax.numpy.sin(x) * (2 if approximate == "none" else 3)

    handle = kernels.enter_context(torch_pjrt.register_kernel("aten.gelu.default", jax=own))
    assert torch.allclose(F.gelu(X.to("pjrt")).cpu(), X.sin() * 2)
    assert handle.label.startswith("JAX's ")


def test_predicates_see_layouts(kernels: ExitStack) -> None:
    calls: list[Call] = []

    def rows(call: Call) -> bool | str:
        calls.append(call)
        return call.operands[0].layout == (1, 0) or "its rows don't lie one after the other"

    kernels.enter_context(torch_pjrt.register_kernel("aten.gelu.default", function=marked, when=rows))
    x = torch.arange(6.0).view(2, 3)
    assert torch.equal(F.gelu(x.to("pjrt")).cpu(), x * 2)
    assert torch.allclose(F.gelu(x.to("pjrt").t().contiguous().t()).cpu(), F.gelu(x))
    image = torch.ones(1, 2, 3, 4, device="pjrt")
    F.gelu(image.to(memory_format=torch.channels_last)).cpu()
    assert [call.operands[0].layout for call in calls] == [(1, 0), (0, 1), (1, 3, 2, 0)]
    assert [call.operands[0].strides for call in calls] == [(3, 1), (1, 2), (24, 1, 8, 2)]
    assert calls[2].results[0].layout == (1, 3, 2, 0)


def test_a_function_gets_tensors_in_their_layout(kernels: ExitStack) -> None:
    seen: list[tuple[int, ...]] = []

    def own(x: torch.Tensor, approximate: str) -> torch.Tensor:
        seen.append(x.stride())
        return x * 2

    kernels.enter_context(torch_pjrt.register_kernel("aten.gelu.default", function=own))
    x = torch.arange(6.0).view(3, 2).to("pjrt").t()
    assert F.gelu(x).tolist() == [[0, 4, 8], [2, 6, 10]]
    assert seen == [(1, 2)]


def test_a_backward_tells_whose_gradients_it_gives(kernels: ExitStack) -> None:
    @torch_pjrt.composite("kernels.product")
    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * y

    def gradients(x: Any, y: Any, grad: Any, gradients_of: list[int]) -> list[torch.Tensor]:
        return [grad * (i + 2) for i in gradients_of]

    kernels.enter_context(torch_pjrt.register_kernel("kernels.product.backward", function=gradients))
    x, y = X.to("pjrt"), X.to("pjrt").requires_grad_()
    (grad,) = torch.autograd.grad(product(x, y).sum(), y)
    assert grad.tolist() == [3, 3, 3]
    compiled = torch.compile(product, backend="pjrt")
    z = X.clone().requires_grad_()
    assert torch.autograd.grad(compiled(X, z).sum(), z)[0].tolist() == [3, 3, 3]
    x.requires_grad_()
    assert [g.tolist() for g in torch.autograd.grad(product(x, y).sum(), (y, x))] == [[3] * 3, [2] * 3]


def test_a_backward_by_autograd(kernels: ExitStack) -> None:
    def own(x: torch.Tensor, grad: torch.Tensor, gradients_of: list[int], **attributes: Any) -> Any:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(F.rms_norm(x, (3,)), x, grad * 2)

    kernels.enter_context(torch_pjrt.register_kernel("aten.rms_norm.default.backward", function=own))
    grads = []
    for device, factor in (("pjrt", 1), ("cpu", 2)):
        x = X.to(device, copy=True).requires_grad_()
        F.rms_norm(x, (3,)).square().sum().mul(factor).backward()
        grads.append(x.grad.cpu())
    torch.testing.assert_close(*grads)
