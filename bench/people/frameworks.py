"""Programs whose loop is a library's: transformers' Trainer, accelerate, Lightning and its Fabric."""

from __future__ import annotations

import logging
import tempfile
import warnings

import lightning
import torch
import transformers
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

from .person import draws, person

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
    logging.getLogger(name).setLevel(logging.ERROR)
warnings.simplefilter("ignore")

TINY = {"n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 64, "vocab_size": 200}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def _trained(
    device: str, rows: list[dict[str, torch.Tensor]], model: nn.Module, collate: object = None, **how: object
) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=30, per_device_train_batch_size=8, logging_steps=10, save_strategy="no",
            report_to="none", disable_tqdm=True, use_cpu=device == "cpu", seed=0, **how,
        )  # fmt: skip
        trainer = Trainer(model=model, args=arguments, train_dataset=rows, data_collator=collate)  # type: ignore[arg-type]
        trainer.train()
        return [row["loss"] for row in trainer.state.log_history if "loss" in row]


@person
def trainer_fixed_lengths(device: str) -> object:
    transformers.set_seed(0)
    tokens = torch.randint(0, 200, (64, 32))
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    return _trained(device, rows, GPT2LMHeadModel(GPT2Config(**TINY, **NO_DROPOUT)))


@person
def trainer_varying_lengths(device: str) -> object:
    transformers.set_seed(0)

    config = BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=200,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    rows = [
        {"input_ids": torch.randint(1, 200, (int(n),)), "labels": torch.tensor(int(n) % 2)}
        for n in torch.randint(5, 60, (64,))
    ]

    def collate(batch: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        tokens = nn.utils.rnn.pad_sequence([row["input_ids"] for row in batch], batch_first=True)
        labels = torch.stack([row["labels"] for row in batch])
        return {"input_ids": tokens, "attention_mask": (tokens > 0).long(), "labels": labels}

    return _trained(device, rows, BertForSequenceClassification(config), collate)


@person
def trainer_bf16_accumulating(device: str) -> object:
    transformers.set_seed(0)
    tokens = torch.randint(0, 200, (64, 16))
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    model = GPT2LMHeadModel(GPT2Config(**TINY, **NO_DROPOUT))
    return _trained(device, rows, model, bf16=True, gradient_accumulation_steps=2)


@person
def accelerate_loop(device: str) -> object:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=device == "cpu")
    net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    loader = DataLoader(TensorDataset(torch.randn(512, 32), torch.randint(0, 8, (512,))), batch_size=32)
    net, optimizer, loader, schedule = accelerator.prepare(net, optimizer, loader, schedule)
    losses = []
    for _ in range(6):
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        losses.append(loss.item())
    return losses


class _Digits(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)
        )

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        x, y = batch
        self.log("accuracy", (self.net(x).argmax(1) == y).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def _lightning(device: str, precision: str) -> object:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(320, 1, 8, 8), torch.randint(0, 10, (320,)))
    model = _Digits()
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=3, accelerator="cpu" if device == "cpu" else "auto", precision=precision, logger=False,
            default_root_dir=folder, enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=False,
        )  # type: ignore[arg-type]  # fmt: skip
        trainer.fit(model, DataLoader(data, batch_size=32), DataLoader(data, batch_size=64))
    return [float(trainer.callback_metrics["loss"])]


@person
def lightning_float32(device: str) -> object:
    return _lightning(device, "32-true")


@person
def lightning_bfloat16(device: str) -> object:
    return _lightning(device, "bf16-mixed")


@person
def lightning_float16(device: str) -> object:
    return _lightning(device, "16-mixed")


@person
def fabric_loop(device: str) -> object:
    torch.manual_seed(0)
    fabric = lightning.Fabric(accelerator="cpu" if device == "cpu" else "auto", devices=1)
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
    net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9))
    loader = fabric.setup_dataloaders(
        DataLoader(TensorDataset(torch.randn(512, 32), torch.randint(0, 8, (512,))), batch_size=32)
    )
    losses = []
    for _ in range(6):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            fabric.backward(loss)
            optimizer.step()
        losses.append(loss.item())
    return losses


@draws
def preferences_as_trl(device: str) -> object:
    """Direct preference optimization, as in TRL's DPOTrainer: a policy, its reference, pairs of texts."""
    torch.manual_seed(0)
    policy, reference = (GPT2LMHeadModel(GPT2Config(**TINY)).to(device) for _ in range(2))
    reference.load_state_dict(policy.state_dict())
    reference.eval()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)

    def log_probability(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        scores = model(tokens).logits[:, :-1].log_softmax(-1)
        return scores.gather(2, tokens[:, 1:, None]).squeeze(2).sum(1)

    losses = []
    for _ in range(15):
        chosen, rejected = (torch.randint(0, 200, (4, 24)).to(device) for _ in range(2))
        with torch.no_grad():
            before = log_probability(reference, chosen) - log_probability(reference, rejected)
        loss = -F.logsigmoid(
            0.1 * (log_probability(policy, chosen) - log_probability(policy, rejected) - before)
        ).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
