"""Run by each of two processes: a model of transformers whose layers are split between them. Prints its results."""

from __future__ import annotations

import json
import sys
import warnings

import torch
import transformers

import torch_pjrt  # noqa: F401

warnings.simplefilter("ignore")
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], tp_plan="auto").eval()
weight = model.model.layers[0].mlp.up_proj.weight
assert isinstance(weight, torch.distributed.tensor.DTensor) or weight.shape[0] == 16
assert model.device.type == "pjrt"
result = model(torch.arange(6, device=model.device)[None]).logits
result = result.full_tensor() if isinstance(result, torch.distributed.tensor.DTensor) else result
print(json.dumps(result.tolist()))
torch.distributed.destroy_process_group()
