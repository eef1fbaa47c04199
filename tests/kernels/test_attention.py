"""Attention on CUDA by cuDNN, without a GPU: XLA's configuration, and values by an emulated cuDNN."""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt
from tests.emulated_cuda import Run
from torch_pjrt import kernels


@pytest.fixture
def run(run_beside_cuda: Run) -> Run:
    return run_beside_cuda


FOLDER = Path(__file__).parent

START = """
torch_pjrt._C.set_interprets_growing(False)  # each size is compiled
import json, math
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from tests.kernels import emulated_cudnn
from torch_pjrt import _C

calls = emulated_cudnn.install(os.environ["EMULATED_CUDNN"])

def inputs(dtype, q=(2, 4, 6, 8), k=None, heads_third=False):
    torch.manual_seed(0)
    k = k or q
    one = lambda size: torch.randn(size, dtype=dtype)
    if heads_third:
        one = lambda size: torch.randn(size[0], size[2], size[1], size[3], dtype=dtype).transpose(1, 2)
    return [one(size) for size in (q, k, k)]

def results(tensors, device, function, wide=False):
    floats = [t.is_floating_point() for t in tensors]
    tensors = [t.double() if wide and is_float else t for t, is_float in zip(tensors, floats)]
    leaves = [t.detach().to(device).requires_grad_(is_float) for t, is_float in zip(tensors, floats)]
    y = function(*leaves)
    y.backward(torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape).to(device))
    return [y.detach().cpu(), *(leaf.grad.cpu() for leaf in leaves if leaf.grad is not None)]

def check(tensors, function, expected_calls, device="pjrt", tolerance=2e-2):
    calls.clear()
    run = torch.compile(function, backend="pjrt", fullgraph=True) if device == "cuda" else function
    given = results(tensors, device, run)
    assert [target for target, _ in calls] == expected_calls, [target for target, _ in calls]
    with sdpa_kernel(SDPBackend.MATH):  # the CPU's fused kernel has other gradients for rows masked with finite values
        expected = results(tensors, "cpu", function, wide=True)
    for i, (a, b) in enumerate(zip(given, expected, strict=True)):
        torch.testing.assert_close(a.double(), b, rtol=tolerance, atol=tolerance, msg=lambda m: f'{i}: {m}')
    return [told for _, told in calls]

PLAIN = ["__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"]
MASKED = ["__cudnn$fmhaScaleBiasSoftmax", "__cudnn$fmhaScaleBiasSoftmaxBackward"]
attention = F.scaled_dot_product_attention
"""


@pytest.fixture(scope="module")
def cudnn(tmp_path_factory: pytest.TempPathFactory) -> str:
    library = tmp_path_factory.mktemp("cudnn") / "emulated_cudnn.so"
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-o", library]
    subprocess.run([*command, f"-I{kernels.include_folder()}", FOLDER / "emulated_cudnn.cpp"], check=True)
    return str(library)


def started(program: str) -> str:
    return textwrap.dedent(START) + textwrap.dedent(program)


def test_what_it_takes(run: Run, cudnn: str) -> None:
    """Forward and backward run with each kind of mask on the device."""
    run(started("""
    for dtype in torch.bfloat16, torch.float16:
        forward, backward = check(inputs(dtype), attention, PLAIN)
        assert forward["mask_type"] == "NO_MASK" and forward["dropout_rate"] == 0
        assert forward["intermediate_tensor_shape"]["dimensions"] == ["2", "4", "6", "6"]
        assert forward["intermediate_tensor_shape"]["element_type"] == {torch.bfloat16: "BF16"}.get(dtype, "F16")
        assert forward["fmha_scale"] == 1 / math.sqrt(8)
        assert "bmm1_dot_dimension_numbers" in forward and "bmm1_dot_dimension_numbers" not in backward
        assert "bmm2_grad_gemm1_dot_dimension_numbers" in backward

        causal, _ = check(inputs(dtype), lambda q, k, v: attention(q, k, v, is_causal=True, scale=0.5), PLAIN)
        assert causal["mask_type"] == "CAUSAL" and causal["fmha_scale"] == 0.5
        # queries and keys are aligned at their start, whichever are more
        for k in (2, 4, 3, 8), (2, 4, 9, 8):
            check(inputs(dtype, k=k), lambda q, k, v: attention(q, k, v, is_causal=True), PLAIN)

        layout, _ = check(inputs(dtype, heads_third=True), attention, PLAIN)
        assert layout["bmm1_dot_dimension_numbers"]["lhs_batch_dimensions"] == ["0", "2"]
        check(inputs(dtype, k=(2, 2, 10, 8)), lambda q, k, v: attention(q, k, v, enable_gqa=True), PLAIN)
        check(inputs(dtype, (4, 6, 8)), attention, PLAIN)

        hides = torch.rand(2, 1, 6, 6) < 0.6
        hides[0, 0, 2] = False  # a completely masked row
        check(inputs(dtype), lambda q, k, v: attention(q, k, v, attn_mask=hides.to(q.device)), MASKED)
        keys = torch.tensor([[True, True, False, True, False, True]])
        check(inputs(dtype, heads_third=True), lambda q, k, v: attention(q, k, v, attn_mask=keys.to(q.device)), MASKED)
        # its own gradient
        bias = torch.randn(1, 4, 6, 6, dtype=dtype)
        given = lambda q, k, v, m: attention(q, k, v, attn_mask=m)
        check([*inputs(dtype), bias], given, MASKED)
        check([*inputs(dtype), bias[0]], given, MASKED)
        check([*inputs(dtype), bias[0, 0]], given, MASKED[:1])
    """), TORCH_PJRT_COMPILE="first", EMULATED_CUDNN=cudnn, TORCH_PJRT_LIBRARY_KERNELS="")  # fmt: skip


def test_rows_that_finite_numbers_hide(run: Run, cudnn: str) -> None:
    """Libraries mask with finite numbers, which absorb the scores of a row: PyTorch treats its keys alike."""
    run(started("""
    for dtype in torch.bfloat16, torch.float16:
        lowest = torch.finfo(dtype).min
        mask = torch.zeros(6, 6, dtype=dtype).masked_fill(torch.ones(6, 6).triu(1).bool(), lowest)
        check(inputs(dtype), lambda q, k, v: attention(q, k, v, attn_mask=mask.to(q.device, q.dtype)), MASKED)
        mask[3] = lowest
        q, k, v = inputs(dtype)
        q[:, :, 3] = 0  # no scores
        run = lambda q, k, v: attention(q, k, v, attn_mask=mask.to(q.device, q.dtype))
        check([q, k, v], run, [])  # the same programs
        mask[3, 2:] = float("-inf")
        check([q, k, v], run, [])
    """), TORCH_PJRT_COMPILE="first", EMULATED_CUDNN=cudnn, TORCH_PJRT_LIBRARY_KERNELS="")  # fmt: skip


def test_compiled_functions_of_cuda_tensors(run: Run, cudnn: str) -> None:
    """PyTorch chooses the kernels: flash attention, the memory-efficient one with a mask, cuDNN's."""
    run(started("""
    dtype = torch.bfloat16
    check(inputs(dtype), attention, PLAIN, "cuda")
    check(inputs(dtype, heads_third=True), lambda q, k, v: attention(q, k, v, is_causal=True), PLAIN, "cuda")
    mask = torch.rand(2, 1, 6, 6) < 0.6
    mask[1, 0, 4] = False
    check([*inputs(dtype), mask], attention, MASKED, "cuda")

    texts = []
    _C.set_program_listener(lambda _, text: texts.append(text))
    check(inputs(dtype, k=(2, 4, 10, 8)), attention, PLAIN, "cuda")
    _C.set_program_listener(None)
    assert len(texts) == 2 and not any("6x10x" in text for text in texts)  # no scores
    """), EMULATED_CUDNN=cudnn, TORCH_PJRT_LIBRARY_KERNELS="")  # fmt: skip


def test_what_it_leaves_to_the_decomposition(run: Run, cudnn: str) -> None:
    run(started("""
    def why(tensors, function):
        calls.clear()
        with torch_pjrt.explain() as report:
            function(*[t.to("pjrt") for t in tensors]).cpu()
        assert calls == []
        (said,) = {c.done_by for run in report.graphs for c in run.composites}
        start = "its decomposition: cuDNN's fused attention declined: "
        assert said.startswith(start), said
        return said.removeprefix(start)

    half = torch.bfloat16
    assert why(inputs(torch.float32), attention) == "it is for bfloat16 and float16"
    assert "20 wide" in why(inputs(half, (2, 4, 6, 20)), attention)
    assert "136 wide" in why(inputs(half, (2, 4, 6, 136)), attention)
    assert "one query" in why(inputs(half, (2, 4, 1, 8), (2, 4, 6, 8)), attention)
    assert "equally wide" in why([*inputs(half)[:2], torch.randn(2, 4, 6, 16, dtype=half)], attention)
    assert "drops out" in why(inputs(half), lambda q, k, v: attention(q, k, v, dropout_p=0.5))
    odd = torch.ones(5, 5, dtype=torch.bool)
    assert "odd number" in why(inputs(half, (2, 4, 5, 8)), lambda q, k, v: attention(q, k, v, odd.to("pjrt")))
    """), TORCH_PJRT_COMPILE="first", EMULATED_CUDNN=cudnn, TORCH_PJRT_LIBRARY_KERNELS="")  # fmt: skip


def test_what_cudnn_refuses_is_the_decomposition(run: Run) -> None:
    """No cuDNN is installed here."""
    result = run("""
    from torch.nn import functional as F

    q = torch.randn(2, 4, 6, 8, dtype=torch.bfloat16)
    for device in "pjrt", "cuda":
        f = F.scaled_dot_product_attention
        x = q.to(device)
        y = (torch.compile(f, backend="pjrt") if device == "cuda" else f)(x, x, x).cpu()
        torch.testing.assert_close(y, F.scaled_dot_product_attention(q, q, q), rtol=2e-2, atol=2e-2)
    """, TORCH_PJRT_COMPILE="first", TORCH_PJRT_LIBRARY_KERNELS="")  # fmt: skip
    assert result.stderr.count("XLA refuses a program with cuDNN's fused attention") == 2
    assert result.stderr.count("TORCH_PJRT_LIBRARY_KERNELS=0 leaves it out") == 2


def test_it_can_be_switched_off(run: Run, cudnn: str) -> None:
    program = """
    check(inputs(torch.bfloat16), attention, [])
    """
    run(started(program), TORCH_PJRT_COMPILE="first", EMULATED_CUDNN=cudnn)  # TORCH_PJRT_LIBRARY_KERNELS=0


def test_the_cpu_knows_nothing_of_it() -> None:
    x = torch.randn(2, 4, 6, 8, dtype=torch.bfloat16)
    shown: list[str] = []
    torch_pjrt._C.set_program_listener(lambda _, text: shown.append(text))
    try:
        compiled = torch.compile(F.scaled_dot_product_attention, backend="pjrt")
        with torch_pjrt.explain() as report:
            compiled(x, x, x)
    finally:
        torch_pjrt._C.set_program_listener(None)
    assert shown
    assert not any("cudnn" in text for text in shown)
    assert [c for run in report.graphs for c in run.composites] == []
