"""export(freeze=True): weights that are constants of the file, and the kernels of convolutions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_pjrt
from tests.files import library
from tests.files.test_kernels import run_alone
from torch_pjrt import _C
from torch_pjrt.kernels import onednn


class Block(nn.Module):
    """A model with operations that are fused, and others that aren't."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.deep = nn.Conv2d(16, 16, 3, padding=2, dilation=2, groups=16)
        self.wide = nn.Conv2d(16, 32, 1)
        self.wide_norm = nn.BatchNorm2d(32, affine=False)
        self.skip = nn.Conv2d(16, 32, 1, bias=False)
        self.tied = self.skip
        self.head = nn.Linear(32, 5)
        with torch.no_grad():
            for norm in (self.norm, self.wide_norm):
                norm.running_mean.uniform_(-1, 1)
                norm.running_var.uniform_(0.5, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.stem(images)))
        y = self.wide_norm(self.wide(F.relu6(self.deep(x))))
        y = (y + self.skip(x)).relu_()
        return self.head((y + self.tied(x)).mean((2, 3)))


@pytest.fixture
def block() -> Block:
    torch.manual_seed(2)
    return Block().eval()


def test_gives_what_the_model_gives(block: Block, tmp_path: Path) -> None:
    sizes: Any = {"images": {0: [1, 3]}}
    exported = torch_pjrt.export(block, torch.randn(1, 3, 16, 16), freeze=True, dynamic=sizes)
    exported.add("plain", block, torch.randn(3, 3, 16, 16))
    exported.save(tmp_path / "it.pjrt")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    for n in (1, 3):
        images = torch.randn(n, 3, 16, 16)
        torch.testing.assert_close(program.main(images), block(images), rtol=1e-4, atol=1e-5)
    frozen = {form["name"] for form in program.signature["state"] if form["frozen"]}
    assert {"stem.weight", "wide.weight"} <= frozen, "what is frozen is never set where another entry has it as it was"
    assert {name for name in frozen if name.startswith("frozen.")} == {
        "frozen.stem.weight", "frozen.stem.bias", "frozen.deep.weight", "frozen.deep.bias", "frozen.wide.weight",
        "frozen.wide.bias", "frozen.skip.weight",
    }, "once for all sizes and uses"  # fmt: skip
    assert "stablehlo.rsqrt" not in exported.stablehlo("main"), "norms are part of the weights"
    assert "stablehlo.rsqrt" in exported.stablehlo("plain")


@pytest.mark.parametrize("given", ["ExportedProgram", "pjrt"])
def test_takes_what_export_takes(given: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)).eval()
    images = torch.randn(1, 3, 8, 8)
    expected = model(images).detach()
    wanted: Any = torch.export.export(model, (images,)) if given == "ExportedProgram" else model.to("pjrt")
    if given == "pjrt":
        with pytest.raises(torch_pjrt.CaptureError, match="tensors are on one device"):
            torch_pjrt.export(wanted, images, freeze=True)
    example = images.to("pjrt") if given == "pjrt" else images
    torch_pjrt.export(wanted, example, freeze=True).save(tmp_path / "it.pjrt")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    torch.testing.assert_close(program(images), expected, rtol=1e-4, atol=1e-5)
    assert program.state().keys() == {"frozen.0.weight", "frozen.0.bias"}


def test_what_is_frozen_stays(block: Block, tmp_path: Path) -> None:
    exported = torch_pjrt.export(block, torch.randn(1, 3, 16, 16), freeze=True)
    exported.save(tmp_path / "it.pjrt")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    reported = (
        "'frozen.stem.weight' was frozen when the program was exported, and stays as it is: export the model anew"
    )
    with pytest.raises(RuntimeError, match=reported):
        program.set_state("frozen.stem.weight", torch.zeros(16, 3, 3, 3))
    program.set_state("head.bias", torch.full((5,), 7.0))
    program.save_state(tmp_path / "s.safetensors")
    other = torch_pjrt.load(tmp_path / "it.pjrt")
    other.load_state(tmp_path / "s.safetensors")
    images = torch.randn(1, 3, 16, 16)
    assert torch.equal(other(images), program(images))
    exported.restore(tmp_path / "s.safetensors")
    torch.testing.assert_close(block(images), program(images), rtol=1e-4, atol=1e-5)


def test_what_has_changed_since_it_was_frozen(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 5)).eval()
    images = torch.randn(1, 3, 8, 8)
    exported = torch_pjrt.export(model, images, freeze=True)
    exported.save(tmp_path / "it.pjrt")
    with torch.no_grad():
        model[0].weight.mul_(2)
    reported = "'0.weight' or a norm after it has changed since it was frozen: export anew"
    with pytest.raises(ValueError, match=reported):
        exported.save(tmp_path / "other.pjrt")
    with pytest.raises(ValueError, match=reported):
        exported.add("second", model, images, freeze=True)
    with torch.no_grad():
        model[0].weight.div_(2)
    exported.save(tmp_path / "other.pjrt")
    assert (tmp_path / "other.pjrt").read_bytes() == (tmp_path / "it.pjrt").read_bytes()


def test_what_another_entry_trains_is_not_frozen(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 5)).eval()
    images, optimizer = torch.randn(1, 3, 8, 8), torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    exported = torch_pjrt.export(torch_pjrt.compile_step(step), images, name="train_step")
    with pytest.raises(ValueError, match=r"entry 'predict': '0.bias' is updated by one entry and frozen by another"):
        exported.add("predict", model, images, freeze=True)
    exported.add("predict", model, images)
    exported.save(tmp_path / "it.pjrt")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    program.train_step(images)
    step(images)
    torch.testing.assert_close(program.predict(images), model(images), rtol=1e-4, atol=1e-5)


def test_an_image_without_a_batch_is_as_it_is(tmp_path: Path) -> None:
    """The norm's channels are another dimension than the convolution's."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm1d(16)).eval()
    model[1].running_mean.copy_(torch.linspace(-1, 1, 16))
    image = torch.randn(3, 16, 16)
    torch_pjrt.export(model, image, freeze=True).save(tmp_path / "it.pjrt")
    torch.testing.assert_close(torch_pjrt.load(tmp_path / "it.pjrt")(image), model(image), rtol=1e-4, atol=1e-5)


def test_what_torch_export_refuses() -> None:
    class Reads(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(torch_pjrt.CaptureError, match=r"freeze=True: torch\.export, which it stands on, can't export"):
        torch_pjrt.export(Reads().eval(), torch.ones(3), freeze=True)


def test_what_cant_be_frozen(block: Block) -> None:
    images = torch.randn(1, 3, 16, 16)
    with pytest.raises(TypeError, match="freeze=True takes a module or an ExportedProgram, not function"):
        torch_pjrt.export(lambda x: block(x), images, freeze=True)
    with pytest.raises(ValueError, match=r"call eval\(\) on the module"):
        torch_pjrt.export(block.train(), images, freeze=True)
    step = torch_pjrt.compile_step(lambda x: block(x).sum())
    with pytest.raises(TypeError, match="freeze=True is for inference"):
        torch_pjrt.export(step, images, freeze=True)


@pytest.fixture(scope="module")
def kernels() -> Path:
    """Returns the library of oneDNN's kernels."""
    found = library.onednn()
    if found is None:
        pytest.skip("CMake finds no oneDNN 3 (pip install onednn-devel-cpu-gomp)")
    return found


def test_by_onednn(block: Block, kernels: Path, tmp_path: Path) -> None:
    images = torch.randn(2, 3, 64, 64)
    with onednn.register(kernels):
        torch_pjrt.export(block, images, freeze=True).save(tmp_path / "it.pjrt")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    assert "frozen.convolution: torch_pjrt_frozen_convolution of libtorch_pjrt_onednn.so, 4 times" in program.describe()
    for _ in range(2):
        torch.testing.assert_close(program(images), block(images), rtol=1e-4, atol=1e-5)
    np.save(tmp_path / "x.npy", images.numpy())
    result = run_alone(tmp_path / "it.pjrt", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
    assert result.returncode == 0, result.stderr
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), block(images).detach().numpy(), rtol=1e-4, atol=1e-5)
    images[0, 0, 5, 5] = torch.nan
    assert program(images)[0].isnan().all(), "relu keeps NaN"
    assert not program(images)[1].isnan().any()


def test_two_models_keep_their_weights_apart(kernels: Path, tmp_path: Path) -> None:
    """The models run one after the other in the same memory, and both together."""
    images = torch.randn(1, 16, 32, 32)
    models = [nn.Conv2d(16, 16, 3).eval() for _ in range(3)]
    with onednn.register(kernels):
        for i, model in enumerate(models):
            torch_pjrt.export(model, images, freeze=True).save(tmp_path / f"{i}.pjrt")
    for _ in range(2):
        for i, model in enumerate(models):
            torch.testing.assert_close(
                torch_pjrt.load(tmp_path / f"{i}.pjrt")(images), model(images), rtol=1e-4, atol=1e-4
            )


def test_without_its_library(block: Block, kernels: Path, tmp_path: Path) -> None:
    copy = tmp_path / "libs" / kernels.name
    copy.parent.mkdir()
    copy.write_bytes(kernels.read_bytes())
    with onednn.register(copy):
        torch_pjrt.export(block, torch.randn(2, 3, 64, 64), freeze=True).save(tmp_path / "it.pjrt")
    copy.unlink()
    missing = run_alone(tmp_path / "it.pjrt")
    assert "needs the kernel 'torch_pjrt_frozen_convolution' of the library 'libtorch_pjrt_onednn.so'" in missing.stderr
    assert run_alone(tmp_path / "it.pjrt", "--kernels", kernels.parent).returncode == 0
    copy.write_bytes(kernels.read_bytes())  # later tests compare theirs with it


class Products(nn.Module):
    """A model whose second weight is also an embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(96, 128)
        self.wide = nn.Linear(128, 64, bias=False)
        self.last = nn.Linear(128, 96)
        self.last.weight = self.embedding.weight
        self.turned = nn.Parameter(torch.randn(64, 128) / 8)
        self.shift = nn.Parameter(torch.randn(128))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wide(self.embedding(tokens))
        rows = torch.addmm(self.shift, x.flatten(0, 1), self.turned) + x.flatten(0, 1) @ self.turned
        return self.last(rows.view(*x.shape[:2], 128).relu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_products_by_onednn(kernels: Path, dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = Products().to(dtype).eval()
    sizes: Any = {"tokens": {0: [2, 4]}}
    with onednn.register(kernels):
        exported = torch_pjrt.export(model, torch.zeros(2, 96, dtype=torch.long), freeze=True, dynamic=sizes)
        exported.save(tmp_path / "it.pjrt")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    assert "frozen.product: torch_pjrt_frozen_product of libtorch_pjrt_onednn.so, 4 times" in program.describe()
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        with pytest.raises(RuntimeError, match="lacks the instructions"):
            program(torch.zeros(2, 96, dtype=torch.long))
        return
    for n in (2, 4, 2):
        tokens = torch.randint(96, (n, 96))
        wide = model.double()(tokens)
        torch.testing.assert_close(program(tokens).double(), wide, rtol=0, atol=1e-4 if dtype == torch.float32 else 0.2)
        model.to(dtype)
    frozen = {form["name"] for form in program.signature["state"] if form["frozen"]}
    assert frozen == {"embedding.weight", "wide.weight", "turned"}, "biases can be set; no weight is there twice"
    program.set_state("shift", torch.zeros(128, dtype=dtype))
    with pytest.raises(RuntimeError, match="'turned' was frozen when the program was exported"):
        program.set_state("turned", torch.zeros(64, 128, dtype=dtype))
    with torch.no_grad():
        model.turned.mul_(2)
    with pytest.raises(ValueError, match="'turned' has changed since it was frozen: export anew"):
        exported.save(tmp_path / "other.pjrt")


def test_products_that_the_library_leaves(kernels: Path) -> None:
    """Weights aren't frozen for few rows in float32, for float64, and without the library."""
    few, rows = torch.randn(4, 512), torch.randn(128, 512)
    model = nn.Linear(512, 512).eval()
    with onednn.register(kernels):
        cases = [(model, few, True), (model, rows, False), (nn.Linear(512, 512).double().eval(), rows.double(), True)]
        for given, example, is_left in cases:
            (entry,) = (form for form in torch_pjrt.export(given, example, freeze=True).signature("text")["state"]
                        if form["name"] == "weight")  # fmt: skip
            assert entry["frozen"] is not is_left
    assert not torch_pjrt.export(model, rows, freeze=True).frozen.matrices


def test_claims_of_the_library() -> None:
    """The table of claims, whose rows for files don't depend on this machine."""
    product, convolution = partial(_C.is_claimed, "file_product"), partial(_C.is_claimed, "file_convolution")
    assert product(torch.float32, 1 << 19, rows=64)
    assert not product(torch.float32, 1 << 19, rows=63)
    assert not product(torch.float32, (1 << 19) - 1, rows=64)
    assert product(torch.bfloat16, 1 << 19)
    assert not product(torch.float64, 1 << 19, rows=64)
    assert convolution(torch.float32, 1 << 19, stride=2, size=2)
    assert not convolution(torch.bfloat16, 1 << 19, stride=2, size=2)  # oneDNN reads out of bounds
    assert convolution(torch.bfloat16, 1 << 19, stride=2, size=3)
    assert not convolution(torch.float32, 0)
    with pytest.raises(ValueError, match="no claims are made for 'sort'"):
        _C.is_claimed("sort", torch.float32, 1)


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU6()], ids=["relu", "relu6"])
def test_convolutions_in_bfloat16_by_onednn(kernels: Path, activation: nn.Module, tmp_path: Path) -> None:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), activation).bfloat16().eval()
    images = torch.randn(2, 16, 32, 32, dtype=torch.bfloat16) * 8
    images[0, 0, 5, 5] = torch.nan
    with onednn.register(kernels):
        torch_pjrt.export(model, images, freeze=True).save(tmp_path / "it.pjrt")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    assert "frozen.convolution: torch_pjrt_frozen_convolution of" in program.describe()
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        with pytest.raises(RuntimeError, match="lacks the instructions"):
            program(images)
        return
    wide = model.double()(images.double())
    torch.testing.assert_close(program(images).double(), wide, rtol=0.02, atol=0.1, equal_nan=True)
    assert wide.isnan().any()


def test_bfloat16_strided_to_few_columns_is_xlas(kernels: Path, tmp_path: Path) -> None:
    """For these sizes oneDNN's kernel by tiles reads out of bounds."""
    model = nn.Conv2d(64, 64, 3, stride=2).bfloat16().eval()
    images = torch.randn(16, 64, 33, 5, dtype=torch.bfloat16)
    with onednn.register(kernels):
        torch_pjrt.export(model, images, freeze=True).save(tmp_path / "it.pjrt")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    assert "declined: it is small, or is of bfloat16 and strided to one or two columns" in program.describe()
    torch.testing.assert_close(program(images), model(images), rtol=0.02, atol=0.02)


def test_a_processor_without_bfloat16(kernels: Path, tmp_path: Path) -> None:
    with onednn.register(kernels):
        torch_pjrt.export(nn.Linear(512, 512).bfloat16().eval(), torch.ones(8, 512).bfloat16(), freeze=True).save(
            tmp_path / "it.pjrt"
        )
    result = run_alone(tmp_path / "it.pjrt", ONEDNN_MAX_CPU_ISA="AVX2")
    assert result.returncode != 0
    assert "bfloat16 needs AVX-512): export the model in float32, or without torch_pjrt.kernels.onednn" in result.stderr


def test_a_library_is_registered_once(kernels: Path) -> None:
    with onednn.register(kernels):
        with pytest.raises(ValueError, match=r"is registered for 'frozen\.convolution' on cpu already"):
            onednn.register(kernels)
        assert onednn.is_registered()
    assert not onednn.is_registered()
