"""``export``: functions as programs in a file."""

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
TAKEN = {*dir(FileProgram), "path", "signature", "entries"}  # entries are attributes of what load gives


class Exported:
    """Programs of one or more functions, with the state that they share.

    Weights and state are those that the modules, optimizers and tensors have when it is saved; what is frozen must not
    have changed by then.
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
        """One more entry, which shares state with the others where they use the same tensors.

        Takes and raises what ``export`` does.
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
        """The text of an entry's program, of its first sizes: plain StableHLO, whose arguments and results are those
        that ``signature()`` lists.

        Args:
            platform: "any" or, where another is needed there, "cpu" and the platform that it was exported on.
        """
        texts = self._entry(entry).variants[0].texts
        return texts[platform if platform in texts else "any"].text

    def jax_export(self, entry: str | None = None, platform: str = "cpu") -> Any:
        """An entry's program, of its first sizes, as a ``jax.export.Exported``: for JAX, or to be serialized.

        It takes arrays for the parameters that ``signature()`` lists, state among them, and gives a tuple of arrays for
        the outputs, new state among them. Needs JAX; 64-bit types need its x64 mode.
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
        """The tensors that the entries use beside their arguments, by name: the modules' and optimizers' own."""
        return {name: self.names.tensors[name] for name in sorted(self._used())}

    def _used(self) -> set[str]:
        return {name for entry in self.entries.values() for variant in entry.variants for name in variant.state}

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Puts state that a program saved back into the modules and optimizers that it was exported from.

        Args:
            path: what ``save_state`` wrote, in Python, in C++ or with ``pjrt-run``.

        Raises:
            ValueError: it is no such file, or of another model. Nothing was changed then.
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
        """What ``program.json`` says: docs/files.md."""
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
        """Writes the file. The same model gives the same bytes.

        Args:
            weights: ``"separate"`` puts what no entry updates into ``NAME.safetensors`` beside it, which other programs
                may share.
            form: ``"portable"``, bytecode of a version, which needs JAX here, or ``"text"``. Default: portable
                where JAX is installed.

        Raises:
            OSError: it can't be written.
            ValueError: what is frozen has changed since.
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
    """Makes a program of a model, to be saved as a file and run without its code, without Python or PyTorch.

    ::

        program = torch_pjrt.export(model, tokens, dynamic={"tokens": {0: [1, 8]}})
        program.save("model.pjrt")
        torch_pjrt.load("model.pjrt")(tokens)

    Parameters, buffers, an optimizer's state and random numbers become the program's state: on the device between
    calls, updated in place, under their names in ``state_dict()``.

    Args:
        model: a module or a function (without gradients, in the mode that it is in), what ``compile_step`` made (a
            training step, whose optimizers have made their state: run it once before), or a
            ``torch.export.ExportedProgram``. A dict from names to tuples of one of these, ``example`` and, if need be,
            ``kwargs`` makes several entries.
        example: the arguments: a tensor, a tuple of positional ones, or a dict of those by name, of any structure that
            PyTorch's pytrees know. The values of tensors are not used, and results have the strides that those of an
            example's strides give; what is no tensor is a constant of the program, defaults included.
        kwargs: arguments by name, beside positional ones.
        dynamic: for which sizes: an argument's name -> dimension -> sizes, a list or a range, ``("batch", sizes)``,
            or a name whose sizes are in ``sizes``. Dimensions of one name go together. Each set of sizes is a program.
        sizes: the sizes of names in ``dynamic``.
        name: the entry's.
        freeze: of a module in evaluation, to infer only: convolutions' weights are taken with the batch norms after
            them, as state whose name begins with ``frozen.`` and which nobody sets any more; and what is added to a
            convolution's result and its relu are one call, where a kernel does it (``torch_pjrt.kernels.onednn``).
            Where that library is registered, nobody sets weights of products that it does any more either.

    Raises:
        torch_pjrt.CaptureError: ``model`` can't be one program.
        TypeError: an argument or a result has no form in a file; ``freeze`` of a function or a training step.
        ValueError: ``dynamic`` is none; ``freeze`` of a module in training.
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
