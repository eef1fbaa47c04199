"""Trains a small model further by litgpt's pretraining. Two devices are two processes, with FSDP.

    python examples/trainers/litgpt_pretrain.py small --devices 2 --out_dir outputs/small

Nothing here names a device. Needs litgpt and lightning.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from litgpt import GPT, Config
from litgpt.args import EvalArgs, TrainArgs
from litgpt.data import DataModule
from litgpt.pretrain import setup

LENGTH = 32


class Tokens(DataModule):
    """Random tokens in place of a corpus."""

    def connect(self, tokenizer: Any = None, batch_size: int = 1, max_seq_length: int | None = None, **_: Any) -> None:
        self.batch_size = batch_size

    def train_dataloader(self) -> Any:
        tokens = torch.randint(64, (32, LENGTH + 1), generator=torch.Generator().manual_seed(0))
        return torch.utils.data.DataLoader(tokens, batch_size=self.batch_size)

    def val_dataloader(self) -> Any:
        return self.train_dataloader()


def main() -> None:
    parser = argparse.ArgumentParser()  # names of litgpt's own arguments, which it reads again
    parser.add_argument("model_name")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--out_dir", type=Path, default=Path("outputs/small"))
    asked = parser.parse_args()
    config = Config(name=asked.model_name, n_layer=2, n_head=4, n_embd=32, block_size=LENGTH, padded_vocab_size=64)
    begin = asked.out_dir / "begin" / "lit_model.pth"
    if not begin.exists():
        torch.manual_seed(0)
        begin.parent.mkdir(parents=True)
        torch.save(GPT(config).state_dict(), begin)
    setup(
        asked.model_name,
        model_config=config,
        initial_checkpoint_dir=begin.parent,
        out_dir=asked.out_dir,
        precision="32-true",
        data=Tokens(),
        train=TrainArgs(
            global_batch_size=8,
            micro_batch_size=8 // asked.devices,
            max_tokens=4 * 8 * LENGTH,
            lr_warmup_steps=1,
            max_norm=1.0,
            log_interval=1,
        ),
        eval=EvalArgs(interval=1000, max_iters=1, final_validation=False),
        optimizer={"class_path": "torch.optim.AdamW", "init_args": {"lr": 1e-2}},
        devices=asked.devices,
        logger_name="csv",
    )


if __name__ == "__main__":
    main()
