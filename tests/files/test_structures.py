"""Arguments and results of programs in files: structures of any class, views, sizes; ops of CHLO and sparse
matrices."""

from __future__ import annotations

import collections
import dataclasses
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import torch_pjrt

Pair = collections.namedtuple("Pair", ["late", "early"])


@dataclasses.dataclass
class Scored:
    values: torch.Tensor
    note: str


@dataclasses.dataclass
class Plain:
    values: torch.Tensor
    scale: float


class Boxed:
    """A class that PyTorch knows only by its own functions, without names of its parts."""

    def __init__(self, inside: list[torch.Tensor], unit: str) -> None:
        self.inside, self.unit = inside, unit


torch.export.register_dataclass(Scored, serialized_type_name="tests.Scored")
pytree.register_pytree_node(
    Boxed,
    lambda box: (box.inside, box.unit),
    lambda inside, unit: Boxed(list(inside), unit),
    serialized_type_name="tests.Boxed",
)


def roundtrip(tmp_path: Path, *args: Any, form: str = "text", **kwargs: Any) -> Any:
    torch_pjrt.export(*args, **kwargs).save(tmp_path / "it.pjrt", form=form)
    return torch_pjrt.load(tmp_path / "it.pjrt")


def test_registered_classes(tmp_path: Path) -> None:
    def f(scored: Scored, box: Boxed) -> Any:
        return {"a": Scored(scored.values + box.inside[1], "sum"), "b": [Boxed([scored.values * 2], box.unit)]}

    x = torch.ones(2)
    program = roundtrip(tmp_path, f, (Scored(x, "given"), Boxed([x, x], "m")))
    got = program(Scored(x * 2, "given"), Boxed([x, x * 3], "m"))
    assert isinstance(got["a"], Scored)
    assert (got["a"].values.tolist(), got["a"].note) == ([5, 5], "sum")
    assert isinstance(got["b"][0], Boxed)
    assert (got["b"][0].inside[0].tolist(), got["b"][0].unit) == ([4, 4], "m")
    with pytest.raises(TypeError, match=r"'scored\.note' is 'another', and the program is for 'given'"):
        program(Scored(x, "another"), Boxed([x, x], "m"))
    with pytest.raises(TypeError, match="'box' is a Boxed of another kind or size"):
        program(Scored(x, "given"), Boxed([x, x], "ft"))


def test_a_class_that_is_not_there(tmp_path: Path) -> None:
    x = torch.ones(2)
    roundtrip(tmp_path, lambda scored: Scored(scored.values + 1, scored.note), (Scored(x, "given"),))
    with zipfile.ZipFile(tmp_path / "it.pjrt") as archive:
        (entry,) = json.loads(archive.read("program.json"))["entries"]
    assert entry["variants"][0]["tree"]["class"] == "tests.Scored"
    registered = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.pop("tests.Scored")
    try:
        program = torch_pjrt.load(tmp_path / "it.pjrt")
        got = program({"values": x, "note": "given"})
    finally:
        pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE["tests.Scored"] = registered
    assert got.keys() == {"values", "note"}
    assert got["values"].tolist() == [2, 2]


def test_a_class_that_nobody_knows(tmp_path: Path) -> None:
    class Unknown:
        def __init__(self, x: torch.Tensor) -> None:
            self.x = x

    with pytest.raises(
        TypeError, match=r"a Unknown at 'y' is neither.*register_pytree_node, with a serialized_type_name"
    ):
        torch_pjrt.export(lambda x: {"y": Unknown(x)}, torch.ones(2))
    program = roundtrip(tmp_path, lambda plain: Plain(plain.values * plain.scale, 1.0), (Plain(torch.ones(2), 3.0),))
    got = program({"values": torch.full((2,), 2.0), "scale": 3.0})
    assert (got["values"].tolist(), got["scale"]) == ([6, 6], 1.0)


def test_containers(tmp_path: Path) -> None:
    def f(x: torch.Tensor, dtype: torch.dtype, limit: float) -> Any:
        most = torch.max(x.to(dtype).clamp(max=limit), 1)
        return Pair(
            collections.OrderedDict(z=x, a=most), {"limit": limit, "none": None, "dtype": dtype, "size": x.shape}
        )

    x = torch.randn(2, 3)
    program = roundtrip(tmp_path, f, (x, torch.float64, float("inf")))
    got = program(x, torch.float64, float("inf"))
    assert got._fields == ("late", "early")
    assert isinstance(got.late, collections.OrderedDict)
    assert list(got.late) == ["z", "a"]
    assert isinstance(got.late["a"], torch.return_types.max)
    assert torch.equal(got.late["a"].values, x.double().max(1).values)
    assert got.early == {"limit": float("inf"), "none": None, "dtype": torch.float64, "size": (2, 3)}
    captured = torch_pjrt.jit(lambda x: f(x, torch.float64, 2.0), (x,)), torch_pjrt.compile_step(f)
    for result in (got, captured[0](x), captured[1](x, torch.float64, 2.0)):
        assert isinstance(result.early["size"], torch.Size)
    with pytest.raises(TypeError, match=r"'dtype' is torch.float32, and the program is for torch.float64"):
        program(x, torch.float32, float("inf"))


def test_sizes_among_results(tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> Any:
        return len(x), x.unbind(0), {"last": x[-1], "is one": len(x) == 1}

    program = roundtrip(tmp_path, f, torch.ones(3, 2), dynamic={"x": {0: [1, 3]}})
    for n in (1, 3):
        x = torch.randn(n, 2)
        length, rows, more = program(x)
        assert (length, len(rows), more["is one"]) == (n, n, n == 1)
        assert torch.equal(torch.stack(rows), x)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[:1].expand(4, 3),
        lambda x: (x + 1).sum().expand(2, 2),
        lambda x: x.flatten().unfold(0, 3, 1),
        lambda x: (x + 1).as_strided((2, 2), (1, 1)),
        lambda x: x.t(),
        lambda x: x[:0].expand(2, 0, 3),
    ],
)
def test_results_that_are_views(tmp_path: Path, f: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(2, 3)
    got, expected = roundtrip(tmp_path, f, x)(x), f(x)
    assert torch.equal(got, expected)
    assert got.stride() == expected.stride()


@pytest.mark.parametrize("freeze", [False, True])
def test_images_in_nhwc_layout(tmp_path: Path, freeze: bool) -> None:
    model = nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU()).eval()
    images = torch.randn(2, 4, 5, 5).to(memory_format=torch.channels_last)
    program = roundtrip(tmp_path, model, images, dynamic={"input": {0: [1, 2]}}, freeze=freeze)
    for given in (images, images[:1]):
        expected = model(given)
        torch.testing.assert_close(program(given), expected)
        assert program(given).stride() == expected.stride()
        assert program(given.contiguous()).is_contiguous(memory_format=torch.channels_last)


def test_conjugate_arguments(tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2) + 1

    x = torch.complex(torch.ones(2), torch.ones(2))
    for example in (x, x.conj()):
        program = roundtrip(tmp_path, f, example.clone())
        given, expected = x.clone().conj(), x.clone().conj()
        assert torch.equal(program(given), f(expected))
        assert torch.equal(given, expected)


CHLO: dict[str, Callable[[torch.Tensor], Any]] = {
    "gelu": F.gelu,
    "erfc": torch.erfc,
    "erfinv": torch.erfinv,
    "digamma": torch.digamma,
    "lgamma": torch.lgamma,
    "asin": torch.asin,
    "sinh": torch.sinh,
    "isinf": torch.isinf,
    "nextafter": lambda x: torch.nextafter(x, x + 1),
    "topk": lambda x: torch.topk(x, 2),
    "zeta": lambda x: torch.special.zeta(x + 2, x + 1),
}


@pytest.mark.parametrize("name", CHLO)
def test_ops_without_versions_are_portable(tmp_path: Path, name: str) -> None:
    pytest.importorskip("jax")
    x = torch.tensor([[-0.9, -0.3, 0.2], [0.6, 0.7, 0.95]])
    program = roundtrip(tmp_path, CHLO[name], x, form="portable")
    torch.testing.assert_close(program(x), CHLO[name](x))


def test_what_has_no_portable_form() -> None:
    pytest.importorskip("jax")
    from torch_pjrt.files import portable

    with pytest.raises(ValueError, match=r"(?s)no portable form .*form='text' saves it: .*'chlo.unknown' is unknown"):
        portable.artifact(
            "func.func @main(%a: tensor<f32>) -> tensor<f32> {\n%0 = chlo.unknown %a\nreturn %0 : tensor<f32>}"
        )


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_sparse_buffers(tmp_path: Path, layout: torch.layout) -> None:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            dense = torch.tensor([[0.0, 2, 0], [1, 0, 0], [0, 0, 3]])
            self.register_buffer("adjacency", dense.to_sparse(layout=layout))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.adjacency @ x

    model, x = Graph(), torch.randn(3, 2)
    torch.testing.assert_close(roundtrip(tmp_path, model, x)(x), model(x))


class Reaching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(4, 8)[:, ::2])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table.as_strided((3,), (1,)) + x[0, 0]


def test_memory_beside_a_tensor(tmp_path: Path) -> None:
    """A file has tensors without the gaps in their memory, where as_strided would find other elements."""
    x = torch.randn(4, 8)
    for fn, given in ((lambda x: x.as_strided((3,), (1,)), x[:, ::2]), (Reaching(), x)):
        with pytest.raises(torch_pjrt.CaptureError, match="as_strided reaches memory beside the elements"):
            torch_pjrt.export(fn, (given,), dynamic={"x": {0: [4, 5]}} if given is not x else None)
    twice = roundtrip(tmp_path, lambda x: x.as_strided((3,), (1,)) * 2, x)
    assert torch.equal(twice(x), x.as_strided((3,), (1,)) * 2)
