"""Kinds of ``generate()``, each with its arguments and the number of programs that it makes."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

import torch_pjrt

TOKENS = 48
NAMES = {"vocab_size": 97, "bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
SIZES = {
    "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip


def gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(GPT2Config(n_layer=3, n_head=2, n_embd=32, n_positions=64, **NAMES))


def llama() -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SIZES, **NAMES))


def mixtral() -> PreTrainedModel:
    return MixtralForCausalLM(MixtralConfig(num_local_experts=4, **SIZES, **NAMES))


def t5() -> PreTrainedModel:
    return T5ForConditionalGeneration(
        T5Config(d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, decoder_start_token_id=0, **NAMES)
    )


STATIC = {"cache_implementation": "static", "disable_compile": True}
SAMPLING = {"do_sample": True, "top_k": 10, "temperature": 0.8}
KINDS: dict[str, tuple[Callable[[], PreTrainedModel], dict[str, object]]] = {
    "GPT-2": (gpt2, {}),
    "GPT-2, static": (gpt2, STATIC),
    "GPT-2, sampling": (gpt2, SAMPLING),
    "Llama": (llama, {}),
    "Llama, static": (llama, STATIC),
    "Mixtral": (mixtral, {}),
    "Mixtral, static": (mixtral, STATIC),
    "T5, static": (t5, STATIC),
    "T5, beams": (t5, {"num_beams": 3}),
}


@torch.no_grad()
def generated(
    model: PreTrainedModel, prompt: torch.Tensor, how: dict[str, object], count: int = TOKENS
) -> list[list[int]]:
    torch.manual_seed(0)
    prompt = prompt.to(model.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, **how).tolist()


def programs_of(kind: str, tokens: int = TOKENS, **more: object) -> int:
    """Returns the number of programs that it makes in this process. Its tokens are the CPU's, if it draws nothing."""
    torch.manual_seed(0)
    make, how = KINDS[kind][0], {**KINDS[kind][1], **more}
    model = make().eval()
    moved = copy.deepcopy(model).to("pjrt")
    prompt = torch.randint(1, 96, (1, 9))
    torch_pjrt.reset_metrics()
    made = generated(moved, prompt, how, tokens)
    metrics = torch_pjrt.metrics()
    assert metrics["host_fallbacks"] == {}
    assert len(made[0]) >= tokens
    if "do_sample" not in how:
        assert made == generated(model, prompt, how, tokens)
    return metrics["graphs_compiled"] + metrics["graphs_loaded_from_disk"]
