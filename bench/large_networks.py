"""ResNet-50 and BERT-base, measured like ResNet-18 and a small BERT in networks.py."""

from __future__ import annotations

from functools import partial

from networks import measured, resnet, sentences

from measure import Result
from models.language import bert
from models.resnet import resnet50


def measure() -> list[Result]:
    networks = {
        "ResNet-50": partial(resnet, make=resnet50),
        "BERT-base": partial(sentences, make=partial(bert, layers=12)),
    }
    return measured(networks, rounds=7)
