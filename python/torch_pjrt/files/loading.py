"""``load``: a program in a file, called from Python."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.files import parameters, tree


class Entry:
    """One entry of a file, called like the function that was exported."""

    def __init__(self, program: FileProgram, form: Mapping[str, Any]) -> None:
        self.program, self.name, self._form = program, form["name"], parameters.as_now(form["tree"])
        self.variants: list[dict[str, Any]] = form["variants"]
        forms = [form for variant in self.variants for form in enumerate(variant["arguments"])]
        self._updated = sorted({index for index, argument in forms if argument["updated"]})
        of_all = form["tree"].get("results")  # older files have one structure for all variants
        self._trees = [variant.get("tree", of_all) for variant in self.variants]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the entry on tensors on the CPU, ``"pjrt"`` or CUDA, NumPy arrays, and other objects with DLPack.

        Returns:
            Tensors on CUDA if an argument is there, else on ``"pjrt"`` if an argument is there, else on the CPU.

        Raises:
            TypeError: an argument is missing or unexpected, or can't be made a tensor with data.
            RuntimeError: no exported shapes and dtypes match, or an updated argument shares memory with another.
        """
        names = [form["name"] for form in self.variants[0]["arguments"]]
        given = parameters.flatten(self._form, args, kwargs, self._fail)
        flat = [self._tensor(*each) for each in zip(names, given, strict=True)]
        self._check_memory(names, flat)
        devices = {tensor.device for tensor in flat}
        outside = next((device for device in devices if device.type not in ("cpu", "pjrt")), None)
        on_device = any(device.type != "cpu" for device in devices)
        arguments = [tensor.resolve_conj().resolve_neg() for tensor in flat]
        if outside is not None:
            arguments = [tensor if tensor.device.type == "pjrt" else tensor.to("pjrt") for tensor in arguments]
        results = self.program._program.call(self.name, arguments, on_device)
        if outside is not None:
            results = [result.to(outside) for result in results]
        return self._results(flat, results)

    def _check_memory(self, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> None:
        """Raises if an updated argument shares memory with another: the program gives each its own memory."""
        for index in self._updated:
            where, begin, end = _memory(tensors[index])
            for other, tensor in enumerate(tensors):
                there, low, high = _memory(tensor)
                if other != index and where == there and max(begin, low) < min(end, high):
                    raise RuntimeError(
                        f"'{self.program.path}', entry '{self.name}': arguments '{names[index]}' and '{names[other]}' "
                        "share memory, and the program updates memory in place: pass a clone() of one of them"
                    )

    def _tensor(self, name: str, value: Any) -> torch.Tensor:
        try:
            tensor = _tensor(value)
        except (TypeError, ValueError, RuntimeError, BufferError) as error:
            raise TypeError(
                f"'{self.program.path}', entry '{self.name}': argument '{name}' is no tensor, and can't be made one: "
                f"{error}"
            ) from error
        if tensor.is_meta or tensor.layout != torch.strided:
            what = "has no data: it is on meta" if tensor.is_meta else "is sparse: give what it is made of"
            raise TypeError(f"'{self.program.path}', entry '{self.name}': argument '{name}' {what}")
        return tensor

    def _fail(self, reason: str) -> TypeError:
        return TypeError(f"'{self.program.path}', entry '{self.name}': {reason}")

    def _results(self, flat: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> Any:
        shapes = [list(tensor.shape) for tensor in flat]
        index = next(i for i, v in enumerate(self.variants) if [a["shape"] for a in v["arguments"]] == shapes)
        variant = self.variants[index]
        own = []
        for form, result in zip(variant["results"], results, strict=False):
            own.append(result if list(result.stride()) == form["strides"] else _laid_out(result, form["strides"]))
        updated = [i for i, form in enumerate(variant["arguments"]) if form["updated"]]
        for at, value in zip(updated, results[len(own) :], strict=True):
            flat[at].copy_(value)
        return tree.decode(self._trees[index], own)

    def prepare(self) -> None:
        """Compiles the programs of all sizes now, or loads them from the disk cache."""
        self.program._program.prepare(self.name)


class FileProgram:
    """The result of ``load``. A call of it calls the first entry; every entry is an attribute by its name."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        weights: str | os.PathLike[str] | None,
        kernels: Sequence[str | os.PathLike[str]],
        device: int,
    ) -> None:
        self.path = os.fspath(path)
        self._program = _C.FileProgram(
            self.path, os.fspath(weights) if weights is not None else "", [os.fspath(k) for k in kernels], device
        )
        with zipfile.ZipFile(self.path) as archive:
            self.signature: dict[str, Any] = json.loads(archive.read("program.json"))
        self.entries = {form["name"]: Entry(self, form) for form in self.signature["entries"]}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return next(iter(self.entries.values()))(*args, **kwargs)

    def __getattr__(self, name: str) -> Entry:
        entries = self.__dict__.get("entries", {})
        if name not in entries:
            raise AttributeError(f"'{self.__dict__.get('path')}' has no entry '{name}'; it has {', '.join(entries)}")
        found: Entry = entries[name]
        return found

    def __dir__(self) -> Iterator[str]:
        return iter([*super().__dir__(), *self.entries])

    def state(self) -> dict[str, torch.Tensor]:
        """Returns the current state, by name, as tensors on the CPU."""
        return {form["name"]: self._program.state(form["name"]) for form in self.signature["state"]}

    def set_state(self, name: str, value: torch.Tensor) -> None:
        """Sets one piece of state, by name, which must not be frozen."""
        self._program.set_state(name, value)

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Writes all state that isn't frozen to a safetensors file."""
        self._program.save_state(os.fspath(path))

    def load_state(self, path: str | os.PathLike[str], *, partial: bool = False) -> None:
        """Reads state from a safetensors file.

        Args:
            path: the file.
            partial: if True, state that the file lacks stays unchanged.

        Raises:
            RuntimeError: the file is damaged or belongs to another model. No state is changed then.
        """
        self._program.load_state(os.fspath(path), partial)

    def manual_seed(self, seed: int) -> None:
        """Seeds the program's random numbers."""
        self.set_state("random_state", torch.tensor([seed, 0]))

    def describe(self) -> str:
        """Returns tables of the signature, the memory and the ops."""
        return str(self._program.describe())


def _memory(tensor: torch.Tensor) -> tuple[str | int, int, int]:
    """Returns where a tensor is, and the addresses at which its memory begins and ends there. An address of the device
    stands for a whole storage."""
    where: str | int = tensor.device.type
    storage = tensor.untyped_storage().data_ptr()
    if where == "pjrt":
        where, storage = storage, 0
    begin = storage + tensor.storage_offset() * tensor.itemsize
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return where, begin, begin + (last + 1) * tensor.itemsize if tensor.numel() else begin


def _tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach()
    if type(value).__module__ == "numpy" or not hasattr(value, "__dlpack__"):
        return torch.as_tensor(value)
    return torch.from_dlpack(value)


def _laid_out(result: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """Returns a copy of ``result`` with these strides, in which elements may overlap (``expand``, ``unfold``)."""
    laid = torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device)
    if result.numel() == 0 or torch.ops.aten.is_non_overlapping_and_dense(laid):
        return laid.copy_(result)
    memory = laid.as_strided((1 + sum((n - 1) * s for n, s in zip(result.shape, strides, strict=True)),), (1,))
    places = torch.arange(len(memory), device=result.device).as_strided(result.shape, strides)
    memory[places.reshape(-1)] = result.reshape(-1)
    return laid


def load(
    path: str | os.PathLike[str],
    *,
    weights: str | os.PathLike[str] | None = None,
    kernels: Sequence[str | os.PathLike[str]] = (),
    device: int = 0,
) -> FileProgram:
    """Opens a program that ``export(...).save`` wrote, without the model's code.

    Example: ``y = torch_pjrt.load("model.pjrt")(x)``, with the shapes and dtypes that were exported.

    Args:
        path: the file.
        weights: the weights of a file that was saved with ``weights="separate"``. Default: the file of the name that
            it states, in its folder.
        kernels: folders with the libraries of the kernels that it needs.
        device: the index of the ``"pjrt"`` device that computes.

    Returns:
        A function of the parameters of the exported one, whose entries are its attributes.

    Raises:
        RuntimeError: the file is damaged, has a newer format, belongs to other weights, or needs a library that is
            missing.
    """
    return FileProgram(path, weights, kernels, device)
