"""Kernels in the places of composites: who claims, what the program becomes, and that it is seen to run."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt
from torch_pjrt.kernels.call import Call


def marked(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """No gelu: what shows that it ran."""
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
        return scaled(x) + factor  # what it is made of is not itself

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


ENTRIES = {
    "aten.gelu.default": lambda x: F.gelu(x),
    "aten.gelu_backward.default": lambda x: torch.ops.aten.gelu_backward(x, x + 1),
    "aten._softmax.default": lambda x: x.softmax(-1),
    "aten.native_layer_norm.default": lambda x: F.layer_norm(x, (8,), x[0], x[1]),
    "aten.native_layer_norm_backward.default": lambda x: _gradient(lambda x: F.layer_norm(x, (8,)), x),
    "aten.convolution.default": lambda x: F.conv2d(x.reshape(1, 2, 8, 4), x[:6].reshape(6, 2, 2, 2), padding=1),
    "aten.convolution_backward.default": lambda x: _gradient(
        lambda x: F.conv2d(x.reshape(1, 2, 8, 4), x[:6].reshape(6, 2, 2, 2), padding=1), x
    ),
    "aten.max_pool2d_with_indices.default": lambda x: F.max_pool2d(x[None, None], 2, return_indices=True),
    "aten.cumsum.default": lambda x: x.cumsum(-2),
    "aten.topk.default": lambda x: x.topk(2),
    "aten.embedding.default": lambda x: F.embedding(x.abs().long() % 5, x),
    "aten.upsample_bilinear2d.default": lambda x: F.interpolate(x[None, None], scale_factor=2.0, mode="bilinear"),
    "aten.linear.default": lambda x: F.linear(x, x, x[:, 0]),
    "aten.scaled_dot_product_attention.default": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
}


def _gradient(function: Any, x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(function(x).square().sum(), x)[0]


def itself(packet: Any, overload: str) -> Any:
    """The op, of its tensors in order and everything else by name."""
    op = getattr(packet, overload)
    declared = op._schema.arguments
    names = [argument.name for argument in declared if "Tensor" in str(argument.type)]

    def kernel(*tensors: torch.Tensor, **given: Any) -> Any:
        values = given | dict(zip(names, tensors, strict=False))
        return op(**{one.name: values.get(one.name, one.default_value) for one in declared})

    return kernel


@pytest.mark.parametrize("name", ENTRIES)
def test_entries_are_claimed_and_give_the_same(name: str, kernels: ExitStack) -> None:
    """By a kernel that is the op itself."""
    _, op, overload = name.split(".")
    torch.manual_seed(1)
    x = torch.randn(8, 8).to("pjrt")

    def results() -> list[torch.Tensor]:
        given = ENTRIES[name](x)
        return [one.cpu() for one in (given if isinstance(given, tuple) else (given,))]

    expected = results()
    handle = kernels.enter_context(
        torch_pjrt.register_kernel(name, function=itself(getattr(torch.ops.aten, op), overload))
    )
    with torch_pjrt.explain() as report:
        claimed = results()
    assert done_by(report)[name] == handle.label
    for one, other in zip(claimed, expected, strict=True):
        assert torch.equal(one, other)
