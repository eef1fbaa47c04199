"""Transformers as the package of that name defines them, with random weights: BERT, GPT-2 and a Llama."""

from __future__ import annotations

from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)


def bert(layers: int = 2, **config: object) -> BertForSequenceClassification:
    """The sizes of BERT-base unless `config` says otherwise."""
    return BertForSequenceClassification(BertConfig(num_hidden_layers=layers, num_labels=2, **config))


def gpt2(layers: int = 12, **config: object) -> GPT2LMHeadModel:
    """The sizes of the smallest GPT-2 unless `config` says otherwise."""
    return GPT2LMHeadModel(GPT2Config(n_layer=layers, **config))


def llama(layers: int = 4, **config: object) -> LlamaForCausalLM:
    """A small Llama, four query heads to a key head, unless `config` says otherwise."""
    sizes = {
        "vocab_size": 8000, "hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8,
        "num_key_value_heads": 2, "max_position_embeddings": 1024,
    }  # fmt: skip
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=layers, **{**sizes, **config}))
