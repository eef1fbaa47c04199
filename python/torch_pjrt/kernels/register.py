"""``register_kernel``: kernels that replace a composite, on a platform, under a condition."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from torch_pjrt import _C
from torch_pjrt.composite_ops import kept
from torch_pjrt.composite_ops.asked import check_name, forward_of
from torch_pjrt.composite_ops.names import KEPT, STEPS
from torch_pjrt.kernels.call import Call, forms, value_of
from torch_pjrt.kernels.functions import Function, Jax, StableHlo, place_of
from torch_pjrt.kernels.libraries import Layouts, Library, Orders
from torch_pjrt.kernels.sources import Source

PLATFORMS = ("cpu", "cuda", "rocm", "sycl", "tpu")
Way = Function | StableHlo | Jax | Library | Source

_lock = threading.Lock()
_registered: dict[Any, RegisteredKernel] = {}


class RegisteredKernel:
    """A registered kernel. ``remove()``, or leaving it as a context manager, unregisters it."""

    def __init__(self, key: Any, kernel: Any) -> None:
        self._key, self._kernel = key, kernel

    @property
    def label(self) -> str:
        """The kernel's name in ``explain()`` and in errors."""
        return str(self._kernel.label)

    def remove(self) -> None:
        """Unregisters the kernel. Programs compiled with it keep it. A second call does nothing."""
        with _lock:
            if _registered.get(self._key) is self:
                del _registered[self._key]
                self._kernel.remove()

    def __enter__(self) -> RegisteredKernel:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<kernel {self.label} for {self._kernel.composite} on {self._kernel.platform}>"


def register_kernel(
    name: str,
    *,
    platform: str = "cpu",
    when: Callable[[Call], bool | str] | None = None,
    function: Callable[..., Any] | None = None,
    library: str | os.PathLike[str] | None = None,
    symbol: str | None = None,
    jax: Callable[..., Any] | None = None,
    stablehlo: str | Callable[[Call], str] | None = None,
    source: str | Callable[[Call], str] | None = None,
    flags: Sequence[str] = (),
    operand_layouts: Orders = None,
    result_layouts: Orders = None,
    aliases: Mapping[int, int] | None = None,
) -> RegisteredKernel:
    """Registers a kernel that replaces a composite, instead of its decomposition, wherever ``when`` accepts the call.

    It applies to programs that are made from now on, on the device and by ``torch.compile``, ``compile_step`` and
    ``jit``. The last registered kernel is tried first; a call that no kernel claims is decomposed. The backward of a
    composite is a composite of its own, with its own kernels. ``torch_pjrt.explain()`` reports the kernels that ran.
    Example: ``torch_pjrt.register_kernel("aten.gelu.default", function=fast_gelu)``.

    A kernel takes the composite's operands and returns its results, of the same shapes and dtypes. It is one of:

    - ``function=``: a function of tensors, whose calls are recorded in place of the composite. It takes the operands in
      order and the attributes as keywords.
    - ``library=`` and ``symbol=``: a handler of XLA's typed FFI in a shared library. It takes the operands as
      arguments, the buffers of the results, and the attributes.
    - ``source=`` and ``symbol=``: such a handler as C++ source, which is compiled on this machine, once per text, with
      the additional ``flags``; or a function that takes the call and returns the source for its shapes.
    - ``stablehlo=``: the text of a module whose ``@main`` takes the operands, or a function that takes the call and
      returns it.
    - ``jax=``: a function of JAX arrays, with attributes as keywords, which JAX lowers.

    Args:
        name: the composite's: ``"aten.gelu.default"``, ``"my.op"``, ``"my.op.backward"``.
        platform: ``"cpu"``, ``"cuda"``, ``"rocm"``, ``"sycl"``, ``"tpu"``, or the platform of the running plugin.
        when: takes a ``Call`` with ``operands`` and ``results`` (each with ``dtype``, ``shape`` and ``layout``) and
            ``attributes``. It declines a call by False, or by a string with the reason. Default: accepts every call.
        operand_layouts: for a handler, the layout of each operand: its dimensions from the fastest-varying to the
            slowest (``[1, 3, 2, 0]`` is channels last), or None for row-major; or a function that takes the call and
            returns these.
        result_layouts: the layouts of the results, likewise.
        aliases: for a handler, a dict from results to the operands that they overwrite, by index.

    Returns:
        A handle, whose ``remove()`` unregisters the kernel.

    Raises:
        ValueError: there is no such composite or platform, the kernel is already registered, or the library can't be
            loaded, was overwritten after it was loaded, lacks the symbol, or was built for another version of XLA's
            FFI.
        FileNotFoundError: there is no such library.
        TypeError: not exactly one kind of kernel is given, or an argument doesn't apply to this kind.
        RuntimeError: ``source`` doesn't compile, or there is no compiler; when a program is made, the kernel raises, or
            its results have other shapes or dtypes than the composite's.
    """
    check_name(name, every=False, by="register_kernel")
    known = {*PLATFORMS, *([_C.platform_name()] if _C.is_initialized() and not _C.in_forked_child() else [])}
    if platform not in known:
        raise ValueError(f"register_kernel: there is no platform '{platform}'; there are {', '.join(sorted(known))}")
    kinds = {"function": function, "library": library, "jax": jax, "stablehlo": stablehlo, "source": source}
    given = [kind for kind, value in kinds.items() if value is not None]
    if len(given) != 1:
        raise TypeError(
            f"register_kernel: a kernel is one of {', '.join(f'{kind}=' for kind in kinds)}; "
            f"got {' and '.join(given) if given else 'none'}"
        )
    (kind,) = given
    if (symbol is not None) != (kind in ("library", "source")):
        raise TypeError("register_kernel: symbol= names the handler in library= or source=")
    layouts = Layouts(operand_layouts, result_layouts, dict(aliases or {}))
    if layouts != Layouts() and symbol is None:
        raise TypeError("register_kernel: layouts and aliases are for handlers, library= or source=")
    key = (name, platform, kind, os.fspath(library) if library is not None else kinds[kind], symbol, when)
    with _lock:
        if key in _registered:
            raise ValueError(
                f"register_kernel: {_registered[key].label} is registered for '{name}' on {platform} already; remove() "
                "it first"
            )
        way: Way
        if function is not None:
            way = Function(function)
        elif library is not None:
            way = Library(library, str(symbol), layouts)
        elif jax is not None:
            way = Jax(jax)
        elif stablehlo is not None:
            way = StableHlo(stablehlo)
        else:
            assert source is not None
            way = Source(source, str(symbol), layouts, flags)
        if forward_of(name) in (*KEPT, *STEPS):
            kept.install()
        kernel = _C.add_kernel(name, platform, way.label, _claim(way, when))
        _registered[key] = RegisteredKernel(key, kernel)
        return _registered[key]


def _claim(way: Way, when: Callable[[Call], bool | str] | None) -> Callable[..., Any]:
    """Returns a function that takes a call, and returns the reason to decline it or the composite's replacement."""

    def claim(
        name: str, platform: str, texts: dict[str, str], operands: Any, results: Any, file: str, line: int
    ) -> Any:
        attributes = {key: value_of(text) for key, text in texts.items()}
        call = Call(name, platform, forms(operands), forms(results), attributes, texts, file, line)
        if when is not None:
            try:
                said = when(call)
            except Exception as error:
                raise RuntimeError(
                    f"{way.label} for {call.place}: its predicate {place_of(when)} raised {type(error).__name__}: "
                    f"{error}"
                ) from error
            if isinstance(said, str) and said:
                return said
            if not said:
                return f"{place_of(when)} is false"
        return way.lower(call)

    return claim
