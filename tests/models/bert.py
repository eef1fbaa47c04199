"""BERT as transformers defines it, two layers, with random weights."""

from __future__ import annotations

from transformers import BertConfig, BertForSequenceClassification


def bert(layers: int = 2, **config: object) -> BertForSequenceClassification:
    """The sizes of BERT-base unless `config` says otherwise."""
    return BertForSequenceClassification(BertConfig(num_hidden_layers=layers, num_labels=2, **config))
