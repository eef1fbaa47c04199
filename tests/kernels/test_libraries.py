"""Handlers of XLA's FFI as kernels: from a library or from source, their layouts and errors, and programs on disk."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt
from tests import fresh
from torch_pjrt.kernels import sources

SOURCE = Path(__file__).with_name("handlers.cpp").read_text()
X = torch.tensor([-1.0, 0.5, 2.0])

pytestmark = [
    pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler"),
    pytest.mark.compiled,
]


@pytest.fixture(scope="module")
def library() -> Path:
    return sources.compiled(SOURCE, ["-O1"], "the tests' handlers")


@pytest.fixture
def kernels() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def handler(kernels: ExitStack, library: Path) -> Callable[..., Any]:
    def register(symbol: str, name: str, **options: Any) -> Any:
        kernel = torch_pjrt.register_kernel(name, library=library, symbol=f"test_{symbol}", **options)
        return kernels.enter_context(kernel)

    return register


@torch_pjrt.composite("handlers.one")
def one(x: torch.Tensor) -> torch.Tensor:
    return x * 4


@torch_pjrt.composite("handlers.kinds", flag=True, count=7, factor=1.5, sizes=[2, 3], weights=[2.0])
def kinds(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * 4, torch.zeros(2, dtype=torch.int64, device=x.device)


def test_a_handler_takes_the_place(handler: Any) -> None:
    kernel = handler("by_attributes", "aten.gelu.default")
    x = X.to("pjrt")
    with torch_pjrt.explain() as report:
        assert torch.equal(F.gelu(x).cpu(), X * 2)
    assert kernel.label.startswith("test_by_attributes of ")
    assert [c.done_by for run in report.graphs for c in run.composites] == [kernel.label]
    assert torch.equal(F.gelu(x, approximate="tanh").cpu(), X * 3)
    assert torch.equal(torch.compile(lambda x: F.gelu(x) + 1, backend="pjrt")(X), X * 2 + 1)


def test_attributes_of_all_kinds_and_two_results(handler: Any) -> None:
    handler("of_all_kinds", "handlers.kinds")
    y, numbers = kinds(X.to("pjrt"))
    assert torch.equal(y.cpu(), X * 3)
    assert numbers.tolist() == [7, 5]


def test_layouts(handler: Any) -> None:
    x = torch.zeros(2, 3, device="pjrt")
    rows = handler("places", "handlers.one")
    assert one(x).tolist() == [[0, 1, 2], [3, 4, 5]]
    rows.remove()
    handler("places", "handlers.one", operand_layouts=[[0, 1]], result_layouts=[[0, 1]])
    assert one(x + 0).tolist() == [[0, 2, 4], [1, 3, 5]]


def test_aliases(handler: Any) -> None:
    handler("is_in_place", "handlers.one", aliases={0: 0})
    x = X.to("pjrt")
    assert one(x * 2 + 1).tolist() == [1, 1, 1]
    assert x.tolist() == X.tolist()
    y = one(x)
    assert y.tolist() != [], "an operand that lives on is copied first"
    assert x.tolist() == X.tolist()


@pytest.mark.parametrize(("symbol", "said"), [("fails", "no luck today"), ("throws", "out of its hands")])
def test_what_a_handler_says_is_an_exception(symbol: str, said: str, handler: Any, library: Path) -> None:
    handler(symbol, "handlers.one")
    y = one(X.to("pjrt"))
    with pytest.raises(
        RuntimeError,
        match=rf"composite 'handlers.one' \(first recorded at .*test_libraries.py:\d+\), test_{symbol} of .*: .*{said}",
    ):
        y.cpu()
    torch._dynamo.reset()  # its compiled functions keep their kernel
    compiled = torch.compile(one, backend="pjrt")
    with pytest.raises(RuntimeError, match=said):
        compiled(X)


def test_source_is_compiled_for_the_call_and_kept(
    kernels: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_PJRT_CACHE", "1")
    monkeypatch.setenv("TORCH_PJRT_CACHE_DIR", str(tmp_path))
    texts: list[str] = []

    def text(call: Any) -> str:
        (size,) = call.operands[0].shape
        texts.append(
            """#include <xla/ffi/api/ffi.h>
            namespace ffi = xla::ffi;
            static ffi::Error run(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
              for (int i = 0; i < SIZE; ++i) y->typed_data()[i] = x.typed_data()[i] + SIZE;
              return ffi::Error::Success();
            }
            XLA_FFI_DEFINE_HANDLER_SYMBOL(plus, run,
                ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
            """.replace("SIZE", str(size))
        )
        return texts[-1]

    kernel = kernels.enter_context(
        torch_pjrt.register_kernel("handlers.one", source=text, symbol="plus", flags=["-O1"])
    )
    assert one(X.to("pjrt")).tolist() == [2, 3.5, 5]
    assert kernel.label.startswith("C++ 'plus' of test_source_is_compiled_for_the_call_and_kept.text (")
    (kept,) = (tmp_path / "kernels").glob("*.so")
    made = kept.stat().st_mtime_ns
    assert one(X.to("pjrt") + 1).tolist() == [3, 4.5, 6]
    assert kept.stat().st_mtime_ns == made
    monkeypatch.setattr(sources.shutil, "which", lambda _: None)
    assert one(X.to("pjrt") - 1).tolist() == [1, 2.5, 4], "what is on disk needs no compiler"


JOB = """
import sys, torch, torch_pjrt
@torch_pjrt.composite("handlers.one")
def one(x): return x * 4
if sys.argv[1] != "none":
    torch_pjrt.register_kernel("handlers.one", library=sys.argv[1], symbol="test_twice")
value = one(torch.tensor([1.0, 2.0], device="pjrt")).tolist()
counts = torch_pjrt.metrics()
import json
print(json.dumps([value, counts["graphs_compiled"], counts["graphs_loaded_from_disk"]]))
"""


def test_programs_on_disk(library: Path, tmp_path: Path, server: fresh.Server) -> None:
    """A program is loaded only in processes with the same kernels, after their handlers are registered."""
    other = tmp_path / "other.so"
    shutil.copy(library, other)
    with other.open("ab") as file:
        file.write(b"\\0")
    environment = {"TORCH_PJRT_CACHE_DIR": str(tmp_path / "cache"), "TORCH_PJRT_CACHE": "1"}
    said = [
        json.loads(server.run(fresh.Job(JOB, (argument,), environment))[0].out)
        for argument in (library, library, "none", other)
    ]
    assert said == [[[2, 4], 1, 0], [[2, 4], 0, 1], [[4, 8], 1, 0], [[2, 4], 1, 0]]


def test_a_library_that_changed_is_another(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    for factor in (5, 7):  # code that no other test has loaded
        text = SOURCE.replace("2 * x.typed_data", f"{factor} * x.typed_data")
        built = Path(shutil.copy(sources.compiled(text, ["-O1"], "changed"), tmp_path / "built.so"))
        built.replace(path)  # a new file, like a linker's
        with torch_pjrt.register_kernel("handlers.one", library=path, symbol="test_twice"):
            assert one(X.to("pjrt")).tolist() == (X * factor).tolist()


def test_a_library_that_was_written_over(tmp_path: Path) -> None:
    """The loader maps the file, so writes to it change running code: without a check the process would crash."""
    text = SOURCE.replace("2 * x.typed_data", "9 * x.typed_data")
    path = Path(shutil.copy(sources.compiled(text, ["-O1"], "changed"), tmp_path / "lib.so"))
    with torch_pjrt.register_kernel("handlers.one", library=path, symbol="test_twice"):
        assert one(X.to("pjrt")).tolist() == (X * 9).tolist()
    with path.open("ab") as file:  # after the mapped part
        file.write(b"\0")
    with pytest.raises(ValueError, match=r"lib\.so' was written over after it was loaded.*begin a new process"):
        torch_pjrt.register_kernel("handlers.one", library=path, symbol="test_twice")


def test_many_threads(handler: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    handler("twice", "handlers.one")

    def work(i: int) -> list[float]:
        return (one(X.to("pjrt") + i) + i).tolist()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(8))) == [((X + i) * 2 + i).tolist() for i in range(8)]


def test_a_fork_says_that_it_has_no_device(handler: Any) -> None:
    handler("twice", "handlers.one")
    assert one(X.to("pjrt")).tolist() == (X * 2).tolist()
    child = os.fork()
    if child == 0:
        try:
            one(X.to("pjrt")).tolist()
        except RuntimeError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_library_that_is_none(tmp_path: Path, library: Path) -> None:
    def register(path: Path, symbol: str = "test_twice") -> Any:
        return torch_pjrt.register_kernel("handlers.one", library=path, symbol=symbol)

    with pytest.raises(FileNotFoundError, match=r"register_kernel: there is no library '.*/missing.so'"):
        register(tmp_path / "missing.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(ValueError, match=r"'.*/text.so' can't be loaded: .*"):
        register(tmp_path / "text.so")
    with pytest.raises(
        ValueError, match=r"has no symbol 'test_thrice'; a handler is exported by XLA_FFI_DEFINE_HANDLER"
    ):
        register(library, "test_thrice")
    with pytest.raises(
        ValueError, match=r"'test_of_tomorrow' of '.*' was compiled for XLA's FFI 9.1; the headers here"
    ):
        register(library, "test_of_tomorrow")


def test_a_version_that_the_plugin_does_not_take(handler: Any) -> None:
    handler("of_next_year", "handlers.one")
    y = one(X.to("pjrt") + 10)
    with pytest.raises(
        RuntimeError, match=r"can't be registered: .*takes no handlers for that version .*FFI: 0.99 \(it\)"
    ):
        y.cpu()


def test_handlers_that_do_not_fit(handler: Any) -> None:
    kernel = handler("twice", "handlers.kinds")
    y, _ = kinds(X.to("pjrt"))
    with pytest.raises(RuntimeError, match=r"composite 'handlers.kinds' .*: .*[Ww]rong number of"):
        y.cpu()
    kernel.remove()
    handler("places", "handlers.one", operand_layouts=[[0, 1]])
    y = one(X.to("pjrt") + 20)
    with pytest.raises(ValueError, match=r"layout \[0, 1\] of operand 0 is no order of the dimensions of float32\[3\]"):
        y.cpu()


def test_source_that_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match=r"C\+\+ 'f' doesn't compile .*\n.*error"):
        torch_pjrt.register_kernel("handlers.one", source="int f( {", symbol="f")
    monkeypatch.setattr(sources.shutil, "which", lambda _: None)
    with pytest.raises(RuntimeError, match=r"needs a C\+\+ compiler, and there is none \(c\+\+, g\+\+, clang\+\+\)"):
        torch_pjrt.register_kernel("handlers.one", source="// another", symbol="f")
