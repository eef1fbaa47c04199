"""Handlers of XLA's typed FFI in shared libraries: ``library=, symbol=``."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch_pjrt import _C
from torch_pjrt.kernels.call import Call, Form

Layout = Sequence[int]
Orders = Sequence[Layout | None] | Callable[[Call], Sequence[Layout | None]] | None
_lock = threading.Lock()
_loaded: dict[str, ctypes.CDLL] = {}  # by the hash of the file
_files: dict[tuple[int, int], Path] = {}  # from device and inode of a file to its name when it was loaded
by_target: dict[str, tuple[Path, str]] = {}  # from the target of a custom call to the library and the symbol


@dataclass(frozen=True)
class Layouts:
    """The layouts of a handler's buffers: for each operand and result its dimensions from the fastest-varying to the
    slowest; ``None`` is row-major. ``aliases``: from results to the operands that they overwrite."""

    operands: Orders = None
    results: Orders = None
    aliases: Mapping[int, int] = field(default_factory=dict)

    def of(self, call: Call) -> Layouts:
        """Returns the layouts for a call, by which functions are evaluated."""
        orders = [given(call) if callable(given) else given for given in (self.operands, self.results)]
        return replace(self, operands=orders[0], results=orders[1])

    def check(self, call: Call, label: str) -> None:
        for what, layouts, forms in (
            ("operand", self.operands, call.operands),
            ("result", self.results, call.results),
        ):
            if layouts is None or callable(layouts):
                continue
            if len(layouts) != len(forms):
                raise ValueError(
                    f"{label} for {call.place}: {len(layouts)} {what}_layouts, the composite has {len(forms)}"
                )
            for i, (layout, form) in enumerate(zip(layouts, forms, strict=True)):
                if layout is not None and sorted(layout) != list(range(len(form.shape))):
                    raise ValueError(
                        f"{label} for {call.place}: layout {list(layout)} of {what} {i} is no order of the dimensions "
                        f"of {form}"
                    )
        for result, operand in self.aliases.items():
            if not (0 <= result < len(call.results) and 0 <= operand < len(call.operands)):
                raise ValueError(f"{label} for {call.place}: there is no result {result}, or no operand {operand}")
            if call.results[result] != call.operands[operand]:
                raise ValueError(
                    f"{label} for {call.place}: result {result} can't be written over operand {operand}: "
                    f"{call.results[result]} and {call.operands[operand]}"
                )

    def texts(self, call: Call) -> list[str]:
        def of(layouts: Orders, forms: Sequence[Form]) -> str:
            chosen = [None] * len(forms) if layouts is None or callable(layouts) else layouts
            return ", ".join(_layout(one, len(form.shape)) for one, form in zip(chosen, forms, strict=True))

        texts = [f"operand_layouts = [{of(self.operands, call.operands)}]"]
        texts.append(f"result_layouts = [{of(self.results, call.results)}]")
        if self.aliases:
            one = len(call.results) == 1
            aliases = ", ".join(
                f"#stablehlo.output_operand_alias<output_tuple_indices = [{'' if one else result}], "
                f"operand_index = {operand}, operand_tuple_indices = []>"
                for result, operand in sorted(self.aliases.items())
            )
            texts.append(f"output_operand_aliases = [{aliases}]")
        return texts


def _layout(layout: Layout | None, rank: int) -> str:
    chosen = list(range(rank - 1, -1, -1)) if layout is None else list(layout)
    return f"dense<{chosen if chosen else ''}> : tensor<{rank}xindex>"


class Library:
    """A handler of a loaded library."""

    def __init__(self, path: str | os.PathLike[str], symbol: str, layouts: Layouts, label: str = "") -> None:
        self.path, self.symbol, self.layouts = Path(path), symbol, layouts
        self.label = label or f"{symbol} of {self.path.name}"
        self.hash, library = load(self.path)
        try:
            function = getattr(library, symbol)
        except AttributeError:
            raise ValueError(
                f"register_kernel: '{self.path}' has no symbol '{symbol}'; a handler is exported by "
                "XLA_FFI_DEFINE_HANDLER_SYMBOL(name, …)"
            ) from None
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        self.address = address
        major, minor = _C.handler_version(address)
        if (major, minor) == (0, 0) or major != version()[0]:
            reported = f"was compiled for XLA's FFI {major}.{minor}" if major or minor else "is no handler of XLA's FFI"
            raise ValueError(
                f"register_kernel: '{symbol}' of '{self.path}' {reported}; the headers here "
                f"(torch_pjrt.kernels.include_folder()) are those of {version()[0]}.{version()[1]}"
            )

    def lower(self, call: Call) -> tuple[str, str]:
        layouts = self.layouts.of(call)
        layouts.check(call, self.label)
        target = f"torch_pjrt.{self.symbol}.{self.hash[:16]}"
        by_target[target] = (self.path.resolve(), self.symbol)
        try:
            _C.register_handler(target, self.address, f"{call.place}, {self.label}")
        except RuntimeError as error:
            numbers = "{}.{} (it), {}.{} (the headers of torch_pjrt.kernels.include_folder())".format(
                *_C.handler_version(self.address), *version()
            )
            raise RuntimeError(
                f"{self.label} for {call.place} can't be registered: {error}. Versions of XLA's FFI: {numbers}"
            ) from error
        return custom_call(target, call, layouts)


def custom_call(target: str, call: Call, layouts: Layouts) -> tuple[str, str]:
    """Returns the name and the text of a function that calls the handler."""
    taken = ", ".join(f"%arg{i}: {form.mlir}" for i, form in enumerate(call.operands))
    types = ", ".join(form.mlir for form in call.operands)
    results = ", ".join(form.mlir for form in call.results)
    attributes = ", ".join(f"{key} = {_decodable(text)}" for key, text in call.texts.items() if key != "operands")
    count = len(call.results)
    given = "%0" if count == 1 else ", ".join(f"%0#{i}" for i in range(count))
    body = (
        f"({taken}) -> ({results}) {{\n"
        f"    %0{f':{count}' if count > 1 else ''} = stablehlo.custom_call @{_quoted(target)}"
        f"({', '.join(f'%arg{i}' for i in range(len(call.operands)))}) "
        f"{{api_version = 4 : i32, backend_config = {{{attributes}}}, {', '.join(layouts.texts(call))}}} : "
        f"({types}) -> {results if count == 1 else f'({results})'}\n"
        f"    return {given} : {results}\n  }}\n"
    )
    name = f"kernel.{hashlib.sha256((target + body).encode()).hexdigest()[:16]}"
    return name, f"  func.func private @{_quoted(name)}{body}"


def _decodable(text: str) -> str:
    """Replaces lists of bools by lists of integers, because XLA's headers can't decode the former."""
    if not text.startswith("array<i1"):
        return text
    return text.replace("array<i1", "array<i64").replace("true", "1").replace("false", "0")


def _quoted(name: str) -> str:
    return f'"{name}"'


def version() -> tuple[int, int]:
    """Returns the version of XLA's FFI, whose headers are in the package."""
    text = (Path(__file__).resolve().parents[1] / "include/xla/ffi/api/c_api.h").read_text()
    numbers = [re.search(rf"#define XLA_FFI_API_{part} (\d+)", text) for part in ("MAJOR", "MINOR")]
    return int(numbers[0][1]), int(numbers[1][1])  # type: ignore[index]


def load(path: Path) -> tuple[str, ctypes.CDLL]:
    """Loads a library and returns the file's hash with it. Its symbols are local to it (RTLD_LOCAL).

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a shared library, a library that it needs is missing, or it was overwritten after it
            was loaded.
    """
    if not path.is_file():
        raise FileNotFoundError(f"register_kernel: there is no library '{path}'")
    path = path.resolve()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with _lock:
        if digest in _loaded:
            return digest, _loaded[digest]
        status = path.stat()
        place = (status.st_dev, status.st_ino)
        if place in _files:  # loaded with another content
            raise ValueError(
                f"register_kernel: '{path}' was written over after it was loaded, and with it code that this process "
                "may be running. Put another file in its place (as a linker and `cp --remove-destination` do), and "
                "begin a new process"
            )
        # The loader returns a library that it has loaded under this name, even if the file is new: the path is varied.
        older = sum(loaded == path for loaded in _files.values())
        try:
            _loaded[digest] = ctypes.CDLL(f"{path.parent}/{'./' * older}{path.name}", mode=ctypes.RTLD_LOCAL)
        except OSError as error:
            raise ValueError(f"register_kernel: '{path}' can't be loaded: {error}") from error
        _files[place] = path
    return digest, _loaded[digest]
