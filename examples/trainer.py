"""Trains a small language model with transformers' Trainer, then resumes from the checkpoint in the middle.

Nothing here names a device: the Trainer takes the one that PyTorch has. Needs transformers and accelerate.
"""

import codecs
import contextlib
import io
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

with contextlib.redirect_stdout(io.StringIO()):
    import this

TEXT = codecs.decode(this.s, "rot13")
LENGTH, STEPS = 32, 40


class Passages(torch.utils.data.Dataset):
    """Passages of the text, one token per character."""

    def __init__(self) -> None:
        letters = {letter: index for index, letter in enumerate(sorted(set(TEXT)))}
        self.tokens = torch.tensor([letters[letter] for letter in TEXT])
        self.vocabulary = len(letters)

    def __len__(self) -> int:
        return len(self.tokens) - LENGTH

    def __getitem__(self, start: int) -> dict[str, torch.Tensor]:
        passage = self.tokens[start : start + LENGTH]
        return {"input_ids": passage, "labels": passage}


def train(folder: str, checkpoint: str | None = None) -> list[float]:
    """Trains to the last step; returns the logged losses, including those before the checkpoint."""
    passages = Passages()
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=STEPS,
        per_device_train_batch_size=16,
        learning_rate=1e-2,
        bf16=True,
        logging_steps=10,
        save_steps=STEPS // 2,
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )
    set_seed(0)
    size = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": LENGTH}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=passages.vocabulary, bos_token_id=0, eos_token_id=0, **size))
    trainer = Trainer(model=model, args=arguments, train_dataset=passages)
    trainer.train(resume_from_checkpoint=checkpoint)
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    print(f"on {trainer.model.device}: losses {losses}")
    return losses


with tempfile.TemporaryDirectory() as folder:
    straight = train(folder)
    resumed = train(folder, f"{folder}/checkpoint-{STEPS // 2}")

if straight[-1] > straight[0] * 0.9:
    raise SystemExit(f"it didn't learn: {straight}")
if resumed != straight:
    raise SystemExit(f"the run that was resumed went another way: {resumed}, not {straight}")
print("the run that was resumed went the same way")
