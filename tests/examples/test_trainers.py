"""examples/trainers: what other people's trainers compute on several devices is what one process does.

Trainers that the environment lacks are installed in a folder of the test's own, and skipped where the index has none.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from tests import fresh, ranks

TRAINERS = Path(__file__).resolve().parents[2] / "examples/trainers"
TORCHTITAN = (
    "torchtitan==0.3.0 torchdata torch_checkpointing datasets tyro typeguard docstring_parser spmd_types==0.2.3 "
    "einops pyarrow pandas xxhash multiprocess dill tensorboard protobuf triton"
)
LITGPT = "litgpt==0.5.13 jsonargparse typeshed_client docstring_parser"
TORCHTUNE = (
    "torchtune==0.6.1 torchao==0.13.0 torchdata datasets pyarrow pandas xxhash multiprocess dill omegaconf "
    "antlr4-python3-runtime==4.9.3 sentencepiece tiktoken blobfile pycryptodomex lxml kagglehub kagglesdk protobuf"
)
ON_THE_CPU = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TORCHDYNAMO_DISABLE": "1"}
pytestmark = pytest.mark.host_memory


def losses(text: str) -> list[float]:
    return [float(each) for each in re.findall(r"\bloss(?: train)?:? *(\d+\.\d+)", re.sub(r"\x1b\[[\d;]*m", "", text))]


def under_torchrun(server: fresh.Server, script: str, size: int, *arguments: str, loads: bool = True) -> list[float]:
    """Returns the losses that the first of the processes prints."""
    file = TRAINERS / f"{script}.py"
    started = {"TORCHELASTIC_RUN_ID": "0"}  # by which Lightning knows torchrun
    jobs = [
        fresh.Job(file.read_text(), arguments, {**environment, **started}, str(file), loads=loads)
        for environment in ranks.environments(size)
    ]
    return losses(server.run(*jobs)[0].out)


def trained_alone(
    model: torch.nn.Module, loss_of: Callable[[torch.Tensor], torch.Tensor], rows: torch.Tensor, clip: float = 0
) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = []
    for batch in rows.split(8):
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        found.append(loss.item())
    return found


def test_accelerate_fsdp2(server: fresh.Server) -> None:
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=64, **size))
    tokens = torch.randint(64, (32, 16), generator=torch.Generator().manual_seed(0))
    wanted = trained_alone(model, lambda rows: model(input_ids=rows, labels=rows).loss, tokens, clip=1)
    assert under_torchrun(server, "accelerate_fsdp2", 2) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("strategy", [pytest.param("fsdp", marks=pytest.mark.thorough), "model_parallel"])
def test_lightning(server: fresh.Server, strategy: str) -> None:
    lightning = pytest.importorskip("lightning")
    lightning.seed_everything(0)
    layers = [torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)]
    model = torch.nn.Sequential(*layers)
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    x = x[torch.randperm(64, generator=torch.Generator().manual_seed(0))]  # as DistributedSampler shuffles
    wanted = trained_alone(model, lambda x: functional.mse_loss(model(x), x.square().sum(1, keepdim=True)), x)
    assert under_torchrun(server, "lightning_sharded", 2, strategy) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.thorough
def test_tensor_parallel(server: fresh.Server) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    alone = under_torchrun(server, "transformers_tp", 1, loads=False)
    assert len(alone) == 4
    assert under_torchrun(server, "transformers_tp", 2) == pytest.approx(alone, rel=1e-4)


def installed(folder: Path, packages: str) -> dict[str, str]:
    """Returns an environment in which Python finds the packages."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, *packages.split()]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        pytest.skip(f"pip finds no {packages.split()[0]}: {result.stderr.strip().splitlines()[-1]}")
    return os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "HF_HOME": str(folder)}


def trained(environment: dict[str, str], folder: Path, script: str, *arguments: str) -> list[float]:
    command = [sys.executable, str(TRAINERS / f"{script}.py"), *arguments]
    result = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return losses(result.stdout + result.stderr)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_litgpt(tmp_path: Path) -> None:
    """One device has the CPU's losses. Two processes, of which one prints its own, end with the CPU's weights."""
    environment = installed(tmp_path / "packages", LITGPT)
    wanted = trained(environment | ON_THE_CPU, tmp_path, "litgpt_pretrain", "small", "--out_dir=cpu")
    assert len(wanted) == 4
    found = trained(environment, tmp_path, "litgpt_pretrain", "small", "--out_dir=one")
    assert found == pytest.approx(wanted, abs=2e-3)
    trained(environment, tmp_path, "litgpt_pretrain", "small", "--devices=2", "--out_dir=two")
    begun = torch.load(tmp_path / "cpu/begin/lit_model.pth")
    of_cpu, of_two = (
        torch.load(tmp_path / name / "final/lit_model.pth", map_location="cpu", weights_only=False)["model"]
        for name in ("cpu", "two")
    )
    assert min((of_cpu[name] - begun[name]).abs().max() for name in of_cpu) > 5e-3
    for name, weight in of_cpu.items():
        torch.testing.assert_close(of_two[name], weight, rtol=0, atol=1e-3)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_torchtune(tmp_path: Path) -> None:
    environment = installed(tmp_path / "packages", TORCHTUNE)
    wanted = trained(environment | ON_THE_CPU, tmp_path, "torchtune_lora")
    assert len(wanted) == 4
    assert trained(environment, tmp_path, "torchtune_lora") == pytest.approx(wanted, rel=1e-6)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_torchtitan(tmp_path: Path) -> None:
    """From one device's checkpoint, FSDP2 beside FSDP2 with tensor parallel, which is interrupted and resumed; and one
    device beside a pipeline, and beside tensor parallel in a world."""
    environment = installed(tmp_path / "packages", TORCHTITAN)

    def run(size: int, folder: str, *arguments: str, **more: str) -> list[float]:
        command = [sys.executable]
        if size > 1:
            command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
        command += [str(TRAINERS / "torchtitan_llama.py"), "--layers", "2", "--folder", folder, *arguments]
        result = subprocess.run(command, env=environment | more, cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        of_steps = {
            int(step): found
            for step, found in re.findall(
                r"step: +(\d+) +(loss: +[\d.]+)", re.sub(r"\x1b\[[\d;]*m", "", result.stdout + result.stderr)
            )
        }
        return [losses(of_steps[step])[0] for step in sorted(of_steps)]

    run(1, "split", "--begin")
    for folder in ("sharded", "alone", "world", "piped"):
        shutil.copytree(tmp_path / "split", tmp_path / folder)
    sharded = run(2, "sharded", "--steps", "3", "--save")
    assert len(sharded) == 3
    split = run(4, "split", "--steps", "2", "--tensor", "2", "--save")
    split += run(4, "split", "--steps", "3", "--tensor", "2", "--save")
    assert split == pytest.approx(sharded, rel=1e-4)
    alone = run(1, "alone", "--steps", "2", "--save")
    assert run(2, "piped", "--steps", "2", "--pipeline", "2", "--save") == pytest.approx(alone, rel=1e-4)
    assert run(1, "world", "--steps", "2", "--tensor", "2", "--save", WORLD_SIZE="2") == pytest.approx(alone, rel=1e-4)
