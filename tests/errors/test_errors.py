"""Errors say what went wrong, where, and what to do, and the device keeps working after them."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import torch_pjrt
from tests import fresh
from tests.plugin_library import plugin_library

DEVICE = "pjrt"


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a Python program in a new process, without a server."""
    env = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=env, capture_output=True, text=True, timeout=120
    )


def error_of(server: fresh.Server | None, program: str, **environment: str) -> str:
    """Returns the error output of a program that fails, run by the server, or in a new process if there is none."""
    result = server.end(program, **environment) if server else run(program, **environment)
    assert result.returncode == 1, result.stderr
    return result.stderr


def still_works() -> None:
    assert (torch.ones(3, device=DEVICE) + 1).tolist() == [2, 2, 2]


# --- plugins ----------------------------------------------------------------------------------------------------------

ONES = "import torch; print(torch.ones(3, device='pjrt'))"


def test_no_plugin_of_that_name(server: fresh.Server) -> None:
    message = error_of(server, ONES, TORCH_PJRT_PLUGIN="missing")
    assert "TORCH_PJRT_PLUGIN=missing: no PJRT plugin is named 'missing'; installed: 'xla_cpu_pjrt'" in message
    assert "pip install xla-cpu-pjrt" in message


def test_no_plugin_at_all(server: fresh.Server) -> None:
    program = """
    import torch, torch_pjrt.plugins as plugins
    plugins._announced = lambda: iter(())
    assert not torch.pjrt.is_available() and torch.pjrt.device_count() == 0
    try:
        torch.ones(3, device="pjrt").cpu()
    except RuntimeError as error:
        print(error)
    """
    result = server.end(program, TORCH_PJRT_PLUGIN="")
    assert result.returncode == 0, result.stderr
    assert (
        "no PJRT plugin was found. Install one (`pip install xla-cpu-pjrt`), or set TORCH_PJRT_PLUGIN" in result.stdout
    )


def test_no_such_path(server: fresh.Server) -> None:
    message = error_of(server, ONES, TORCH_PJRT_PLUGIN="/nowhere/plugin.so")
    assert "there is no PJRT plugin at '/nowhere/plugin.so': no such file. Install one" in message


def compiled(folder: Path, source: str) -> Path:
    (folder / "plugin.c").write_text(source)
    return plugin_library(folder / "plugin.c", folder / "plugin.so")


def test_a_path_that_is_no_plugin(server: fresh.Server, tmp_path: Path) -> None:
    library = compiled(tmp_path, "int nothing;")
    message = error_of(server, ONES, TORCH_PJRT_PLUGIN=str(library))
    assert f"'{library}' is not a PJRT plugin" in message
    assert "GetPjrtApi" in message
    text = tmp_path / "text.so"
    text.write_text("text")
    assert f"cannot load the PJRT plugin '{text}'" in error_of(server, ONES, TORCH_PJRT_PLUGIN=str(text))


def test_a_plugin_that_is_too_old(server: fresh.Server, tmp_path: Path) -> None:
    library = compiled(
        tmp_path,
        """
        struct Table { unsigned long size; void* extensions; unsigned long version_size; void* version_extensions;
                       int major, minor; void* functions[300]; };
        static struct Table table = {200, 0, 24, 0, 0, 3};
        const struct Table* GetPjrtApi(void) { return &table; }
        """,
    )
    message = error_of(server, ONES, TORCH_PJRT_PLUGIN=str(library))
    assert f"'{library}' is too old: it has API version 0.3" in message
    assert "pip install -U xla-cpu-pjrt" in message
    again = f"""
    import torch, torch_pjrt
    try:
        torch_pjrt.init({str(library)!r})
    except RuntimeError as error:
        assert "is too old" in str(error), error
    torch_pjrt.init("xla_cpu_pjrt")
    assert torch.ones(3, device="pjrt").sum().item() == 3
    """
    result = server.end(again)
    assert result.returncode == 0, result.stderr


def test_a_second_plugin_in_one_process(tmp_path: Path) -> None:
    still_works()
    library = compiled(tmp_path, "int nothing;")
    with pytest.raises(
        RuntimeError, match="is running already, and a process has one; choose the plugin before the first use"
    ):
        torch_pjrt.init(str(library))
    with pytest.raises(torch_pjrt.plugins.PluginNotFoundError, match="no PJRT plugin is named 'nonsense'"):
        torch_pjrt.init("nonsense")
    torch_pjrt.init()
    still_works()


# --- devices ----------------------------------------------------------------------------------------------------------


def test_unknown_device_index() -> None:
    message = r"pjrt: invalid device ordinal 9: the plugin has 1 device; use pjrt:0$"
    for use in (
        lambda: torch.ones(1, device="pjrt:9"),
        lambda: torch.ones(1).to("pjrt:9"),
        lambda: torch.pjrt.set_device(9),
        lambda: torch.empty(1, device=torch.device("pjrt", 9)),
        lambda: torch.nn.Linear(1, 1, device="pjrt:9"),
        lambda: torch.pjrt.device(9).__enter__(),
    ):
        with pytest.raises(RuntimeError, match=message):
            use()
    with pytest.raises(ValueError, match="expected a pjrt device, got cpu"):
        torch.pjrt.set_device("cpu")
    assert torch.pjrt.current_device() == 0
    still_works()


def test_tensors_of_two_devices() -> None:
    x, y = torch.ones(3, device=DEVICE), torch.ones(3)
    message = r"Expected all tensors to be on the same device, but found at least two devices, pjrt:0 and cpu!"
    uses: list[Callable[[], object]] = [
        lambda: x + y,
        lambda: y + x,
        lambda: x.add_(y),
        lambda: torch.mul(x, x, out=torch.empty(3)),
        lambda: torch.sum(x, 0, out=torch.empty(())),  # a number may be read, not written
        lambda: torch.tensor(1.0).add_(x.sum()),
        lambda: torch.cat([x, y]),
        lambda: torch.where(x > 0, x, y),
        lambda: torch.nn.functional.linear(x, torch.ones(2, 3)),
        lambda: torch._foreach_add([x], [y]),
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match=message):
            use()
    with pytest.raises(
        RuntimeError, match=r"checking arguments of aten::add.Tensor; move one with tensor.to\(device\)"
    ):
        x + y
    with pytest.raises(RuntimeError, match=r"indices should be either on cpu or .* the indexed tensor \(cpu\)"):
        y[torch.tensor([0, 1], device=DEVICE)]
    assert (x + torch.tensor(2.0)).tolist() == [3, 3, 3]  # a number, as everywhere in torch
    assert x[torch.tensor([0, 1])].tolist() == [1, 1]
    assert x.tolist() == [1, 1, 1]


def test_meta_tensors() -> None:
    with pytest.raises(RuntimeError, match="meta"):
        torch.ones(2, device=DEVICE) + torch.empty(2, device="meta")


# --- the user's own mistakes ------------------------------------------------------------------------------------------


def mistakes(device: str) -> list[Callable[[], object]]:
    x = torch.ones(3, device=device)
    m = torch.ones(2, 3, device=device)
    i = torch.ones(3, dtype=torch.int64, device=device)
    return [
        lambda: x + torch.ones(4, device=device),
        lambda: m @ m,
        lambda: x.view(2, 2),
        lambda: i.add_(1.5),
        lambda: torch.cat([m, torch.ones(3, 2, device=device)]),
        lambda: m.sum(5),
        lambda: torch.add(x, 1.5, out=i),
        lambda: x.add_(m),
        lambda: torch.nn.functional.conv2d(m, m),
        lambda: torch.nn.functional.embedding(x, m),
        lambda: m.reshape(7),
        lambda: x.expand(2, 4),
        lambda: x[5],
        lambda: m.transpose(0, 3),
        lambda: torch.stack([x, m]),
        lambda: x.masked_fill_(i, 1),
        lambda: torch.linalg.cholesky(m),
    ]


@pytest.mark.parametrize("which", range(17))
def test_mistakes_are_raised_at_once_with_the_cpus_words(which: int) -> None:
    use, reference = mistakes(DEVICE)[which], mistakes("cpu")[which]
    with pytest.raises((RuntimeError, IndexError)) as expected:
        reference()
    with pytest.raises(type(expected.value)) as actual:
        use()
    said, wanted = str(actual.value).split("\n")[0], str(expected.value).split("\n")[0]
    assert said == wanted
    where = traceback.extract_tb(actual.value.__traceback__)
    assert any(frame.filename == __file__ and frame.name == "<lambda>" for frame in where)
    still_works()


@pytest.mark.parametrize("dtype", [torch.complex32, torch.float4_e2m1fn_x2, torch.bits8])
def test_unsupported_dtypes(dtype: torch.dtype) -> None:
    with pytest.raises(
        NotImplementedError,
        match=r"pjrt: dtype .* has no counterpart in StableHLO; use a float, integer, bool or complex",
    ):
        torch.empty(3, dtype=dtype, device=DEVICE)
    still_works()


def test_unsupported_dtype_of_a_copy() -> None:
    with pytest.raises(NotImplementedError, match="pjrt: dtype ComplexHalf has no counterpart in StableHLO"):
        torch.empty(3, dtype=torch.complex32).to(DEVICE)
    with pytest.raises(NotImplementedError, match="pjrt: dtype ComplexHalf has no counterpart in StableHLO"):
        torch.ones(3, device=DEVICE).to(torch.complex32)


def test_nested_tensors_are_refused_and_nothing_is_aborted() -> None:
    for requires_grad in (False, True):
        nested = torch.nested.nested_tensor(
            [torch.ones(2, 3), torch.ones(1, 3)], device=DEVICE, requires_grad=requires_grad
        )
        with pytest.raises(
            NotImplementedError, match=r"\[aten::mul\] .* strided and sparse tensors .* pad a nested one"
        ):
            nested * 2
    rows = [torch.ones(n, 3, device=DEVICE, requires_grad=True) for n in (1, 2)]
    with pytest.raises(NotImplementedError, match="pad a nested one"):
        torch.nested.as_nested_tensor(rows).sum()
    assert torch.nested.as_nested_tensor(rows, layout=torch.jagged).sum().item() == 9


@pytest.mark.parametrize(
    "layer",
    [
        lambda: torch.nn.BatchNorm1d(4, dtype=torch.float64),
        lambda: torch.nn.LayerNorm(3, dtype=torch.bfloat16),
        lambda: torch.nn.GroupNorm(2, 4, dtype=torch.float64),
    ],
    ids=["batch", "layer", "group"],
)
def test_normalization_with_parameters_of_another_dtype(layer: Callable[[], torch.nn.Module]) -> None:
    x = torch.ones(2, 4, 3)
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match="mixed dtype"):
            layer().to(device)(x.to(device))
    assert layer().float().to(DEVICE)(x.bfloat16().to(DEVICE)).dtype == torch.bfloat16  # as everywhere


@pytest.mark.filterwarnings("ignore")
def test_unsupported_layouts() -> None:
    eye = torch.eye(3)
    only_these = "the pjrt device holds strided and sparse tensors of .* only; pad a nested one"
    uses: list[Callable[[], object]] = [
        lambda: torch.nested.nested_tensor([eye, eye], device=DEVICE).sin(),
    ]
    for use in uses:
        with pytest.raises(NotImplementedError, match=only_these):
            use()
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.empty(3, device=DEVICE, pin_memory=True)
    still_works()


def test_strict_mode() -> None:
    x = torch.ones(3, 2, device=DEVICE)
    line = 0
    with torch_pjrt.strict_mode():  # noqa: SIM117
        with pytest.raises(RuntimeError) as caught:  # noqa: PT012
            line = sys._getframe().f_lineno + 1
            torch.linalg.lstsq(x, x, driver="gelss")
    assert f"[aten::linalg_lstsq] would run on the host at {__file__}:{line}" in str(caught.value)
    assert "TORCH_PJRT_STRICT=1" in str(caught.value)
    rank = torch.linalg.lstsq(x, x, driver="gelss").rank  # outside of it, it runs
    assert rank.item() == 1


def test_strict_mode_of_a_process_and_the_one_warning(server: fresh.Server) -> None:
    program = """
    import torch
    x = torch.eye(2, device="pjrt")
    for _ in range(3): torch.linalg.eigvals(x)
    """
    strict = error_of(server, program, TORCH_PJRT_STRICT="1", TORCH_PJRT_LIBRARY_KERNELS="0")
    assert "[aten::_linalg_eigvals] would run on the host at <string>:4" in strict
    warned = server.end(program, TORCH_PJRT_LIBRARY_KERNELS="0")
    assert warned.returncode == 0
    assert warned.stderr.count("[aten::_linalg_eigvals] runs on the host at <string>:4: XLA has no op for this") == 1


# --- what XLA refuses -------------------------------------------------------------------------------------------------


@pytest.mark.each_way
def test_more_memory_than_there_is(tier: str) -> None:
    p = torch.ones(3, device=DEVICE)
    torch.pjrt.synchronize()
    p.add_(1)  # in place: the program may write over p's memory
    tall = torch.ones(1 << 22, 1, device=DEVICE) * p[0]
    line = sys._getframe().f_lineno + 1
    huge = tall @ torch.ones(1, 1 << 22, device=DEVICE)
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError) as caught:
            torch_pjrt.sync(huge)
        message = str(caught.value)
        assert message.startswith("pjrt out of memory. Tried to allocate 64.00 TiB.")
        assert (
            f"The program's largest result, of 64.00 TiB, is that of [aten::mm] (first recorded at {__file__}:{line})"
            in message
        )
        assert "Nothing was changed: tensors keep their pending values" in message
        still_works()
    if tier == "first":  # an interpreted interval like earlier ones may have run while it was recorded
        assert torch_pjrt._C.is_pending(p)
    del huge, tall, caught  # the traceback has a reference too
    assert p.tolist() == [2, 2, 2]


def test_temporary_memory_that_there_is_not() -> None:
    p = torch.ones(3, device=DEVICE)
    torch_pjrt.sync(p)
    line = sys._getframe().f_lineno + 1
    huge = torch.ones(1 << 22, 3, device=DEVICE) @ torch.ones(3, 1 << 22, device=DEVICE)
    p.add_((huge @ torch.ones(1 << 22, device=DEVICE))[0])
    del huge
    with pytest.raises(RuntimeError) as caught:
        p.cpu()
    still_works()
    assert f"[aten::mm] (first recorded at {__file__}:{line})" in str(caught.value)


@pytest.mark.compiled
def test_calls_are_tried_alone_in_the_form_that_the_program_has(server: fresh.Server, tmp_path: Path) -> None:
    """Otherwise a call that XLA refuses in its plain form only would be blamed for another."""
    error = error_of(
        server,
        'import torch; torch.ones(3).to("pjrt").log1p().cpu()',
        TORCH_PJRT_XLA_OPTIONS="xla_no_such_option=true",
        XLA_FLAGS=f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text",
    )
    assert "XLA refuses a graph of 1 ops, the last one [aten::log1p]" in error
    assert "Each op compiles alone" in error
    (tried,) = tmp_path.glob("*.alone.before_optimizations.txt")
    assert "log-plus-one" not in tried.read_text(), "which is a call of libm to XLA:CPU"
    assert " log(" in tried.read_text()


# --- processes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ending",
    ["", "sys.exit(0)", "x.cpu(); y = x @ x", "import atexit; atexit.register(lambda: print((x + 1)[0, 0].item()))",
     "import threading; threading.Thread(target=lambda: [(x + i).sum().item() for i in range(20)]).start()",
     "z = [x]; z.append(z)"],
)  # fmt: skip
@pytest.mark.sampled(2)
def test_interpreter_exit_with_work_in_flight(ending: str) -> None:
    program = f"""
import sys, torch, torch_pjrt
x = torch.rand(200, 200, device="pjrt")
for _ in range(10):
    x = x @ x / 300
torch_pjrt.sync(x)
w = x.sin().requires_grad_()
y = (w @ w).sum()
y.backward()
{ending}
"""
    result = run(program)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "Error" not in result.stderr
    assert "terminate called" not in result.stderr


def test_an_exception_ends_the_process_as_usual() -> None:
    message = error_of(None, "import torch\nx = torch.ones(3, device='pjrt') + 1\nraise SystemExit('bye')")
    assert message.endswith("bye\n")


def test_import_torch_is_enough_and_starts_nothing() -> None:
    program = """
    import sys, torch
    assert "torch_pjrt" in sys.modules
    assert torch.device("pjrt").type == "pjrt"
    x = torch.ones(3, device="pjrt") + 1
    model = torch.nn.Linear(3, 2, device="pjrt")
    model(x)
    import torch_pjrt
    assert not torch_pjrt._C.is_initialized()
    assert torch_pjrt.metrics()["executions"] == 0
    torch.manual_seed(0)
    assert not torch.pjrt.is_initialized()
    x.cpu()
    assert torch.pjrt.is_initialized()
    """
    result = run(program)
    assert result.returncode == 0, result.stderr
    maps = "import torch; print('pjrt.so' in open('/proc/self/maps').read().replace('_C', ''))"
    assert run(maps).stdout.strip() == "False"


@pytest.mark.parametrize(
    "first",
    ["numpy", "torch_pjrt", "torch_pjrt.plugins", "sklearn", "torch._dynamo", "torch.utils.data", "transformers"],
)
@pytest.mark.sampled(2)
def test_import_order(first: str) -> None:
    if importlib.util.find_spec(first.split(".")[0]) is None:
        pytest.skip(f"{first} is not installed")
    program = f"import {first}\nimport torch\nassert torch.ones(3, device='pjrt').sum().item() == 3"
    result = run(program)
    assert result.returncode == 0, result.stderr


def test_autoload_can_be_switched_off() -> None:
    message = error_of(None, ONES, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "pjrt" in message
    result = run(f"import torch_pjrt\n{ONES}", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.returncode == 0, result.stderr


def test_a_client_does_not_survive_fork(server: fresh.Server) -> None:
    program = """
    import os, torch
    from torch.utils.data import DataLoader
    data = [torch.full((2,), float(i)) for i in range(8)]
    torch.ones(3, device="pjrt").cpu()
    total = sum(batch.to("pjrt").sum().item() for batch in DataLoader(data, batch_size=2, num_workers=2))
    assert total == 56, total
    """
    result = server.end(program)
    assert result.returncode == 0, result.stderr[-3000:]


def test_a_product_that_does_not_fit_the_dtype() -> None:
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Int"):
        torch.ones(3, dtype=torch.int32, device=DEVICE).mul_(1.5)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x.uniform_(-3.4e38, 3.4e38),
        lambda x: x.uniform_(0, 1e39),
        lambda x: x.half().uniform_(0, 1e5),
        lambda x: x.bernoulli_(2),
        lambda x: x.bernoulli_(-0.5),
    ],
)
def test_random_numbers_out_of_range(draw: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """The error has the CPU's words and the user's line."""
    with pytest.raises(RuntimeError) as expected:
        draw(torch.zeros(3))
    with pytest.raises(RuntimeError, match=re.escape(str(expected.value).split("\n")[0])):
        draw(torch.zeros(3, device="pjrt"))
