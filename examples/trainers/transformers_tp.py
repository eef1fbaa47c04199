"""Trains a small Llama, whose layers are split between two processes, with transformers' Trainer.

    torchrun --nproc-per-node 2 examples/trainers/transformers_tp.py

Nothing here names a device. Needs transformers and accelerate.
"""

import tempfile

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(0)
with tempfile.TemporaryDirectory() as folder:
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    LlamaForCausalLM(LlamaConfig(vocab_size=64, **size)).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto")
tokens = torch.randint(64, (32, 16), generator=torch.Generator().manual_seed(0))
arguments = TrainingArguments(
    output_dir=tempfile.gettempdir(),
    max_steps=4,
    per_device_train_batch_size=4,
    learning_rate=1e-2,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(model, arguments, train_dataset=[{"input_ids": row, "labels": row} for row in tokens])
trainer.train()
if dist.get_rank() == 0:
    for entry in trainer.state.log_history[:-1]:
        print(f"loss {float(entry['loss']):.6f}")
dist.destroy_process_group()
