"""``torch_pjrt.export`` to a file, which ``torch_pjrt.load`` or the command ``pjrt-run`` runs."""

from __future__ import annotations

import inspect
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.utils._pytree import tree_leaves

import torch_pjrt
from torch_pjrt import _C
from zoo.entries import Prepared, settings
from zoo.model import Built
from zoo.reference import step_of
from zoo.values import Values, leaves


def example(made: Built) -> Any:
    """Returns the arguments in ``export``'s form: positional ones, or all by name."""
    if not made.kwargs:
        return made.args
    positional = inspect.signature(made.module.forward).bind_partial(*made.args).arguments
    return {**positional, **made.kwargs}


def prepare(made: Built, what: str, by_command: bool = False) -> Prepared:
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name, "model.pjrt")
    if what == "step":
        return training(made, path, folder)
    torch_pjrt.export(made.module, example(made)).save(path)
    program = torch_pjrt.load(path)
    if by_command:
        return Prepared(lambda: (folder, by_pjrt_run(program, made, path))[1], made)
    return Prepared(lambda: (folder, program(*made.args, **made.kwargs))[1], made)


def training(made: Built, path: Path, folder: Any) -> Prepared:
    step = torch_pjrt.compile_step(step_of(made))
    given = example(made)  # the step has the names of the module's arguments, which it passes on
    torch_pjrt.export(step, given, name="train_step").save(path)
    program = torch_pjrt.load(path)

    def values(loss: Any) -> Values:
        state = dict(program.state())
        for form in program.signature["state"]:
            state |= dict.fromkeys(form["aliases"], state[form["name"]])
        found = {"loss": loss}
        for kind, tensors in (("parameter", made.module.named_parameters()), ("buffer", made.module.named_buffers())):
            for name, own in tensors:
                value = state.get(name, own)
                found |= {f"{kind} {key}": each for key, each in leaves({name: value})}
        return found

    args, kwargs = ((), given) if isinstance(given, dict) else (given, {})
    return Prepared(lambda: (folder, program.train_step(*args, **kwargs))[1], made, values=values)


def by_pjrt_run(program: Any, made: Built, path: Path) -> list[torch.Tensor]:
    """Returns the results of one call of ``pjrt-run``, by NumPy's files."""
    (entry,) = program.signature["entries"]
    (variant,) = entry["variants"]
    given = dict(leaves(example(made)))  # by name, and in the order of the call's keywords, where there are any
    names = [form["name"] for form in variant["arguments"]]
    ordered = [given[name] for name in names] if set(names) == set(given) else list(given.values())
    command = [settings.pjrt_run, str(path), "--plugin", _C.plugin()[1]]
    for form, tensor in zip(variant["arguments"], ordered, strict=True):
        file = path.with_name(f"in {len(command)}.npy")
        numpy.save(file, tensor.numpy())
        command += ["--input", f"{form['name']}={file}"]
    whole = program(*made.args, **made.kwargs)
    public = {id(tensor) for _, tensor in leaves(whole)}  # not the private attributes of caches
    shown = [id(tensor) in public for tensor in tree_leaves(whole) if isinstance(tensor, torch.Tensor)]
    files = [path.with_name(f"out {i}.npy") for i in range(len(variant["results"]))]
    for form, file in zip(variant["results"], files, strict=True):
        command += ["--output", f"{form['name']}={file}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"pjrt-run: {done.stderr.strip() or done.returncode}")
    return [torch.from_numpy(numpy.load(file)) for file, is_shown in zip(files, shown, strict=True) if is_shown]
