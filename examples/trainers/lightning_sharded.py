"""Trains a network in two processes with Lightning: FSDP, or FSDP2 by a strategy that takes the module's own sharding.

    python examples/trainers/lightning_sharded.py fsdp
    python examples/trainers/lightning_sharded.py model_parallel

Nothing here names a device. Needs lightning.
"""

import sys

import lightning
import torch
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch.distributed.fsdp import fully_shard
from torch.nn import functional


class Network(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        layers = [
            torch.nn.Linear(8, 32),
            torch.nn.Tanh(),
            torch.nn.Linear(32, 32),
            torch.nn.Tanh(),
            torch.nn.Linear(32, 1),
        ]
        self.layers = torch.nn.Sequential(*layers)

    def configure_model(self) -> None:
        if isinstance(self.trainer.strategy, ModelParallelStrategy):  # FSDPStrategy wraps the module itself
            mesh = self.device_mesh["data_parallel"]
            for layer in (*self.layers[::2], self.layers):
                fully_shard(layer, mesh=mesh)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        x, y = batch
        loss = functional.mse_loss(self.layers(x), y)
        total = self.all_gather(loss.detach()).mean().item()
        self.print(f"loss {total:.6f}")
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    strategies = {"fsdp": FSDPStrategy(), "model_parallel": ModelParallelStrategy(2, 1)}
    lightning.seed_everything(0)
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    data = torch.utils.data.TensorDataset(x, x.square().sum(1, keepdim=True))
    trainer = lightning.Trainer(
        strategy=strategies[sys.argv[1]],
        devices=2,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Network(), torch.utils.data.DataLoader(data, batch_size=4))


if __name__ == "__main__":
    main()
