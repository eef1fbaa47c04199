"""Trains a small network on scikit-learn's handwritten digits with Lightning, in mixed precision, and resumes it.

Nothing here names a device: Lightning's Trainer takes the accelerator that it finds. Needs lightning.
"""

import tempfile

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


class Digits(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.1),
            nn.Linear(256, 10),
        )

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        images, labels = batch
        loss = F.cross_entropy(self.network(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        images, labels = batch
        self.log("accuracy", (self.network(images).argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def trainer(folder: str, epochs: int) -> lightning.Trainer:
    return lightning.Trainer(
        max_epochs=epochs,
        precision="bf16-mixed",
        default_root_dir=folder,
        gradient_clip_val=1.0,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )


lightning.seed_everything(0)
images, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.tensor(labels))
training, validation = random_split(data, [0.75, 0.25])
loaders = (DataLoader(training, 64, shuffle=True, drop_last=True), DataLoader(validation, 449))

with tempfile.TemporaryDirectory() as folder:
    first = trainer(folder, epochs=2)
    first.fit(Digits(), *loaders)
    first.save_checkpoint(f"{folder}/second.ckpt")
    second = trainer(folder, epochs=6)
    second.fit(Digits(), *loaders, ckpt_path=f"{folder}/second.ckpt")
    accuracy = second.validate(second.model, loaders[1], verbose=False)[0]["accuracy"]

print(f"on {second.strategy.root_device}: {second.global_step} steps, accuracy {accuracy:.3f}")
if accuracy < 0.94:
    raise SystemExit("it didn't learn")
