"""``export``: programs of functions, in a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from torch_pjrt.files import archive, dynamic, portable, safetensors, variants
from torch_pjrt.files.freezing import Frozen
from torch_pjrt.files.loading import FileProgram
from torch_pjrt.files.naming import Names

FORMAT = 1  # src/runner/signature.h
PLACES = ("inside", "separate")
TAKEN = {*dir(FileProgram), "path", "signature", "entries"}  # entries are attributes of a FileProgram


class Exported:
    """The result of ``export``: programs of one or more functions, with the state that they share.

    ``save`` writes the weights and state that the modules, optimizers and tensors have at that time. Frozen weights
    must not have changed since the export.
    """

    def __init__(self) -> None:
        self.names = Names()
        self.frozen = Frozen()
        self.entries: dict[str, variants.Entry] = {}
        self.updated: set[str] = set()  # names of state that some entry writes
        self.kernels: dict[str, tuple[Path, str]] = {}  # by target: the library and the symbol

    def add(
        self,
        name: str,
        fn: Callable[..., Any],
        example: Any = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        dynamic: dynamic.Dynamic | None = None,
        sizes: Mapping[str, Iterable[int]] | None = None,
        freeze: bool = False,
    ) -> Exported:
        """Adds an entry, which shares state with the others where they use the same tensors.

        Arguments and errors are those of ``export``.
        """
        if name in self.entries or not name.isidentifier() or name in TAKEN:
            raise ValueError(f"'{name}' names an entry already, or is no identifier, or names something of a program's")
        before = set(self.updated), self.frozen.copy()
        call = variants.call_of(example, kwargs or {})
        entry = variants.record_entry(self, name, fn, call, dynamic or {}, sizes or {}, freeze)
        if both := self.updated & self.frozen.parts(self.names):
            self.updated, self.frozen = before
            raise ValueError(
                f"entry '{name}': '{min(both)}' is updated by one entry and frozen by another, which would not see it: "
                "export one of them without freeze, or into a file of its own"
            )
        self.entries[name] = entry
        return self

    def stablehlo(self, entry: str | None = None, platform: str = "any") -> str:
        """Returns the StableHLO text of an entry's program for its first sizes, with the arguments and results that
        ``signature()`` lists.

        Args:
            entry: the entry's name. Default: the first entry.
            platform: ``"any"``; or ``"cpu"`` or the platform of the export, if the program has other text there.

        Raises:
            KeyError: there is no such entry.
        """
        texts = self._entry(entry).variants[0].texts
        return texts[platform if platform in texts else "any"].text

    def jax_export(self, entry: str | None = None, platform: str = "cpu") -> Any:
        """Returns an entry's program for its first sizes as a ``jax.export.Exported``, to be called or serialized.

        It takes arrays for the parameters that ``signature()`` lists, including state, and returns a tuple of arrays of
        the outputs, including new state. JAX must be installed; 64-bit types need its x64 mode.

        Raises:
            KeyError: there is no such entry.
        """
        from torch_pjrt.jax import _compat

        return _compat.as_export(self._entry(entry).name, self.stablehlo(entry, platform), platform)

    def _entry(self, name: str | None) -> variants.Entry:
        if name is None:
            return next(iter(self.entries.values()))
        if name not in self.entries:
            raise KeyError(f"there is no entry '{name}'; there are {', '.join(self.entries)}")
        return self.entries[name]

    def state(self) -> dict[str, torch.Tensor]:
        """Returns the tensors that the entries use besides their arguments, by name; they are the modules' own."""
        return {name: self.names.tensors[name] for name in sorted(self._used())}

    def _used(self) -> set[str]:
        return {name for entry in self.entries.values() for variant in entry.variants for name in variant.state}

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Copies state that a program saved into the modules and optimizers that it was exported from.

        Args:
            path: a file that ``save_state`` wrote, in Python, in C++ or by ``pjrt-run``.

        Raises:
            ValueError: the file is no such file, or belongs to another model. Nothing is changed then.
        """
        found = safetensors.read(path)
        own = self.state()
        for name, tensor in found.items():
            real = own.get(name)
            if real is None:
                raise ValueError(f"'{path}' is of another model: there is no '{name}' here")
            if (real.shape, real.dtype) != (tensor.shape, tensor.dtype):
                raise ValueError(
                    f"'{path}' is of another model: '{name}' is {tensor.dtype}{list(tensor.shape)} there and "
                    f"{real.dtype}{list(real.shape)} here"
                )
        with torch.no_grad():
            for name, tensor in found.items():
                for real in (own[name], *self.names.followers.get(name, ())):
                    real.copy_(tensor)

    def signature(self, form: str = "text") -> dict[str, Any]:
        """Returns the content of ``program.json``, described in docs/file-format.md."""
        from torch_pjrt import __version__

        tensors = self.state()
        frozen = self.frozen.names | self.frozen.parts(self.names)
        state = [
            {
                "name": name,
                "dtype": safetensors.dtype_name(tensor.dtype),
                "shape": list(tensor.shape),
                "strides": list(tensor.stride()),
                "updated": name in self.updated,
                "frozen": name in frozen,
                "aliases": sorted(self.names.aliases.get(name, [])),
            }
            for name, tensor in tensors.items()
        ]
        kernels = [
            {"target": target, "symbol": symbol, "library": path.name, "path": str(path)}
            for target, (path, symbol) in sorted(self.kernels.items())
        ]
        return {
            "format": FORMAT,
            "made_by": {"torch_pjrt": __version__, "torch": torch.__version__},
            "form": form,
            "weights": None,
            "state": state,
            "hyperparameters": self.names.parameters,
            "kernels": kernels,
            "entries": [entry.as_json(form) for entry in self.entries.values()],
        }

    def save(self, path: str | os.PathLike[str], *, weights: str = "inside", form: str | None = None) -> None:
        """Writes the file. Its bytes are a function of the model.

        Args:
            path: the file, such as ``"model.pjrt"``.
            weights: ``"inside"``, or ``"separate"`` to write the state that no entry updates to ``NAME.safetensors`` in
                the same folder, which other programs may share.
            form: ``"portable"`` for versioned StableHLO bytecode, which needs JAX to write, or ``"text"``. Default:
                portable if JAX is installed.

        Raises:
            OSError: the file can't be written.
            ValueError: frozen weights have changed since the export, or ``weights`` or ``form`` is unknown.
        """
        self.frozen.check()
        if weights not in PLACES:
            raise ValueError(f"weights={weights!r}: one of {', '.join(PLACES)}")
        form = form or ("portable" if portable.has_writer() else "text")
        if form not in portable.FORMS:
            raise ValueError(f"form={form!r}: one of {', '.join(portable.FORMS)}")
        path = Path(path)
        tensors = self.state()
        fixed = safetensors.parts_of({n: t for n, t in tensors.items() if n not in self.updated})
        signature = self.signature(form)
        members: dict[str, archive.Parts] = {}
        for entry in self.entries.values():
            members.update(entry.members(form))
        if weights == "separate":
            beside = path.with_suffix(".safetensors")
            archive.write_parts(beside, fixed)
            signature["weights"] = {"file": beside.name, "crc32": archive.crc_of(fixed)}
        else:
            members["weights.safetensors"] = fixed
        members["state.safetensors"] = safetensors.parts_of({n: t for n, t in tensors.items() if n in self.updated})
        text = json.dumps(signature, indent=1, sort_keys=True).encode()
        archive.write_archive(path, {"program.json": [text], **members})


def export(
    model: Callable[..., Any] | Mapping[str, tuple[Any, ...]],
    example: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic: dynamic.Dynamic | None = None,
    sizes: Mapping[str, Iterable[int]] | None = None,
    name: str = "main",
    freeze: bool = False,
) -> Exported:
    """Makes a program of a model, which can be saved as a file and run without the model's code, Python or PyTorch.

    Example::

        program = torch_pjrt.export(model, tokens, dynamic={"tokens": {0: [1, 8]}})
        program.save("model.pjrt")
        torch_pjrt.load("model.pjrt")(tokens)

    Parameters, buffers, an optimizer's state and the random state become the program's state, under their names in
    ``state_dict()``. State stays on the device between calls and is updated in place.

    Args:
        model: a module or a function (run without gradients, in its current mode), a result of ``compile_step`` (a
            training step, to be run once before, so that its optimizers have state), or a
            ``torch.export.ExportedProgram``. A dict from names to tuples of one of these, ``example`` and, optionally,
            ``kwargs`` makes several entries.
        example: the arguments: a tensor, a tuple of positional arguments, or a dict of arguments by name, in any
            structure that PyTorch's pytrees know. Shapes, dtypes and strides of tensors determine the program; their
            values are not used, and each is a tensor of its own (``is``), even if one is given for several. Other
            values, including defaults, are constants of the program.
        kwargs: arguments by name, besides positional ones.
        dynamic: the sizes to make programs for: a dict from an argument's name to a dict from dimensions to sizes. The
            sizes are a list, a range, ``("batch", sizes)``, or a name whose sizes are in ``sizes``. Dimensions of one
            name have equal sizes. Each combination of sizes is a program.
        sizes: the sizes of the names in ``dynamic``.
        name: the entry's name.
        freeze: if True, for a module in evaluation mode that is used for inference only: weights of convolutions are
            multiplied by the batch norms after them, and become frozen state (``frozen.…``) that can't be set. A
            convolution, the addition to its result and its relu become one call if a kernel claims it
            (``torch_pjrt.kernels.onednn``). If that library is registered, weights of the products that it claims are
            frozen, too.

    Returns:
        An ``Exported``, with ``save``, ``add``, ``signature``, ``stablehlo``, ``jax_export``, ``state``, ``restore``.

    Raises:
        torch_pjrt.CaptureError: ``model`` can't be one program.
        TypeError: a file can't represent an argument or a result, or ``freeze`` is set for a function or a training
            step.
        ValueError: ``dynamic`` names no argument, dimension or sizes, a name can't be an entry's, or ``freeze`` is set
            for a module in training mode.
    """
    exported = Exported()
    if isinstance(model, Mapping):
        if dynamic or sizes or kwargs:
            raise ValueError(
                "dynamic or kwargs of several entries: add them one by one (Exported.add), each with its own"
            )
        for each, (fn, *arguments) in model.items():
            exported.add(each, fn, *arguments, freeze=freeze)
        if not exported.entries:
            raise ValueError("export takes a model, or a dict from names to (function, example)")
        return exported
    return exported.add(name, model, example, kwargs, dynamic=dynamic, sizes=sizes, freeze=freeze)
