"""export and load: a file's results are the function's."""

from __future__ import annotations

import collections
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_pjrt


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(4 * 36, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images))


@pytest.fixture
def net() -> Net:
    return Net().eval()


def roundtrip(tmp_path: Path, *args: Any, form: str = "text", **kwargs: Any) -> Any:
    path = tmp_path / "it.pjrt"
    torch_pjrt.export(*args, **kwargs).save(path, form=form)
    return torch_pjrt.load(path)


@pytest.mark.parametrize("form", ["text", "portable"])
@pytest.mark.parametrize("device", ["cpu", "pjrt"])
def test_a_module_without_its_code(net: Net, tmp_path: Path, form: str, device: str) -> None:
    if form == "portable":
        pytest.importorskip("jax")
    images = torch.randn(2, 1, 8, 8)
    expected = net(images)
    program = roundtrip(tmp_path, net.to(device), images.to(device), form=form)
    torch.testing.assert_close(program(images), expected)
    assert program(images).device.type == "cpu"
    on_device = program(images=images.to("pjrt"))
    assert on_device.device.type == "pjrt"
    torch.testing.assert_close(on_device.cpu(), expected)
    torch.testing.assert_close(program(images.numpy()), expected)
    torch.testing.assert_close(program(images.transpose(2, 3).contiguous().transpose(2, 3)), expected)
    pending = images.to("pjrt") + 0
    torch.testing.assert_close(program(pending[:, :, :, :]).cpu(), expected)


def test_state_is_named_as_in_state_dict(net: Net, tmp_path: Path) -> None:
    program = roundtrip(tmp_path, net, torch.randn(2, 1, 8, 8))
    state = program.state()
    own = {k: v for k, v in net.state_dict().items() if "num_batches" not in k}
    assert state.keys() == own.keys()
    for name, value in own.items():
        assert torch.equal(state[name], value)
    forms = {form["name"]: form for form in program.signature["state"]}
    assert not any(form["updated"] for form in forms.values()), "batch norm only reads in eval mode"


def test_buffers_are_updated_in_place(net: Net, tmp_path: Path) -> None:
    net.train()
    images = torch.randn(2, 1, 8, 8)
    program = roundtrip(tmp_path, net, images)
    for _ in range(3):
        torch.testing.assert_close(program(images), net(images))
    state = program.state()
    for name in ("features.1.running_mean", "features.1.running_var", "features.1.num_batches_tracked"):
        torch.testing.assert_close(state[name], net.state_dict()[name])
    assert {f["name"] for f in program.signature["state"] if f["updated"]} == {
        "features.1.running_mean", "features.1.running_var", "features.1.num_batches_tracked",
    }  # fmt: skip


def test_the_same_model_gives_the_same_bytes(net: Net, tmp_path: Path) -> None:
    images = torch.randn(2, 1, 8, 8)
    for name in ("a.pjrt", "b.pjrt"):
        torch_pjrt.export(net, images).save(tmp_path / name)
    assert (tmp_path / "a.pjrt").read_bytes() == (tmp_path / "b.pjrt").read_bytes()


def test_other_tools_read_it(net: Net, tmp_path: Path) -> None:
    from safetensors.torch import load

    roundtrip(tmp_path, net, torch.randn(2, 1, 8, 8))
    with zipfile.ZipFile(tmp_path / "it.pjrt") as archive:
        assert archive.testzip() is None
        weights = load(archive.read("weights.safetensors"))
        signature = json.loads(archive.read("program.json"))
        text = archive.read("programs/main.mlir").decode()
        assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
    assert torch.equal(weights["head.weight"], net.head.weight)
    assert "stablehlo.convolution" in text
    assert ".py" not in text, "where the code was"
    assert b"\x80\x04" not in json.dumps(signature).encode()
    assert signature["format"] == 1
    assert signature["entries"][0]["name"] == "main"


def test_weights_beside(net: Net, tmp_path: Path) -> None:
    images = torch.randn(2, 1, 8, 8)
    torch_pjrt.export(net, images).save(tmp_path / "net.pjrt", weights="separate")
    torch.testing.assert_close(torch_pjrt.load(tmp_path / "net.pjrt")(images), net(images))
    (tmp_path / "net.safetensors").rename(tmp_path / "w.safetensors")
    with pytest.raises(RuntimeError, match=r"was saved without its weights.*Put 'net.safetensors' beside it"):
        torch_pjrt.load(tmp_path / "net.pjrt")
    program = torch_pjrt.load(tmp_path / "net.pjrt", weights=tmp_path / "w.safetensors")
    torch.testing.assert_close(program(images), net(images))


def test_structures_of_arguments_and_results(tmp_path: Path) -> None:
    Pair = collections.namedtuple("Pair", ["a", "b"])

    def fn(
        x: dict[str, Any], ys: list[torch.Tensor], *more: torch.Tensor, scale: float = 2.0, flag: bool = False
    ) -> Any:
        total = x["deep"][0] * scale + ys[0] + ys[1] + sum(more)
        return {"sum": total, "pair": Pair(total.T, (ys[0] * 0, None, "text"))}

    one = torch.ones(2, 3)
    args = ({"deep": (one,)}, [one, one], one, one)
    expected = fn(*args, scale=3.0)
    program = roundtrip(tmp_path, lambda *a, **k: fn(*a, **k), args)
    assert program(*args)["pair"].b[1:] == (None, "text")
    torch_pjrt.export(fn, {"x": args[0], "ys": args[1], "scale": 3.0}).save(tmp_path / "b.pjrt")
    program = torch_pjrt.load(tmp_path / "b.pjrt")
    got = program(x=args[0], ys=args[1])
    assert torch.equal(got["sum"], expected["sum"] - 2 * one)
    assert got["pair"].a.stride() == (1, 3), "as PyTorch lays it out"
    for kwargs, message in (
        ({"x": args[0]}, "ys is missing"),
        ({"x": {"deep": (one,), "else": 1}, "ys": args[1]}, "else is not taken"),
        ({"x": args[0], "ys": [one]}, "'ys': expected 2 items, got 1 items"),
        ({"x": args[0], "ys": args[1], "scale": 4.0}, "'scale' is 4.0, and the program is for 3.0"),
    ):
        with pytest.raises(TypeError, match=message):
            program(**kwargs)


@pytest.mark.parametrize(
    ("dynamic", "sizes"),
    [
        ({"x": {0: [1, 3]}, "y": {0: ("x.0", [1, 3])}}, {}),
        ({"x": {0: ("n", [1, 3])}, "y": {0: ("n", [1, 3])}}, {}),
        ({"x": {0: "n"}, "y": {0: "n"}}, {"n": range(1, 4, 2)}),
        ({"x": {-2: "n"}, "y": {0: "n"}}, {"n": [1, 3]}),
        ({"x": {0: torch.export.Dim("n")}, "y": {0: "n"}}, {"n": [1, 3]}),
    ],
)
def test_sizes(tmp_path: Path, dynamic: Any, sizes: Any) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum() * y + len(x)

    program = roundtrip(tmp_path, fn, (torch.ones(2, 2), torch.ones(2)), dynamic=dynamic, sizes=sizes)
    for n in (1, 3):
        x, y = torch.randn(n, 2), torch.randn(n)
        torch.testing.assert_close(program(x, y), fn(x, y))
    with pytest.raises(RuntimeError, match=r"argument 'x' is .*with another of the sizes it was exported for"):
        program(torch.ones(2, 2), torch.ones(2))
    with pytest.raises(RuntimeError, match="don't fit each other"):
        program(torch.ones(1, 2), torch.ones(3))


@pytest.mark.parametrize(
    ("dynamic", "sizes", "message"),
    [
        ({"x": {0: "batch"}}, {}, "no sizes are given for it.*XLA's plugins take none of open sizes"),
        ({"x": {0: torch.export.Dim("batch")}}, {}, "'batch', and no sizes are given for it"),
        ({"x": {0: torch.export.Dim("b", min=1, max=3) * 2}}, {}, "is derived from another, 2\\*b; list its sizes"),
        (
            {"x": {0: torch.export.Dim("b", min=4, max=8)}},
            {"b": [1]},
            r"'b' is from 4 to 8, and its sizes are \[1\]",
        ),
        ({"x": {0: torch.export.Dim("b", min=1, max=99)}}, {}, "99 programs, one for each set of sizes; at most 64"),
        ({"z": {0: [1]}}, {}, "there is no argument 'z'; there are 'x'"),
        ({"x": {2: [1]}}, {}, "'x' has 2 dimensions"),
        ({"x": {0: []}}, {}, "give non-negative integers"),
        ({"x": {0: 3}}, {}, "give a name, a list of sizes or a range"),
        ({"x": {0: range(100)}}, {}, "100 programs"),
        ({"x": {0: ("n", [1]), 1: ("n", [2])}}, {}, "'n' has the sizes"),
        ({"x": {0: [1]}}, {"m": [1]}, "no dimension of that name"),
    ],
)
def test_sizes_that_are_none(dynamic: Any, sizes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        torch_pjrt.export(lambda x: x, torch.ones(2, 2), dynamic=dynamic, sizes=sizes)


def test_entries_share_weights(tmp_path: Path) -> None:
    layer = nn.Linear(4, 4)
    exported = torch_pjrt.export(
        {"once": (layer, torch.ones(1, 4)), "twice": (lambda x: layer(layer(x)), torch.ones(1, 4))}
    )
    exported.save(tmp_path / "it.pjrt")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    x = torch.randn(1, 4)
    torch.testing.assert_close(program.once(x), layer(x))
    torch.testing.assert_close(program.twice(x), layer(layer(x)))
    assert program.state().keys() == {"weight", "bias"}
    program.set_state("bias", torch.zeros(4))
    torch.testing.assert_close(program.once(x), F.linear(x, layer.weight))
    with pytest.raises(AttributeError, match="has no entry 'thrice'; it has once, twice"):
        program.thrice(x)
    with pytest.raises(ValueError, match="names an entry already"):
        exported.add("once", layer, torch.ones(1, 4))


def test_tied_weights_are_one(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(tokens))

    model = Tied()
    tokens = torch.tensor([[0, 4]])
    program = roundtrip(tmp_path, model, tokens)
    torch.testing.assert_close(program(tokens), model(tokens))
    (form,) = program.signature["state"]
    assert (form["name"], form["aliases"]) == ("embed.weight", ["head.weight"])


def test_an_index_out_of_range_is_an_error(tmp_path: Path) -> None:
    program = roundtrip(tmp_path, nn.Embedding(5, 3), torch.tensor([0]))
    with pytest.raises(RuntimeError, match=r"out of range|out of bounds"):
        program(torch.tensor([5]))
    assert program(torch.tensor([4])).shape == (1, 3)


def test_what_the_function_made_of_data(tmp_path: Path) -> None:
    program = roundtrip(tmp_path, lambda x: x + torch.tensor([1.0, 2.0]), torch.ones(2), dynamic={"x": {0: [1, 2]}})
    assert program(torch.zeros(2)).tolist() == [1, 2]
    assert program(torch.zeros(1)).tolist() == [1, 2]


def test_an_argument_is_updated(tmp_path: Path) -> None:
    def write(cache: torch.Tensor, at: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, at, value)
        return cache.sum()

    program = roundtrip(tmp_path, write, (torch.zeros(4, 2), torch.tensor([0]), torch.zeros(1, 2)))
    cache = torch.zeros(4, 2)
    assert program(cache, torch.tensor([2]), torch.ones(1, 2)).item() == 2
    assert cache[2].tolist() == [1, 1]


def test_random_numbers_are_those_of_the_device(tmp_path: Path) -> None:
    drop = nn.Dropout(0.5)
    program = roundtrip(tmp_path, drop, torch.ones(64))
    torch.manual_seed(5)
    fn = torch_pjrt.jit(drop, (torch.ones(64, device="pjrt"),))
    torch.manual_seed(5)
    expected = [fn(torch.ones(64, device="pjrt")).cpu() for _ in range(3)]
    program.manual_seed(5)
    for each in expected:
        assert torch.equal(program(torch.ones(64)), each)
    assert program.state()["random_state"].tolist() == [5, 3]


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.bool, torch.complex64]
)
def test_dtypes(tmp_path: Path, dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1, 0]).to(dtype)
    program = roundtrip(tmp_path, lambda x: (x, torch.cat([x, x])), x)
    a, b = program(x)
    assert a.dtype is dtype
    assert torch.equal(a, x)
    assert torch.equal(b, torch.cat([x, x]))


def test_an_exported_program_of_pytorch(net: Net, tmp_path: Path) -> None:
    images = torch.randn(2, 1, 8, 8)
    program = roundtrip(tmp_path, torch.export.export(net, (images,)), images)
    torch.testing.assert_close(program(images), net(images))
    assert "features.0.weight" in program.state()


@pytest.mark.parametrize("freeze", [False, True])
def test_keywords_of_an_exported_program(tmp_path: Path, freeze: bool) -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, by: torch.Tensor, *, plus: torch.Tensor) -> torch.Tensor:
            return x * by + plus

    x, by, plus = torch.randn(2, 3), torch.randn(3), torch.randn(3)
    given = torch.export.export(Scaled(), (x,), {"plus": plus, "by": by})
    torch_pjrt.export(given, {"x": x, "by": by, "plus": plus}, freeze=freeze).save(tmp_path / "it.pjrt")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    torch.testing.assert_close(program(x, plus=plus, by=by), x * by + plus)
    with pytest.raises(TypeError, match="too many positional arguments"):
        program(x, by, plus=plus)


def test_plain_stablehlo(net: Net) -> None:
    text = torch_pjrt.export(net, torch.randn(2, 1, 8, 8)).stablehlo()
    assert "func.func public @main" in text
    assert "tensor<2x1x8x8xf32>" in text


def test_as_jax_exports(net: Net) -> None:
    jax_export = pytest.importorskip("jax.export")
    images = torch.randn(2, 1, 8, 8)
    program = torch_pjrt.export(net, images)
    exported = jax_export.deserialize(program.jax_export().serialize())
    state = program.state()
    parameters = program.entries["main"].variants[0].parameters
    given = [state[p["state"]].detach().numpy() if "state" in p else images.numpy() for p in parameters]
    (result,) = exported.call(*given)
    np.testing.assert_allclose(np.asarray(result), net(images).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_numpy_examples(tmp_path: Path) -> None:
    program = roundtrip(tmp_path, lambda x: x * 2, np.ones((2, 2), np.float32))
    assert program(np.ones((2, 2), np.float32)).tolist() == [[2, 2], [2, 2]]


def test_what_has_dlpack(tmp_path: Path) -> None:
    class Array:
        def __init__(self) -> None:
            self.inside = torch.ones(2, 2)

        def __dlpack__(self, **kwargs: Any) -> Any:
            return self.inside.__dlpack__(**kwargs)

        def __dlpack_device__(self) -> Any:
            return self.inside.__dlpack_device__()

    program = roundtrip(tmp_path, lambda x: x * 2, torch.ones(2, 2))
    assert program(Array()).tolist() == [[2, 2], [2, 2]]
    assert np.from_dlpack(program(Array())).tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.ones(2, 2, device="meta"), "has no data: it is on meta"),
        (np.ones((2, 2), ">f4"), "is no tensor, and can't be made one: given numpy array has byte order"),
        (object(), "is no tensor, and can't be made one"),
        (torch.ones(2, 2).to_sparse(), "is sparse: give what it is made of"),
    ],
    ids=["meta", "big endian", "object", "sparse"],
)
def test_arguments_that_are_no_tensors_with_data(tmp_path: Path, given: Any, message: str) -> None:
    program = roundtrip(tmp_path, lambda x: x * 2, torch.ones(2, 2))
    with pytest.raises(TypeError, match=f"argument 'x' {message}"):
        program(given)


@pytest.mark.parametrize("name", ["state", "path", "no identifier", ""])
def test_names_that_no_entry_can_have(name: str) -> None:
    with pytest.raises(ValueError, match="is no identifier"):
        torch_pjrt.export(lambda x: x, torch.ones(1), name=name)


def test_what_has_no_form_in_a_file(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"a object is neither a tensor nor plain data|a object at"):
        torch_pjrt.export(lambda x, y: x, (torch.ones(1), object()))
    with pytest.raises(TypeError, match="complex128"):
        torch_pjrt.export(lambda x: x, torch.ones(1, dtype=torch.complex128))
    with pytest.raises(TypeError, match="export the function that it was made of"):
        torch_pjrt.export(torch_pjrt.jit(lambda x: x, (torch.ones(1),)), torch.ones(1))
    with pytest.raises(torch_pjrt.CaptureError, match="needs the value"):
        torch_pjrt.export(lambda x: x if x.sum() > 0 else -x, torch.ones(1))
    with pytest.raises(TypeError, match="not int"):
        torch_pjrt.export(3, torch.ones(1))  # type: ignore[arg-type]
    with pytest.raises(OSError, match="can't be written"):
        torch_pjrt.export(lambda x: x, torch.ones(1)).save(tmp_path / "no" / "it.pjrt")
    with pytest.raises(RuntimeError, match="can't be opened: No such file"):
        torch_pjrt.load(tmp_path / "none.pjrt")


def test_a_damaged_file_is_refused(net: Net, tmp_path: Path) -> None:
    torch_pjrt.export(net, torch.randn(2, 1, 8, 8)).save(tmp_path / "it.pjrt")
    whole = (tmp_path / "it.pjrt").read_bytes()
    (tmp_path / "cut.pjrt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RuntimeError, match=r"cut.pjrt' is no program's file, or is truncated.*export it anew"):
        torch_pjrt.load(tmp_path / "cut.pjrt")
    at = whole.index(net.head.weight.detach().numpy().tobytes()) + 5
    altered = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    (tmp_path / "altered.pjrt").write_bytes(altered)
    with pytest.raises(RuntimeError, match=r"was altered: the checksum of weights.safetensors"):
        torch_pjrt.load(tmp_path / "altered.pjrt")


def test_state_that_shares_memory_which_is_updated() -> None:
    class Halved(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("whole", torch.ones(4))
            self.register_buffer("part", self.whole[:2])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * self.part
            self.whole.mul_(0.5)
            return y

    with pytest.raises(torch_pjrt.CaptureError, match=r"'(whole|part)' and '(whole|part)' share memory"):
        torch_pjrt.export(Halved(), torch.ones(2))


def test_a_file_from_before_parameters_had_kinds() -> None:
    """``def called(x, pair, *more, scale=2.0, **named)``: ``layer(x["deep"][0]) * scale + sum(more)``, and the pair
    turned with ``named["last"]``; as ``positional`` without keywords, and as ``keywords`` with ``scale=3.0``."""
    Pair = collections.namedtuple("Pair", ["a", "b"])
    program = torch_pjrt.load(Path(__file__).with_name("before.pjrt"))
    state = program.state()
    x, pair, more = torch.randn(2, 3), Pair(torch.randn(1), torch.randn(2)), (torch.randn(2, 2), torch.randn(2, 2))
    product = F.linear(x, state["weight"], state["bias"])
    got = program.positional({"deep": (x,)}, pair, *more)
    torch.testing.assert_close(got["sum"], product * 2 + sum(more))
    got = program.keywords(pair=pair, x={"deep": (x,)}, last=torch.ones(2))
    torch.testing.assert_close(got["sum"], product * 3)
    assert got["pair"]._fields == ("a", "b")
    assert torch.equal(got["pair"].a, pair.b)
    assert got["pair"].b[2].tolist() == [1, 1]
    with pytest.raises(TypeError, match="'more': expected 2 items, got 1 items"):
        program.positional({"deep": (x,)}, pair, more[0])
    with pytest.raises(TypeError, match="last is missing"):
        program.keywords({"deep": (x,)}, pair)


def test_buffers_with_gaps_and_overlaps(tmp_path: Path) -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("spread", torch.randn(3, 1).expand(3, 4))
            self.register_buffer("every_other", torch.randn(8)[::2])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.every_other.add_(1)
            return x + self.spread + self.every_other

    held, x = Held(), torch.randn(3, 4)
    exported = torch_pjrt.export(held, x)
    exported.add("twice", lambda x: 2 * held(x), x)
    exported.save(tmp_path / "held.pjrt")
    program = torch_pjrt.load(tmp_path / "held.pjrt")
    assert held.spread.stride() == (1, 0)
    assert set(program.state()) == {"spread", "every_other"}
    torch.testing.assert_close(program(x), held(x))
    torch.testing.assert_close(program.twice(x), 2 * held(x))
