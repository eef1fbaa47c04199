"""XLA:CPU is slow at a few rows times the transpose of a large matrix, as in linear layers of small batches: the rule
transposes that product. XLA:CPU multiplies one row in one thread: the rule makes a batch of it. Calling its matrix
kernel costs more than a tiny product, so the rule makes that a sum.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt
from torch_pjrt import _C

pytestmark = pytest.mark.each_way

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
PRODUCTS: dict[str, Product] = {
    "linear": F.linear,
    "mm": lambda x, w: x.flatten(0, -2) @ w.t(),
    "addmm": lambda x, w: torch.addmm(w[:, 0], x.flatten(0, -2), w.t()),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("shape", [(1,), (4,), (2, 3), (200,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_few_rows_and_many(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, w = torch.randn(*shape, 256, dtype=dtype), torch.randn(512, 256, dtype=dtype)
    result = PRODUCTS[name](x.to("pjrt"), w.to("pjrt"))
    expected = PRODUCTS[name](x, w)
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result.cpu(), expected, rtol=2e-2 if dtype == torch.bfloat16 else 1e-4, atol=1e-3)


@pytest.mark.parametrize("batch", [(), (2,), (1, 3), (2, 3)])
def test_a_sum_of_what_is_transposed_times_a_matrix(batch: tuple[int, ...]) -> None:
    x, w = torch.randn(*batch, 256, 2, 25), torch.randn(*batch, 256, 10).bfloat16()
    result = x.to("pjrt").transpose(-3, -2).sum(-1).bfloat16() @ w.to("pjrt")
    torch.testing.assert_close(result.cpu(), x.transpose(-3, -2).sum(-1).bfloat16() @ w, rtol=2e-2, atol=1)


def test_features_that_are_pooled_times_a_matrix() -> None:
    x, kernel, w = (torch.randn(n).bfloat16() for n in ((2, 64, 5, 5), (256, 64, 1, 1), (256, 10)))
    result = F.conv2d(x.to("pjrt"), kernel.to("pjrt")).relu().mean((2, 3)) @ w.to("pjrt")
    torch.testing.assert_close(result.cpu(), F.conv2d(x, kernel).relu().mean((2, 3)) @ w, rtol=2e-2, atol=1)


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_few_rows_are_swapped(name: str) -> None:
    w = torch.randn(512, 256, device="pjrt")
    few, many = (_C.stablehlo([PRODUCTS[name](torch.randn(n, 256, device="pjrt"), w)], for_cpu=True) for n in (4, 200))
    assert "tensor<512x4xf32>" in few
    assert "tensor<512x200xf32>" not in many


def test_a_composite_reads_the_matrix_that_its_argument_transposes() -> None:
    """If the matrix were transposed outside of a function and back inside, it would be copied in each run."""
    x, w = torch.randn(4, 256, device="pjrt"), torch.randn(512, 256, device="pjrt")
    with torch_pjrt.composites("all"):
        shown = _C.stablehlo([PRODUCTS["addmm"](x, w)], for_cpu=True)
    assert "dot_general %arg2, %arg1, contracting_dims = [0] x [1]" in shown
    assert "(tensor<256x512xf32>) -> tensor<512x256xf32>" not in shown


BATCHES_OF_ONE: dict[str, tuple[Product, tuple[int, ...], tuple[int, ...]]] = {
    "a transposed matrix": (lambda x, w: x.mT @ w, (1, 32, 48), (1, 32, 24)),
    "einsum": (lambda x, w: torch.einsum("kn,km->nm", x, w), (32, 48), (32, 24)),
    "one of two": (lambda x, w: x.mT @ w, (3, 1, 32, 48), (3, 1, 32, 24)),
    "two": (lambda x, w: x.mT @ w, (1, 1, 32, 48), (1, 1, 32, 24)),
}


@pytest.mark.parametrize("name", BATCHES_OF_ONE)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_batches_of_one(name: str, dtype: torch.dtype) -> None:
    product, *shapes = BATCHES_OF_ONE[name]
    x, w = (torch.randn(*shape, dtype=dtype) for shape in shapes)
    results = []
    for device in ("cpu", "pjrt"):
        leaves = [t.detach().to(device).requires_grad_() for t in (x, w)]
        result = product(*leaves)
        results.append([t.cpu() for t in (result, *torch.autograd.grad(result.sum(), leaves))])
    torch.testing.assert_close(results[1], results[0], rtol=2e-2, atol=1e-1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_skinny_gemm_of_two_layers(dtype: torch.dtype) -> None:
    x, v, w = (torch.randn(*shape, dtype=dtype) for shape in ((2, 12, 32), (2560, 32), (32, 2560)))

    def layers(x: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.linear(F.linear(x, v).relu(), w)

    result = layers(x.to("pjrt"), v.to("pjrt"), w.to("pjrt"))
    torch.testing.assert_close(result.cpu(), layers(x, v, w), rtol=2e-2, atol=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("inner", [512, 500])
def test_one_row_and_a_matrix_are_a_batch_of_pieces(inner: int, dtype: torch.dtype) -> None:
    x, w, bias = (torch.randn(*shape, dtype=dtype) for shape in ((1, inner), (inner, 640), (640,)))
    result = torch.addmm(bias.to("pjrt"), x.to("pjrt"), w.to("pjrt"))
    in_pieces = "tensor<8x64x640" in _C.stablehlo([result], for_cpu=True)
    assert in_pieces == (inner == 512 and dtype != torch.bfloat16)
    torch.testing.assert_close(result.cpu(), torch.addmm(bias, x, w), rtol=2e-2 if dtype == torch.bfloat16 else 1e-4,
                               atol=1e-1 if dtype == torch.bfloat16 else 1e-3)  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_tiny_product_is_a_sum(name: str) -> None:
    x, w = torch.randn(3, 4, 16), torch.randn(8, 16)
    product = PRODUCTS[name](x.to("pjrt"), w.to("pjrt"))
    assert "dot_general" not in _C.stablehlo([product], for_cpu=True)
    assert "dot_general" in _C.stablehlo([product])  # for users to see, and for other platforms
    half = PRODUCTS[name](x.to("pjrt").half(), w.to("pjrt").half())
    assert "dot_general" in _C.stablehlo([half], for_cpu=True)  # its sums are wider than its elements
    results = []
    for device in ("cpu", "pjrt"):
        leaves = [t.detach().to(device).requires_grad_() for t in (x, w)]
        result = PRODUCTS[name](*leaves)
        results.append([t.cpu() for t in (result, *torch.autograd.grad(result.square().sum(), leaves))])
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-4)


def test_no_inner_dimension() -> None:
    x, w = torch.randn(2, 3, 0, device="pjrt"), torch.randn(5, 0, device="pjrt")
    assert torch.equal(F.linear(x, w).cpu(), torch.zeros(2, 3, 5))
    assert F.linear(torch.randn(2, 0, 4, device="pjrt"), torch.randn(5, 4, device="pjrt")).shape == (2, 0, 5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_wider_result_of_a_batch(dtype: torch.dtype) -> None:
    """PyTorch supports it on CUDA alone."""
    added, x, y = torch.randn(2, 3, 5), torch.randn(2, 3, 4, dtype=dtype), torch.randn(2, 4, 5, dtype=dtype)
    expected = added * 0.5 + torch.bmm(x.float(), y.float()) * 2
    given = [t.to("pjrt") for t in (added, x, y)]
    options = {"out_dtype": torch.float32, "beta": 0.5, "alpha": 2}
    torch.testing.assert_close(torch.baddbmm(*given, **options).cpu(), expected)
    out = torch.empty(0, device="pjrt")
    assert torch.baddbmm(*given, **options, out=out) is out
    torch.testing.assert_close(out.cpu(), expected)
    with pytest.raises(RuntimeError, match=r"out_dtype only supported for torch.float32 output"):
        torch.baddbmm(*given, out_dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"baddbmm: self must be torch.float32, or torch.b?float16 as the matrices"):
        torch.baddbmm(given[0].double(), *given[1:], **options)
    with pytest.raises(RuntimeError, match=r"baddbmm: out must be torch.float32, as out_dtype says, not torch.float64"):
        torch.baddbmm(*given, **options, out=torch.empty(2, 3, 5, dtype=torch.float64, device="pjrt"))


@pytest.mark.each_way
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
def test_products_over_nothing_of_constants(dtype: torch.dtype) -> None:
    """Their value is zero; XLA folds the product of two constants in a way that ended the process."""

    def product(device: str) -> torch.Tensor:
        a = torch.ones(1, 1, 50, 0, dtype=dtype, device=device)
        return (a @ torch.ones(1, 1, 50, 0, dtype=dtype, device=device).mT).sum()

    torch.testing.assert_close(product("pjrt").cpu(), product("cpu"))
