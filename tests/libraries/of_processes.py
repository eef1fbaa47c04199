"""Run by each of two processes: a library trains on half of each batch. Prints a JSON of the resulting parameters, and
of those of PyTorch alone on the CPU, over whole batches."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import warnings
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import torch_pjrt

STEPS, BATCH = 3, 8
X = torch.randn(STEPS * BATCH, 4, generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(X, X.sum(1, keepdim=True))


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def parameters(model: nn.Module) -> list[list[float]]:
    return [p.detach().flatten().tolist() for p in model.parameters()]


def alone() -> list[list[float]]:
    model = network()
    optimizer = optimizer_of(model)
    for x, y in DataLoader(DATA, BATCH):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return parameters(model)


def of_accelerate(rank: int, folder: str) -> list[list[float]]:
    from accelerate import Accelerator

    accelerator = Accelerator()
    assert (accelerator.num_processes, accelerator.process_index) == (2, rank)
    assert accelerator.device == torch.device("pjrt", rank)
    model = network()
    # The loader's batches are those of one process.
    model, optimizer, loader = accelerator.prepare(model, optimizer_of(model), DataLoader(DATA, BATCH // 2))
    assert isinstance(model, nn.parallel.DistributedDataParallel)
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.mse_loss(model(x), y))
        optimizer.step()
    both = accelerator.gather(torch.full((2,), float(rank), device=accelerator.device))
    assert both.tolist() == [0, 0, 1, 1]
    assert accelerator.reduce(both, "mean").tolist() == [0, 0, 1, 1]
    accelerator.save_state(folder)
    accelerator.wait_for_everyone()
    accelerator.load_state(folder)
    return parameters(accelerator.unwrap_model(model))


def of_sharding_accelerate(rank: int, folder: str) -> list[list[float]]:
    from accelerate import Accelerator, FullyShardedDataParallelPlugin

    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="size_based_wrap", min_num_params=1)
    accelerator = Accelerator(fsdp_plugin=plugin)
    assert (accelerator.num_processes, accelerator.device) == (2, torch.device("pjrt", rank))
    model = network()
    model, optimizer, loader = accelerator.prepare(model, optimizer_of(model), DataLoader(DATA, BATCH // 2))
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.mse_loss(model(x), y))
        optimizer.step()
    return [p.full_tensor().detach().flatten().tolist() for p in model.parameters()]


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.mse_loss(self.network(x), labels)}


def of_transformers(rank: int, folder: str) -> list[list[float]]:
    from transformers import Trainer, TrainingArguments

    class InOrder(Trainer):
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(DATA)

    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=BATCH // 2,
        num_train_epochs=1,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
    )
    assert (arguments.device, arguments.world_size, arguments.n_gpu) == (torch.device("pjrt", rank), 2, 1)
    model = Regression()
    trainer = InOrder(
        model,
        arguments,
        train_dataset=[{"x": x, "labels": y} for x, y in DATA],
        optimizers=(optimizer_of(model), None),
    )
    trainer.train()
    assert isinstance(trainer.model_wrapped, nn.parallel.DistributedDataParallel)
    return parameters(model)


def of_lightning(rank: int, folder: str) -> list[list[float]]:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            x, y = batch
            loss = nn.functional.mse_loss(self.network(x), y)
            self.log("loss", loss, sync_dist=True)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer_of(self)

    trainer = lightning.Trainer(
        devices=2,
        max_epochs=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        use_distributed_sampler=False,
    )
    # Without torchrun each process has one device.
    assert trainer.strategy.root_device == torch.device("pjrt", rank % torch.pjrt.device_count())
    module = Module()
    sampler = DistributedSampler(DATA, 2, rank, shuffle=False)
    trainer.fit(module, DataLoader(DATA, BATCH // 2, sampler=sampler))
    assert trainer.world_size == 2
    return parameters(module)


def of_sharding_lightning(rank: int, folder: str) -> list[list[float]]:
    import lightning
    from lightning.pytorch.strategies import FSDPStrategy
    from torch.distributed.fsdp import FullyShardedDataParallel

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()
            self.found: list[list[float]] = []

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return nn.functional.mse_loss(self.network(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer_of(self)

        def on_train_end(self) -> None:
            with FullyShardedDataParallel.summon_full_params(self.trainer.strategy.model):
                self.found = parameters(self)

    trainer = lightning.Trainer(
        devices=2,
        strategy=FSDPStrategy(),
        max_epochs=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=folder,
        use_distributed_sampler=False,
    )
    module = Module()
    sampler = DistributedSampler(DATA, 2, rank, shuffle=False)
    trainer.fit(module, DataLoader(DATA, BATCH // 2, sampler=sampler))
    return module.found


LIBRARIES = {
    "accelerate": of_accelerate,
    "accelerate, sharding": of_sharding_accelerate,
    "transformers": of_transformers,
    "lightning": of_lightning,
    "lightning, sharding": of_sharding_lightning,
}
REDUCTIONS = ("c10d::allreduce_", "c10d::_reduce_scatter_base_")


def main(library: str, folder: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        found = LIBRARIES[library](int(os.environ.get("LOCAL_RANK", "0")), folder)
    counted = torch_pjrt.metrics()["host_fallbacks"]
    print(json.dumps({"alone": alone(), "found": found, "reductions": sum(counted.get(op, 0) for op in REDUCTIONS)}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
