"""Products by PyTorch's libraries: which implementation runs, and values, forward and backward."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt
from tests import fresh
from tests.kernels.library import HAS_AVX2, HAS_BF16, OF_MANY_ROWS
from tests.peak import status
from tests.threads import in_two_threads

pytestmark = [pytest.mark.compiled, pytest.mark.host_memory]

CALL = 'call = "torch_pjrt::matrix_product('
with_library = pytest.mark.skipif(not HAS_BF16, reason="oneDNN multiplies no bfloat16 here: products are XLA's")


def close(mine: torch.Tensor, expected: torch.Tensor) -> None:
    assert mine.dtype == expected.dtype
    tolerance = 2e-2 if expected.dtype in (torch.bfloat16, torch.float16) else 1e-4
    scale = float(expected.float().nan_to_num(0, 0, 0).abs().max()) if expected.numel() else 1.0
    torch.testing.assert_close(mine.cpu(), expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def drawn(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(sizes).to(dtype)


Products = dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]]


def products(dtype: torch.dtype) -> Products:
    a, b = drawn(96, 256, dtype=dtype), drawn(256, 384, dtype=dtype)
    turned = drawn(384, 256, dtype=dtype)
    batch = drawn(3, 96, 256, dtype=dtype), drawn(3, 256, 384, dtype=dtype)
    row, whole = drawn(384, dtype=dtype), drawn(96, 384, dtype=dtype)
    return {
        "mm": (torch.mm, (a, b)),
        "mm of transposed": (lambda a, b: torch.mm(a, b.t()), (a, turned)),
        "mm of both transposed": (lambda a, b: torch.mm(a.t(), b.t()), (a.t().contiguous(), turned)),
        "mm of views that lie transposed": (torch.mm, (a.t().contiguous().t(), turned.t())),
        "mm of an offset": (lambda a, b: torch.mm(a[1:], b[:, 3:]), (a, b)),
        "mm of every second row": (lambda a, b: torch.mm(a[::2], b[::2, ::3]), (a, torch.cat([b, b]))),
        "mm of a repeated row": (lambda a, b: torch.mm(a[:1].expand(96, -1), b), (a, b)),
        "addmm": (torch.addmm, (row, a, b)),
        "addmm, scaled": (lambda x, a, b: torch.addmm(x, a, b, beta=0.5, alpha=-2), (whole, a, b)),
        "addmm of a column": (torch.addmm, (whole[:, :1], a, b)),
        "addmm without what is added": (lambda x, a, b: torch.addmm(x, a, b, beta=0), (whole * torch.nan, a, b)),
        "bmm": (torch.bmm, batch),
        "bmm of transposed": (lambda a, b: torch.bmm(a, b.mT), (batch[0], batch[1].mT.contiguous())),
        "baddbmm": (lambda x, a, b: torch.baddbmm(x, a, b, beta=2, alpha=0.5), (row, *batch)),
        "linear": (F.linear, (a, turned)),
        "linear with a bias": (F.linear, (a, turned, row)),
        "linear of three dimensions": (F.linear, (a.reshape(4, 24, 256), turned, row)),
        "linear of one row": (F.linear, (drawn(4096, dtype=dtype), drawn(640, 4096, dtype=dtype))),
    }


@with_library
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", list(products(torch.float32)))
@pytest.mark.sampled(2)
def test_values(name: str, dtype: torch.dtype, programs: list[str]) -> None:
    function, operands = products(dtype)[name]
    leaves = [x.detach().requires_grad_() for x in operands]
    expected = function(*leaves)
    gradients = torch.autograd.grad(expected.float().square().sum(), leaves, allow_unused=True)
    given = [x.detach().to("pjrt").requires_grad_() for x in operands]
    mine = function(*given)
    close(mine.detach(), expected.detach())
    mine_of = torch.autograd.grad(mine.float().square().sum(), given, allow_unused=True)
    for x, y in zip(mine_of, gradients, strict=True):
        assert (x is None) == (y is None)
        if y is not None:
            close(x, y)
    if dtype == torch.bfloat16:
        assert CALL in "".join(programs)


ROWS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "straight": torch.mm,
    "transposed": lambda a, b: torch.mm(a, b.t().contiguous().t()),
    "of a batch": lambda a, b: torch.bmm(a.expand(2, -1, -1), torch.stack([b, -b])),
    "of a transposed batch": lambda a, b: torch.bmm(a.expand(2, -1, -1), torch.stack([b, -b]).mT.contiguous().mT),
    "with a bias": lambda a, b: torch.addmm(a[0, :1], a, b, beta=0.5, alpha=-2),
}


with_rows = pytest.mark.skipif(not HAS_AVX2, reason="the skinny GEMM's kernel is made of AVX2 and AVX-512")


@with_rows
@pytest.mark.parametrize("multiply", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize(("depth", "columns"), [(768, 129), (130, 2049), (17, 4100), (5000, 15)])
@pytest.mark.parametrize(
    ("dtype", "rows"), [(torch.bfloat16, 1), *((dtype, n) for dtype in OF_MANY_ROWS for n in (2, 3, 8, 13))], ids=str
)
@pytest.mark.sampled(3)
def test_skinny_gemm(
    multiply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], depth: int, columns: int, dtype: torch.dtype,
    rows: int, programs: list[str],
) -> None:  # fmt: skip
    a, b = drawn(rows, depth, dtype=dtype), drawn(depth, columns, dtype=dtype)
    b[0, 0], b[1, 1], b[2, 2], a[-1, 3] = torch.nan, torch.inf, 0, -0.0
    for x in (a, a * 1e-6, a.clone().fill_(torch.inf)):
        mine = multiply(x.to("pjrt"), b.to("pjrt")).cpu()
        assert CALL in programs[-1]
        assert "by=skinny" in programs[-1]
        exact = multiply(x.double(), b.double())
        # Allows one rounding, and the differences of float32 sums.
        noise = multiply(x.double().abs(), b.double().abs()).abs() * 2**-20 if x.isfinite().all() else exact
        noise += torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        assert torch.equal(mine.isfinite(), exact.isfinite())
        torch.testing.assert_close(mine[~mine.isfinite()], exact[~mine.isfinite()].to(dtype), equal_nan=True)
        off = (mine.double() - exact).abs()[mine.isfinite()]
        assert (off <= (exact.abs() * torch.finfo(dtype).eps + noise)[mine.isfinite()]).all()


@with_rows
@pytest.mark.parametrize("dtype", OF_MANY_ROWS, ids=str)
def test_up_to_how_many_rows_the_kernel_takes(dtype: torch.dtype, programs: list[str]) -> None:
    """XLA converts the matrix, which takes fifteen to fifty times as long as PyTorch for two rows."""
    for turned, most in ((True, 1024), (False, 16)):
        for rows in (1, most, most + 1):
            b = drawn(129, 512, dtype=dtype).to("pjrt").t() if turned else drawn(512, 129, dtype=dtype).to("pjrt")
            torch.mm(drawn(rows, 512, dtype=dtype).to("pjrt"), b).cpu()
            assert ("by=skinny" in programs[-1]) == (rows <= most)


# For a machine with only AVX2, or one that pretends to be.
ON_AVX2 = """
import torch, torch_pjrt
print(torch.backends.cpu.get_cpu_capability())
torch.manual_seed(0)
texts, off = [], []
torch_pjrt._C.set_program_listener(lambda _, text: texts.append(text))
for dtype in (torch.bfloat16, torch.float16):
    for rows, depth, columns in ((1, 300, 257), (2, 130, 2049), (3, 17, 4100), (4, 768, 64), (11, 513, 130)):
        for turned in (False, True):
            a, b = torch.randn(rows, depth).to(dtype), torch.randn(depth, columns).to(dtype)
            b = b.t().contiguous().t() if turned else b
            mine = torch.mm(a.to("pjrt"), b.to("pjrt")).cpu().double()
            assert "by=skinny" in texts[-1], texts[-1]
            exact, eps = a.double() @ b.double(), torch.finfo(dtype).eps
            noise = (a.double().abs() @ b.double().abs()) * 2**-20
            off.append(bool(((mine - exact).abs() > exact.abs() * eps + noise).any()))
print(any(off), len(off))
"""


@with_rows
def test_skinny_gemm_with_avx2(server: fresh.Server) -> None:
    environment = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "TORCH_PJRT_COMPILE": "first"}
    (said,) = server.run(fresh.Job(ON_AVX2, (), environment))
    assert said.out.split() == ["AVX2", "False", "20"], said


@with_library
def test_dispatch(programs: list[str]) -> None:
    def asked(function: Callable[..., torch.Tensor], *operands: torch.Tensor) -> bool:
        function(*[x.to("pjrt") for x in operands]).cpu()
        return CALL in programs[-1]

    wide = drawn(64, 512), drawn(512, 512)
    assert asked(torch.mm, *wide)
    assert asked(F.linear, *wide)
    assert asked(F.linear, drawn(2, 512), wide[1])
    assert not asked(torch.mm, drawn(2, 512), wide[1])  # small
    assert asked(torch.mm, drawn(1, 512), wide[1])  # a single row
    assert not asked(torch.mm, drawn(1, 64), drawn(64, 64))
    assert not asked(F.linear, drawn(16, 64), drawn(64, 64))
    floats = [x.float() for x in wide]
    assert asked(F.linear, *floats)
    assert not asked(torch.mm, *floats)
    assert not asked(F.linear, floats[0][:1], floats[1])
    assert not asked(F.linear, *[x.double() for x in wide])
    assert not asked(torch.mm, *[x.to(torch.complex64) for x in wide])


@with_library
@pytest.mark.parametrize("transposed", [False, True])
def test_integers(transposed: bool, programs: list[str]) -> None:
    a, b = (torch.randint(-128, 128, sizes, dtype=torch.int8) for sizes in ((48, 256), (256, 512)))
    b[:, 0], a[0] = -128, -128
    given = b.t().contiguous().to("pjrt").t() if transposed else b.to("pjrt")
    assert torch.equal(torch._int_mm(a.to("pjrt"), given).cpu(), a.int() @ b.int())
    assert CALL in programs[-1]


def test_rounded_once() -> None:
    """A bias is added before the rounding, as in PyTorch: 256 + 1/2 rounds to 256, and then + 1/2 does so again."""
    a, b = torch.full((64, 512), 0.5).bfloat16(), torch.ones(512, 512).bfloat16()  # their product is 256
    a[:, 0] += 0.75
    bias = torch.full((512,), 0.5).bfloat16()
    mine = F.linear(a.to("pjrt"), b.to("pjrt"), bias.to("pjrt")).cpu()
    assert (mine == torch.tensor(257.25).bfloat16()).all(), mine[0, 0]


def test_special_values() -> None:
    a, b = drawn(64, 512), drawn(512, 512)
    a[3, 5], a[7, 0], b[9, 11] = torch.nan, torch.inf, -torch.inf
    close(torch.mm(a.to("pjrt"), b.to("pjrt")), torch.mm(a, b))
    close(F.linear(a.to("pjrt"), b.to("pjrt")), F.linear(a, b))


@pytest.mark.parametrize("sizes", [(0, 512, 512), (512, 0, 512), (512, 512, 0)])
def test_no_elements(sizes: tuple[int, int, int]) -> None:
    rows, depth, columns = sizes
    a, b, bias = drawn(rows, depth), drawn(columns, depth), drawn(columns)
    close(F.linear(a.to("pjrt"), b.to("pjrt"), bias.to("pjrt")), F.linear(a, b, bias))


def test_a_weight_that_is_changed_in_place() -> None:
    x, w = drawn(64, 512), drawn(512, 512)
    compiled = torch.compile(F.linear, backend="pjrt")
    for _ in range(3):
        close(compiled(x, w), F.linear(x, w))
        w.mul_(-0.5)
    w.data[0] = 1  # without a new version
    close(compiled(x, w), F.linear(x, w))


def test_of_cpu_tensors_by_compile_step() -> None:
    layer = torch.nn.Linear(512, 512).bfloat16()
    x = drawn(64, 512)
    weight = layer.weight.detach().clone()

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = layer(x).float().square().mean()
        loss.backward()
        with torch.no_grad():
            layer.weight -= 0.1 * layer.weight.grad
            layer.weight.grad = None
            layer.bias.grad = None
        return loss.detach()

    expected = [step(x) for _ in range(3)]
    with torch.no_grad():
        layer.weight.copy_(weight)
    layer.to("pjrt")
    compiled = torch_pjrt.compile_step(step)
    for loss in expected:
        torch.testing.assert_close(compiled(x.to("pjrt")).cpu(), loss, rtol=2e-2, atol=1e-3)


def test_two_threads() -> None:
    x, w = drawn(128, 512), drawn(1024, 512)
    expected = F.linear(x, w)
    compiled = torch.compile(F.linear, backend="pjrt")
    compiled(x, w)

    def work() -> None:
        with torch.no_grad():
            for _ in range(50):
                close(compiled(x, w), expected)

    in_two_threads(work)


def test_many_calls_take_no_memory() -> None:
    x, w = drawn(8, 512), drawn(512, 512)
    compiled = torch.compile(F.linear, backend="pjrt")

    with torch.no_grad():
        for _ in range(1000):
            compiled(x, w)
        before = status("VmRSS")
        for _ in range(10_000):
            compiled(x, w)
    assert status("VmRSS") - before < 4 << 20


# Reports whether oneDNN runs a product.
OTHERWISE = """
import torch, torch_pjrt
from torch_pjrt import _C
texts = []
_C.set_program_listener(lambda _, text: texts.append(text))
x, w = torch.randn(64, 512).bfloat16(), torch.randn(512, 512).bfloat16()
y = torch.compile(torch.nn.functional.linear, backend="pjrt")(x, w)
torch.testing.assert_close(y, torch.nn.functional.linear(x, w), rtol=2e-2, atol=0.5)
print(any("by=aten" in text for text in texts))
"""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float16], ids=str)
def test_int8_weights_with_scales(dtype: torch.dtype) -> None:
    """PyTorch's kernel runs ``_weight_int8pack_mm``."""
    x, w, scales = drawn(5, 1024, dtype=dtype), torch.randint(-128, 128, (768, 1024), dtype=torch.int8), torch.rand(768)
    x[0, 0], x[1, 0], x[2, 0] = torch.nan, torch.inf, -torch.inf
    torch._dynamo.reset()  # otherwise its recompile limit would make the CPU run the op
    product = torch.compile(torch._weight_int8pack_mm, backend="pjrt", dynamic=False)
    with torch_pjrt.explain() as report:
        mine = product(x, w, scales.to(dtype))
    close(mine, torch._weight_int8pack_mm(x, w, scales.to(dtype)))
    assert [(call.op, call.kernel) for run in report.graphs for call in run.kernels] == [
        ("aten::_weight_int8pack_mm", "PyTorch's kernel")
    ]


def test_rows_that_the_kernel_of_int8_weights_reads_beyond() -> None:
    x, w, scales = drawn(3, 1000), torch.randint(-128, 128, (17, 1000), dtype=torch.int8), torch.rand(17).bfloat16()
    torch._dynamo.reset()  # otherwise its recompile limit would make the CPU run the op
    product = torch.compile(torch._weight_int8pack_mm, backend="pjrt", dynamic=False)
    close(product(x, w, scales), (x.float() @ w.t().float() * scales.float()).bfloat16())


EXTREMES = """
import torch, torch_pjrt
a, b = torch.full((17, 1024), -128, dtype=torch.int8), torch.full((1024, 768), -128, dtype=torch.int8)
exact = (a.long() @ b.long()).int()
print(torch.equal(torch.compile(torch._int_mm, backend="pjrt")(a, b), exact))
"""


@pytest.mark.parametrize("isa", ["ALL", "AVX512_CORE", "AVX2"])
def test_products_of_int8_are_exact(server: fresh.Server, isa: str) -> None:
    """Without VNNI oneDNN saturates sums of two products."""
    (reported,) = server.run(fresh.Job(EXTREMES, environment={"ONEDNN_MAX_CPU_ISA": isa}))
    assert reported.out.split() == ["True"]


@with_library
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, True),
        ({"TORCH_PJRT_LIBRARY_KERNELS": "0"}, False),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, False),  # a machine with fewer instructions
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}, True),
        ({"OMP_NUM_THREADS": "1"}, True),
    ],
    ids=str,
)
def test_other_processes(server: fresh.Server, environment: dict[str, str], expected: bool) -> None:
    (reported,) = server.run(fresh.Job(OTHERWISE, environment=environment))
    assert reported.out.split() == [str(expected)]


EVERY_SAMPLE = """
import os, torch, torch_pjrt
from torch.testing._internal.common_methods_invocations import op_db
from torch_pjrt import _C
texts = []
_C.set_program_listener(lambda _, text: texts.append(text))
names = {"mm", "addmm", "bmm", "baddbmm", "matmul", "nn.functional.linear", "einsum", "__rmatmul__"}
for entry in op_db:
    if entry.name not in names:
        continue
    for dtype in (torch.bfloat16, torch.float32, torch.float16):
        if dtype not in entry.dtypes: continue
        for sample in entry.sample_inputs("cpu", dtype):
            expected = entry(sample.input, *sample.args, **sample.kwargs)
            given = sample.transform(lambda x: x.to("pjrt") if isinstance(x, torch.Tensor) else x)
            mine = entry(given.input, *given.args, **given.kwargs)
            tolerance = 1e-4 if dtype == torch.float32 else 3e-2
            torch.testing.assert_close(mine.cpu(), expected, rtol=tolerance, atol=tolerance * 10)
print(sum("torch_pjrt::matrix_product(" in text for text in texts) > 20)
"""


@with_library
def test_opinfo_samples_by_the_library(server: fresh.Server) -> None:
    """The samples are small, so XLA runs them by default."""
    (reported,) = server.run(fresh.Job(EVERY_SAMPLE, environment={"TORCH_PJRT_LIBRARY_KERNELS": "all"}))
    assert reported.out.split() == ["True"]


THREADS = """
import os, torch, torch_pjrt
torch.set_num_threads(2)
x, w = torch.randn(256, 1024).bfloat16(), torch.randn(1024, 1024).bfloat16()
compiled = torch.compile(torch.nn.functional.linear, backend="pjrt")
with torch.no_grad():
    compiled(x, w)
    for _ in range(20): compiled(x, w)
    before = len(os.listdir("/proc/self/task"))
    for _ in range(300): compiled(x, w)
print(len(os.listdir("/proc/self/task")) - before)
"""


def test_no_thread_of_xlas_has_a_team_of_its_own(server: fresh.Server) -> None:
    """All threads of XLA share one team: the thread that calls the kernel differs from call to call."""
    (reported,) = server.run(fresh.Job(THREADS))
    assert reported.out.split() == ["0"]


WRONG = """
module {
  func.func @main(%a: tensor<2x3xf32>, %b: tensor<4x5xf32>) -> tensor<2x5xf32> {
    %0 = stablehlo.custom_call @torch_pjrt.aten(%a, %b) {api_version = 4 : i32,
      backend_config = {call = "of nobody"}} : (tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
    return %0 : tensor<2x5xf32>
  }
}
"""


@torch_pjrt.composite("my.wrong_product")
def wrong_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b.flatten()[:15].view(3, 5)


def test_what_fails_says_why() -> None:
    """A kernel fails: the run raises its message, and the next run is correct."""
    a, b = torch.ones(2, 3).to("pjrt"), torch.ones(4, 5).to("pjrt")
    kernel = torch_pjrt.register_kernel("my.wrong_product", stablehlo=WRONG)
    with kernel, pytest.raises(RuntimeError, match=r"the kernel 'torch_pjrt.aten': .*'of nobody'\n") as raised:
        wrong_product(a, b).cpu()
    assert "frame #" not in str(raised.value)
    close(wrong_product(a, b), torch.full((2, 5), 3.0))


@pytest.mark.parametrize("sizes", [(64, 16, 64, 16), (32, 32, 32, 32), (33, 17, 64, 30)], ids=str)
def test_batches_of_small_transposed_products(sizes: tuple[int, int, int, int]) -> None:
    """On AVX2 without AVX-512 these are ATen's."""
    batch, rows, depth, columns = sizes
    torch.manual_seed(0)
    a, b = torch.randn(batch, rows, depth), torch.randn(batch, columns, depth)
    a[0, 0, 0], b[1, 1, 1] = float("inf"), float("nan")
    turned = a.transpose(1, 2).contiguous()
    for x, y in ((a, b), (turned.transpose(1, 2), b)):
        result = torch.bmm(x.to("pjrt"), y.to("pjrt").transpose(1, 2)).cpu()
        torch.testing.assert_close(result, torch.bmm(x, y.transpose(1, 2)), rtol=1e-4, atol=1e-4, equal_nan=True)
