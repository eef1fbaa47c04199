"""Convolutions by PyTorch's library: which implementation runs, and values, forward and backward."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_pjrt
from tests import fresh
from tests.kernels.library import HAS_AVX2, HAS_BF16, HAS_BF16_DOTS, LAYOUTS, of_float32_convolutions
from tests.peak import status
from tests.threads import in_two_threads

pytestmark = [pytest.mark.compiled, pytest.mark.host_memory]

PARTS = {  # of programs' texts
    "convolution": r'call = "(aten::convolution|mkldnn::_convolution_pointwise)\(',
    "of_input": r"aten::convolution_backward\(grad_output=%0( row-major)?, input=memory",
    "of_weight": r"aten::convolution_backward\(grad_output=%0( row-major)?, input=%1",
}
with_dots = pytest.mark.skipif(
    not HAS_BF16_DOTS, reason="oneDNN has no instructions for bfloat16 here: convolutions are XLA's"
)
with_library = pytest.mark.skipif(not HAS_BF16, reason="oneDNN multiplies no bfloat16 here")


def by_library(text: str) -> list[str]:
    return [part for part, pattern in PARTS.items() if re.search(pattern, text)]


def drawn(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes).bfloat16()


def near(mine: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> None:
    """Asserts that values differ by no more than their rounding and that of partial sums."""
    assert mine.dtype == dtype
    scale = float(exact.nan_to_num(0, 0, 0).abs().max()) if exact.numel() else 1.0
    once = 5e-3 if HAS_BF16_DOTS else 8e-3  # XLA also rounds before it adds a bias
    rtol, atol = (once, 1e-3) if dtype == torch.bfloat16 else (1e-5, 3e-6)
    torch.testing.assert_close(mine.cpu().double(), exact, rtol=rtol, atol=atol * scale, equal_nan=True)


def rounded(mine: torch.Tensor, exact: torch.Tensor) -> None:
    near(mine, exact, torch.bfloat16)


Case = tuple[Callable[..., torch.Tensor], tuple[int, ...], tuple[int, ...], dict[str, Any]]
CASES: dict[str, Case] = {
    "of one dimension": (F.conv1d, (4, 32, 200), (48, 32, 5), {"padding": 2}),
    "plain": (F.conv2d, (2, 16, 32, 32), (24, 16, 3, 3), {"padding": 1}),
    "1x1": (F.conv2d, (2, 32, 32, 32), (48, 32, 1, 1), {}),
    "strided, dilated": (
        F.conv2d, (2, 8, 65, 33), (64, 8, 3, 5), {"stride": (2, 1), "padding": (0, 2), "dilation": (2, 1)},
    ),
    "first layer": (F.conv2d, (2, 3, 64, 64), (32, 3, 7, 7), {"stride": 2, "padding": 3}),
    "depthwise": (F.conv2d, (4, 64, 48, 48), (64, 1, 3, 3), {"groups": 64, "padding": 1}),
    "grouped": (F.conv2d, (2, 64, 28, 28), (64, 16, 3, 3), {"groups": 4, "padding": 1}),
    "of more weights than images": (F.conv2d, (2, 64, 3, 3), (128, 64, 3, 3), {"padding": 1}),
    "transposed": (F.conv_transpose2d, (2, 16, 32, 32), (16, 24, 4, 4), {"stride": 2, "padding": 1}),
    "transposed, with more behind": (
        F.conv_transpose2d, (2, 32, 20, 20), (32, 12, 3, 3), {"stride": 2, "output_padding": 1, "groups": 2},
    ),
    "volume": (F.conv3d, (1, 8, 16, 16, 16), (16, 8, 3, 3, 3), {"padding": 1}),
    "transposed volume": (F.conv_transpose3d, (1, 16, 8, 8, 8), (16, 8, 3, 3, 3), {"stride": 2}),
}  # fmt: skip


def results(case: Case, tensors: list[torch.Tensor], gradient: torch.Tensor) -> list[torch.Tensor]:
    function, _, _, options = case
    leaves = [x.detach().requires_grad_() for x in tensors]
    y = function(*leaves, **options)
    return [y.detach(), *torch.autograd.grad(y, leaves, gradient)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(2)
def test_values(name: str, with_bias: bool, dtype: torch.dtype, programs: list[str]) -> None:
    def drawn(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, dtype=dtype)

    case = function, size, weight_size, options = CASES[name]
    tensors = [drawn(*size), drawn(*weight_size)]
    y = function(*tensors, **options)
    if with_bias:
        tensors.append(drawn(y.shape[1]))
    gradient = drawn(*y.shape)
    exact = results(case, [x.double() for x in tensors], gradient.double())
    mine = results(case, [x.to("pjrt") for x in tensors], gradient.to("pjrt"))
    for x, expected in zip(mine, exact, strict=True):
        near(x, expected, dtype)
    if HAS_BF16_DOTS or (HAS_AVX2 and dtype == torch.float32):
        none_of_weight = name == "grouped" or options.get("groups") == 2
        assert by_library("".join(programs)) == list(PARTS)[: 2 if none_of_weight else 3]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_operands(layout: str) -> None:
    case = CASES["plain"]
    given = [LAYOUTS[layout](drawn(*sizes)) for sizes in case[1:3]]
    gradient = LAYOUTS[layout](drawn(2, 24, 32, 32))
    exact = results(case, [x.double() for x in given], gradient.double())
    mine = results(case, [LAYOUTS[layout](x.contiguous().to("pjrt")) for x in given], gradient.to("pjrt"))
    for x, expected in zip(mine, exact, strict=True):
        rounded(x, expected)
    reference = F.conv2d(*given, padding=1)
    assert mine[0].stride() == reference.stride()


@with_dots
def test_dispatch(programs: list[str]) -> None:
    def asked(function: Callable[..., torch.Tensor], *operands: torch.Tensor) -> list[str]:
        function(*[x.to("pjrt") for x in operands]).cpu()
        return by_library(programs[-1])

    wide = drawn(2, 16, 32, 32), drawn(24, 16, 3, 3)
    assert asked(F.conv2d, *wide) == ["convolution"]
    assert asked(F.conv2d, drawn(1, 16, 8, 8), wide[1]) == []  # small
    assert asked(F.conv2d, *[x.float() for x in wide]) == ["convolution"]
    for dtype in (torch.float16, torch.float64):
        assert asked(F.conv2d, *[x.to(dtype) for x in wide]) == []


@with_dots
def test_images_keep_the_channels_last_between_convolutions(programs: list[str]) -> None:
    x, w = drawn(2, 32, 32, 32).to("pjrt"), drawn(32, 32, 3, 3).to("pjrt")
    F.conv2d(F.conv2d(x, w, padding=1).relu(), w, padding=1).cpu()
    calls = [line for line in programs[-1].splitlines() if by_library(line)]
    assert len(calls) == 2
    assert all(line.count("dense<[1, 3, 2, 0]>") == 2 for line in calls)
    assert "stablehlo.transpose" not in programs[-1]


@pytest.mark.parametrize(("size", "weight_size"), [((0, 16, 32, 32), (16, 16, 3, 3)), ((2, 0, 32, 32), (16, 0, 3, 3))])
def test_no_elements(size: tuple[int, ...], weight_size: tuple[int, ...]) -> None:
    x, w, bias = drawn(*size), drawn(*weight_size), drawn(16)
    rounded(F.conv2d(x.to("pjrt"), w.to("pjrt"), bias.to("pjrt")), F.conv2d(x.double(), w.double(), bias.double()))


@pytest.mark.parametrize("stride", [(1, 2), (1, 3), (2, 3)])
@pytest.mark.parametrize("last", [1, 2, 3])
@pytest.mark.each_way
def test_a_stride_that_ends_in_few(stride: tuple[int, int], last: int) -> None:
    """oneDNN 3.12's tiles read memory outside of the image here, and so does CPU eager."""
    for width in (1, 2, 3):
        x, w = drawn(8, 3, 64, (last - 1) * stride[1] + width), drawn(64, 3, 3, width)
        exact = F.conv2d(x.double(), w.double(), stride=stride, padding=(1, 0))
        assert exact.shape[-1] == last
        rounded(F.conv2d(x.to("pjrt"), w.to("pjrt"), stride=stride, padding=(1, 0)), exact)
        given = [t.to("pjrt").requires_grad_() for t in (exact.bfloat16(), w)]
        wanted = [t.detach().cpu().double().requires_grad_() for t in given]
        images = [F.conv_transpose2d(*pair, stride=stride, padding=(1, 0)) for pair in (given, wanted)]
        of_input, of_weight = torch.autograd.grad(images[0].float().sum(), given)
        for mine, right in zip((of_input, of_weight), torch.autograd.grad(images[1].sum(), wanted), strict=True):
            rounded(mine, right)


def test_special_values() -> None:
    x, w = drawn(2, 16, 32, 32), drawn(24, 16, 3, 3)
    x[0, 3, 5, 7], x[1, 0, 0, 0], w[5, 1, 1, 1] = torch.nan, torch.inf, -torch.inf
    rounded(F.conv2d(x.to("pjrt"), w.to("pjrt")), F.conv2d(x.double(), w.double()))


def test_a_bias_is_added_before_the_rounding() -> None:
    """256 + 1.25 rounds to 258; 256.25 without the bias rounds to 256, and then + 1 to 256."""
    x, w = torch.ones(2, 256, 16, 16).bfloat16(), torch.ones(32, 256, 1, 1).bfloat16()
    w[:, 0] += 0.25
    y = F.conv2d(x.to("pjrt"), w.to("pjrt"), torch.ones(32).bfloat16().to("pjrt")).cpu()
    assert (y == 258).all(), y[0, 0, 0, 0]


def test_a_weight_that_is_changed_in_place() -> None:
    x, w = drawn(2, 16, 32, 32), drawn(24, 16, 3, 3)
    compiled = torch.compile(F.conv2d, backend="pjrt")
    for _ in range(3):
        rounded(compiled(x, w), F.conv2d(x.double(), w.double()))
        w.mul_(-0.5)
    w.data[0] = 1  # without a new version
    rounded(compiled(x, w), F.conv2d(x.double(), w.double()))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 32, 5, 2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 32, 3, groups=32),
              nn.Conv2d(32, 64, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))  # fmt: skip
    return nn.Sequential(*layers)


@pytest.mark.parametrize("way", ["compile", "compile_step", "calls"])
def test_training_under_autocast(way: str, programs: list[str]) -> None:
    images, target = torch.randn(4, 3, 64, 64), torch.arange(4)

    def losses(device: str, wrap: Callable[..., Any], inner: Callable[..., Any]) -> list[float]:
        model = network().to(device)
        called = inner(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = images.to(device), target.to(device)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16):
                loss = F.cross_entropy(called(x).float(), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = wrap(step)
        return [float(run()) for _ in range(5)]

    def plain(x: Any) -> Any:
        return x

    expected = losses("cpu", plain, plain)
    if way == "compile":
        mine = losses("cpu", plain, lambda model: torch.compile(model, backend="pjrt", dynamic=False))
    else:
        mine = losses("pjrt", torch_pjrt.compile_step if way == "compile_step" else plain, plain)
    torch.testing.assert_close(torch.tensor(mine), torch.tensor(expected), rtol=3e-2, atol=1e-2)
    if HAS_BF16_DOTS:
        assert by_library("".join(programs)) == list(PARTS)


def test_two_threads() -> None:
    x, w = drawn(2, 16, 32, 32), drawn(24, 16, 3, 3)
    exact = F.conv2d(x.double(), w.double())
    compiled = torch.compile(F.conv2d, backend="pjrt")
    compiled(x, w)

    def work() -> None:
        with torch.no_grad():
            for _ in range(30):
                rounded(compiled(x, w), exact)

    in_two_threads(work)


def test_many_calls_take_no_memory() -> None:
    x, w = drawn(1, 16, 24, 24), drawn(24, 16, 3, 3)
    compiled = torch.compile(F.conv2d, backend="pjrt")

    with torch.no_grad():
        sizes = []
        for _ in range(4):
            for _ in range(2_000):
                compiled(x, w)
            sizes.append(status("VmRSS"))
    # Other threads of the process allocate, too, but not in each round.
    assert min(after - before for before, after in itertools.pairwise(sizes)) < 1 << 20


OTHERWISE = """
import torch, torch_pjrt
from torch_pjrt import _C
texts = []
_C.set_program_listener(lambda _, text: texts.append(text))
x, w = torch.randn(2, 16, 32, 32).bfloat16(), torch.randn(24, 16, 3, 3).bfloat16()
y = torch.compile(torch.nn.functional.conv2d, backend="pjrt")(x, w)
torch.testing.assert_close(y.double(), torch.nn.functional.conv2d(x.double(), w.double()), rtol=1e-2, atol=0.1)
print(any("_convolution_pointwise(" in text for text in texts))
"""


@with_library
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, HAS_BF16_DOTS),
        ({"TORCH_PJRT_LIBRARY_KERNELS": "0"}, False),
        ({"ONEDNN_MAX_CPU_ISA": "avx512_core_vnni"}, False),  # a machine with fewer instructions
        ({"ONEDNN_MAX_CPU_ISA": "avx512_core_bf16"}, HAS_BF16_DOTS),
        ({"ONEDNN_MAX_CPU_ISA": "avx512_core_amx"}, HAS_BF16_DOTS),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "TORCH_PJRT_LIBRARY_KERNELS": "all"}, True),
        ({"OMP_NUM_THREADS": "1"}, HAS_BF16_DOTS),
    ],
    ids=str,
)
def test_other_processes(server: fresh.Server, environment: dict[str, str], expected: bool) -> None:
    (reported,) = server.run(fresh.Job(OTHERWISE, environment=environment))
    assert reported.out.split() == [str(expected)]


A_STEP = """
import torch, torch_pjrt
from torch_pjrt import _C
texts = []
_C.set_program_listener(lambda _, text: texts.append(text))
model = torch.nn.Sequential(torch.nn.Conv2d(8, 32, 3), torch.nn.BatchNorm2d(32), torch.nn.Conv2d(32, 32, 3, groups=4))
x = torch.randn(4, 8, 32, 32)
gradients = []
for function in (torch.compile(model, backend="pjrt"), model):
    model.zero_grad()
    function(x).square().sum().backward()
    gradients.append([p.grad.clone() for p in model.parameters()])
for mine, theirs in zip(*gradients, strict=True):
    torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=2e-3)
text = "".join(texts)
for op in ("_convolution_pointwise", "convolution_backward", "batch_norm_in_training", "native_batch_norm_backward"):
    print(text.count("::" + op + "("))
"""


@of_float32_convolutions
def test_a_step_of_float32_on_avx2(server: fresh.Server) -> None:
    (reported,) = server.run(fresh.Job(A_STEP, environment={"ONEDNN_MAX_CPU_ISA": "AVX2"}))
    assert all(int(count) > 0 for count in reported.out.split()), reported.out


EVERY_SAMPLE = """
import torch, torch_pjrt
from torch.testing._internal.common_methods_invocations import op_db
from torch_pjrt import _C
_C.set_interprets_growing(False)  # the samples differ in their sizes alone
texts = []
_C.set_program_listener(lambda _, text: texts.append(text))
for entry in op_db:
    if not entry.name.startswith("nn.functional.conv"):
        continue
    for sample in entry.sample_inputs("cpu", torch.bfloat16):
        floats = sample.transform(lambda x: x.double() if isinstance(x, torch.Tensor) else x)
        exact = entry(floats.input, *floats.args, **floats.kwargs)
        given = sample.transform(lambda x: x.to("pjrt") if isinstance(x, torch.Tensor) else x)
        mine = entry(given.input, *given.args, **given.kwargs).cpu()
        assert mine.dtype == torch.bfloat16
        assert mine.stride() == entry(sample.input, *sample.args, **sample.kwargs).stride(), entry.name
        torch.testing.assert_close(mine.double(), exact, rtol=1e-2, atol=1e-2 * float(exact.abs().max()))
print(sum("aten::convolution(" in text or "_convolution_pointwise(" in text for text in texts) > 20)
"""


@with_library
def test_opinfo_samples_by_the_library(server: fresh.Server) -> None:
    """The samples are small, so XLA runs them by default."""
    (reported,) = server.run(fresh.Job(EVERY_SAMPLE, environment={"TORCH_PJRT_LIBRARY_KERNELS": "all"}))
    assert reported.out.split() == ["True"]


WITH_A_TEAM = """
import torch, torch_pjrt
torch.set_num_threads(2)
x, w = torch.randn(2, 32, 32, 32).bfloat16(), torch.randn(32, 32, 3, 3).bfloat16().requires_grad_()
compiled = torch.compile(lambda x: torch.nn.functional.conv2d(x, w).relu(), backend="pjrt")
for _ in range(20):
    expected = torch.nn.functional.conv2d(x, w)  # alternates with eager's own team
    y = compiled(x)
    y.float().sum().backward()
torch.testing.assert_close(y, expected.relu(), rtol=1e-2, atol=0.1)
print("done")
"""


def test_with_a_team_of_threads(server: fresh.Server) -> None:
    (reported,) = server.run(fresh.Job(WITH_A_TEAM))
    assert reported.out.split() == ["done"]
