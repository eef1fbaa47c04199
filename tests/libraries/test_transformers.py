"""transformers: on which device its Trainer and pipelines run, and examples/trainer.py."""

from __future__ import annotations

import copy
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torch_pjrt
from tests import fresh, ranks

pytest.importorskip("accelerate", reason="accelerate, of requirements.lock")
transformers = pytest.importorskip("transformers", reason="transformers, of requirements.lock")

ROOT = Path(__file__).resolve().parents[2]


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 8)
        self.outer = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = nn.functional.dropout(self.inner(x).relu(), 0.5 if self.training else 0.0)
        return {"loss": (self.outer(hidden).squeeze(1) - labels).square().mean()}


DATA = [{"x": [float(i), 1.0, 0.0, i / 8], "labels": float(i % 3)} for i in range(8)]


def trainer(folder: Path, **options: Any) -> Any:
    transformers.set_seed(0)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), report_to="none", disable_tqdm=True, per_device_train_batch_size=8, seed=0, **options
    )
    return transformers.Trainer(model=Regression(), args=arguments, train_dataset=DATA, eval_dataset=DATA)


@pytest.mark.parametrize(
    ("environment", "options", "device"),
    [
        ({}, {}, "pjrt"),
        ({}, {"bf16": True}, "pjrt"),
        ({}, {"use_cpu": True}, "cpu"),
        ({"ACCELERATE_USE_CPU": "1"}, {}, "cpu"),
        ({"ACCELERATE_TORCH_DEVICE": "cpu"}, {}, "cpu"),
    ],
)
def test_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environment: dict[str, str], options: Any, device: str
) -> None:
    """`Trainer`, unless `use_cpu`, `ACCELERATE_USE_CPU` or `ACCELERATE_TORCH_DEVICE` says otherwise."""
    for name in ("ACCELERATE_USE_CPU", "ACCELERATE_TORCH_DEVICE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    made = trainer(tmp_path, **options)
    assert made.args.device.type == made.accelerator.device.type == made.model.inner.weight.device.type == device
    assert made.args.n_gpu == (torch.pjrt.device_count() if device == "pjrt" else 0)


@pytest.mark.thorough
def test_a_run_in_float16_is_resumed(tmp_path: Path) -> None:
    """`TrainingArguments(fp16=True)`, and a checkpoint that is resumed to the same bits."""
    options = {"max_steps": 4, "save_steps": 2, "logging_steps": 1, "fp16": True, "skip_memory_metrics": False}
    straight = trainer(tmp_path, **options)
    result = straight.train()
    assert straight.accelerator.scaler.is_enabled()
    assert result.metrics["train_mem_gpu_peaked_delta"] >= 0
    resumed = trainer(tmp_path, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    torch.testing.assert_close(resumed.model.state_dict(), straight.model.state_dict(), rtol=0, atol=0)
    assert torch.isfinite(torch.tensor(straight.evaluate()["eval_loss"]))


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: index for index, word in enumerate(["[PAD]", "[UNK]", "good", "bad", "film"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    folder = str(tmp_path_factory.mktemp("classifier"))
    size = {"dim": 8, "hidden_dim": 8, "n_layers": 1, "n_heads": 1, "max_position_embeddings": 8}
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(vocab_size=len(words), **size)
    transformers.DistilBertForSequenceClassification(config).save_pretrained(folder)
    return folder, transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    )


@pytest.mark.parametrize(
    ("options", "device"),
    [
        ({}, "pjrt"),
        ({"device": 0}, "pjrt"),
        ({"device": "pjrt"}, "pjrt"),
        ({"device_map": "auto"}, "pjrt"),
        ({"device_map": "pjrt"}, "pjrt"),
        ({"device": -1}, "cpu"),
        ({"device": "cpu"}, "cpu"),
    ],
)
def test_pipeline(classifier: tuple[str, Any], options: Any, device: str) -> None:
    """`pipeline()` with `device=0`, `"pjrt"`, `-1`, `device_map="auto"`, `"pjrt"` or nothing."""
    folder, tokenizer = classifier
    made = transformers.pipeline("text-classification", model=folder, tokenizer=tokenizer, **options)
    assert made.device.type == made.model.device.type == device
    with made.device_placement():
        (result,) = made(["good film"])
    inputs = tokenizer("good film", return_tensors="pt")
    wanted = made.model.cpu()(**inputs).logits.softmax(1).max(1)
    assert result["label"] == f"LABEL_{wanted.indices.item()}"
    assert result["score"] == pytest.approx(wanted.values.item(), abs=1e-5)


def test_a_captured_step_takes_any_mask() -> None:
    """`compile_step` of models that are given an attention mask."""
    config = transformers.LlamaConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=20
    )
    torch.manual_seed(0)
    here = transformers.LlamaForCausalLM(config)
    there = copy.deepcopy(here).to("pjrt")
    optimizer = torch.optim.SGD(here.parameters(), 0.1)
    moved = torch.optim.SGD(there.parameters(), 0.1)

    def step(model: Any, optimizer: torch.optim.SGD, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(input_ids=ids, attention_mask=mask, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    captured = torch_pjrt.compile_step(lambda ids, mask: step(there, moved, ids, mask))
    ids = torch.arange(12).reshape(2, 6)
    padded = torch.ones_like(ids)
    padded[0, :2] = 0
    for mask in (padded, torch.ones_like(ids), padded.flip(0)):
        expected = step(here, optimizer, ids, mask)
        torch.testing.assert_close(captured(ids.to("pjrt"), mask.to("pjrt")).cpu(), expected, rtol=1e-4, atol=1e-5)


def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    """`bf16=True`: examples/trainer.py."""
    runpy.run_path(str(ROOT / "examples/trainer.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert out.count("on pjrt:0: losses") == 2
    assert "went the same way" in out


@pytest.mark.host_memory
def test_tensor_parallel(server: fresh.Server, tmp_path: Path) -> None:
    """`tp_plan="auto"` under torchrun, beside the same model in one process."""
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    torch.manual_seed(0)
    alone = transformers.LlamaForCausalLM(config).eval()
    alone.save_pretrained(tmp_path)
    ids = torch.arange(6)[None]
    wanted = alone(ids).logits.detach()
    for found in ranks.run(server, Path(__file__).with_name("tensor_parallel.py"), 2, tmp_path):
        torch.testing.assert_close(torch.tensor(found), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.host_memory
def test_two_processes(trains_in_two: Callable[[str], None]) -> None:
    """Several processes, with DDP."""
    trains_in_two("transformers")
