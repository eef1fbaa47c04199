"""Trains a small Llama of transformers with FSDP2 by accelerate.

    torchrun --nproc-per-node 2 examples/trainers/accelerate_fsdp2.py

Nothing here names a device. Needs accelerate and transformers.
"""

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.utils import set_seed
from transformers import LlamaConfig, LlamaForCausalLM

plugin = FullyShardedDataParallelPlugin(
    fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["LlamaDecoderLayer"]
)
accelerator = Accelerator(fsdp_plugin=plugin)
set_seed(0)
size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, **size))
tokens = torch.randint(64, (32, 16), generator=torch.Generator().manual_seed(0))
model, optimizer, loader = accelerator.prepare(
    model,
    torch.optim.AdamW(model.parameters(), lr=1e-2),
    torch.utils.data.DataLoader(tokens, batch_size=4),
)
for batch in loader:
    loss = model(input_ids=batch, labels=batch).loss
    optimizer.zero_grad()
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    accelerator.print(f"loss {accelerator.reduce(loss.detach(), 'mean').item():.6f}")
accelerator.end_training()
