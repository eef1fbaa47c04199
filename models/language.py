"""Models of the package transformers, with random weights: BERT, GPT-2 and a Llama."""

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
    """Returns a BERT with the sizes of BERT-base unless `config` has others."""
    return BertForSequenceClassification(BertConfig(num_hidden_layers=layers, num_labels=2, **config))


def gpt2(layers: int = 12, **config: object) -> GPT2LMHeadModel:
    """Returns a GPT-2 with the sizes of the smallest one unless `config` has others."""
    return GPT2LMHeadModel(GPT2Config(n_layer=layers, **config))


def llama(layers: int = 4, **config: object) -> LlamaForCausalLM:
    """Returns a small Llama, with four query heads per key head unless `config` has others."""
    sizes = {
        "vocab_size": 8000, "hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8,
        "num_key_value_heads": 2, "max_position_embeddings": 1024,
    }  # fmt: skip
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=layers, **{**sizes, **config}))
