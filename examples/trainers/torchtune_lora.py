"""Fine-tunes a small Llama with torchtune's LoRA recipe.

    python examples/trainers/torchtune_lora.py

Nothing here names a device. Needs torchtune, and what it imports: datasets, omegaconf, tiktoken, torchdata, torchao, …
"""

import os
import sys
import tempfile
from typing import Any

import torch
from omegaconf import OmegaConf
from torchtune._cli.tune import main
from torchtune.models.llama3 import llama3, lora_llama3

SIZE = {"vocab_size": 64, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "embed_dim": 32, "max_seq_len": 32}


def network(**options: Any) -> torch.nn.Module:
    """Draws the adapters on the CPU, so that they are the same on each device."""
    with torch.device("cpu"):
        model = lora_llama3(**options)
    return model.to(torch.get_default_device())


def samples(tokenizer: object) -> list[dict[str, list[int]]]:
    tokens = torch.randint(64, (32, 16), generator=torch.Generator().manual_seed(0))
    return [{"tokens": row, "labels": row} for row in tokens.tolist()]


def configuration(folder: str) -> dict[str, object]:
    lora = {"lora_attn_modules": ["q_proj", "v_proj"], "apply_lora_to_mlp": True, "lora_rank": 4, "lora_alpha": 8}
    return {
        "model": {"_component_": "torchtune_lora.network", **SIZE, **lora},
        "checkpointer": {
            "_component_": "torchtune.training.FullModelTorchTuneCheckpointer",
            "checkpoint_dir": f"{folder}/base",
            "checkpoint_files": ["model.pt"],
            "model_type": "LLAMA3_2",
            "output_dir": f"{folder}/tuned",
        },
        "tokenizer": {"_component_": "types.SimpleNamespace", "pad_id": 0},
        "dataset": {"_component_": "torchtune_lora.samples"},
        "optimizer": {"_component_": "torch.optim.AdamW", "lr": 0.01},
        "lr_scheduler": {"_component_": "torchtune.training.get_cosine_schedule_with_warmup", "num_warmup_steps": 1},
        "loss": {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
        "metric_logger": {"_component_": "torchtune.training.metric_logging.StdoutLogger"},
        "device": None,
        "dtype": "fp32",
        "seed": 0,
        "shuffle": False,
        "batch_size": 8,
        "epochs": 1,
        "max_steps_per_epoch": 4,
        "gradient_accumulation_steps": 1,
        "clip_grad_norm": 1.0,
        "compile": False,
        "resume_from_checkpoint": False,
        "output_dir": folder,
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        os.mkdir(f"{folder}/base")
        torch.save(llama3(**SIZE).state_dict(), f"{folder}/base/model.pt")
        OmegaConf.save(OmegaConf.create(configuration(folder)), f"{folder}/lora.yaml")
        sys.argv[1:] = ["run", "lora_finetune_single_device", "--config", f"{folder}/lora.yaml"]
        main()
