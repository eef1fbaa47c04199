"""Kinds of ``generate()``, with random weights."""

from __future__ import annotations

import warnings

import torch
import transformers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from .person import draws, person

transformers.logging.set_verbosity_error()
warnings.simplefilter("ignore")

NAMES = {"vocab_size": 200, "bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
SIZES = {
    "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip
STATIC = {"cache_implementation": "static", "disable_compile": True}


@torch.no_grad()
def _generated(model: PreTrainedModel, device: str, rows: int = 1, **how: object) -> torch.Tensor:
    model = model.eval().to(device)
    prompt = torch.randint(1, 200, (rows, 12)).to(device)
    return model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=40, **how)  # type: ignore[operator]


def _gpt2() -> PreTrainedModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=64, n_head=4, n_positions=128, **NAMES))


def _llama() -> PreTrainedModel:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, **NAMES))


def _t5() -> PreTrainedModel:
    torch.manual_seed(0)
    return T5ForConditionalGeneration(
        T5Config(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0, **NAMES)
    )


@person
def generate_gpt2_greedy(device: str) -> object:
    return _generated(_gpt2(), device)


@person
def generate_gpt2_static(device: str) -> object:
    return _generated(_gpt2(), device, **STATIC)


@draws
def generate_gpt2_sampling(device: str) -> object:
    return _generated(_gpt2(), device, do_sample=True, top_p=0.9, temperature=0.8)


@person
def generate_gpt2_beams(device: str) -> object:
    return _generated(_gpt2(), device, num_beams=3)


@person
def generate_gpt2_batch_repetition_penalty(device: str) -> object:
    return _generated(_gpt2(), device, rows=4, repetition_penalty=1.3, no_repeat_ngram_size=3)


@person
def generate_llama_greedy(device: str) -> object:
    return _generated(_llama(), device)


@person
def generate_llama_static(device: str) -> object:
    return _generated(_llama(), device, **STATIC)


@draws
def generate_llama_sampling_batch(device: str) -> object:
    return _generated(_llama(), device, rows=4, do_sample=True, top_k=20)


@person
def generate_mixtral(device: str) -> object:
    torch.manual_seed(0)
    return _generated(MixtralForCausalLM(MixtralConfig(num_local_experts=4, **SIZES, **NAMES)), device)


@person
def generate_qwen2(device: str) -> object:
    torch.manual_seed(0)
    return _generated(Qwen2ForCausalLM(Qwen2Config(**SIZES, **NAMES)), device)


@person
def generate_gpt_neox(device: str) -> object:
    torch.manual_seed(0)
    sizes = {k: v for k, v in SIZES.items() if k != "num_key_value_heads"}
    return _generated(GPTNeoXForCausalLM(GPTNeoXConfig(**sizes, **NAMES)), device)


@person
def generate_opt(device: str) -> object:
    torch.manual_seed(0)
    config = OPTConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, ffn_dim=128, max_position_embeddings=128,
        word_embed_proj_dim=64, **NAMES,
    )  # fmt: skip
    return _generated(OPTForCausalLM(config), device)


@person
def generate_t5_greedy(device: str) -> object:
    return _generated(_t5(), device)


@person
def generate_t5_beams(device: str) -> object:
    return _generated(_t5(), device, num_beams=3)


@person
def generate_bart(device: str) -> object:
    torch.manual_seed(0)
    config = BartConfig(
        d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=128, decoder_start_token_id=0,
        forced_eos_token_id=None, **NAMES,
    )  # fmt: skip
    return _generated(BartForConditionalGeneration(config), device)


@person
@torch.no_grad()
def generate_whisper(device: str) -> object:
    torch.manual_seed(0)
    config = WhisperConfig(
        d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_ffn_dim=128, vocab_size=200, max_source_positions=50, num_mel_bins=20,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None,
        begin_suppress_tokens=None,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config).eval().to(device)
    sound = torch.randn(2, 20, 100).to(device)
    return model.generate(sound, max_new_tokens=30, min_new_tokens=30)
