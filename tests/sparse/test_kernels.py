"""The kernels of sparse tensors on the device."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torchgen
import yaml

import torch_pjrt  # noqa: F401

YAML = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"


def shared(cpu: str, cuda: str) -> set[str]:
    """Returns the ops for which PyTorch has one function for both keys."""
    names = set()
    for entry in yaml.safe_load(YAML.read_text()):
        for keys in entry.get("dispatch") or ():
            if {cpu, cuda} <= {key.strip() for key in keys.split(",")}:
                names.add(entry["func"].split("(")[0])
    return names


def taken(key: str) -> set[str]:
    """Returns the names under the key in shared_kernels.cpp."""
    names = set()
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        dump = torch._C._dispatch_dump(name)
        if re.search(rf"^{key}: .*shared_kernels\.cpp", dump, re.MULTILINE):
            names.add(name.removeprefix("aten::"))
    return names


@pytest.mark.parametrize(
    ("key", "cpu", "cuda"),
    [
        ("SparsePrivateUse1", "SparseCPU", "SparseCUDA"),
        ("SparseCsrPrivateUse1", "SparseCsrCPU", "SparseCsrCUDA"),
        ("PrivateUse1", "CPU", "CUDA"),
    ],
)
def test_what_is_taken_as_it_is_reads_no_memory(key: str, cpu: str, cuda: str) -> None:
    """A kernel of the CPU's alone would read the memory of a lazy tensor, and crash the process."""
    names = taken(key)
    assert len(names) > 5
    assert names <= shared(cpu, cuda)


@pytest.mark.parametrize(
    ("key", "cpu", "cuda"),
    [("SparsePrivateUse1", "SparseCPU", "SparseCUDA"), ("SparseCsrPrivateUse1", "SparseCsrCPU", "SparseCsrCUDA")],
)
def test_what_pytorch_shares_has_a_kernel(key: str, cpu: str, cuda: str) -> None:
    for name in shared(cpu, cuda):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key), name
