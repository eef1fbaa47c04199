"""Models of timm, with as few blocks as their constructors allow."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from zoo.model import Absent, Built

VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}
STAGES = {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)}
MODELS: dict[str, dict[str, Any]] = {
    "resnet18": {"layers": (1, 1, 1, 1)},
    "resnext50_32x4d": {"layers": (1, 1, 1, 1)},
    "seresnet18": {"layers": (1, 1, 1, 1)},
    "skresnet18": {"layers": (1, 1, 1, 1)},
    "res2net50_26w_4s": {"layers": (1, 1, 1, 1)},
    "resnest14d": {},
    "resnetv2_50": {"layers": (1, 1, 1, 1)},
    "densenet121": {"block_config": (2, 2, 2, 2)},
    "vgg11_bn": {},
    "lcnet_050": {},
    "mobilenetv3_small_050": {},
    "tinynet_e": {},
    "ghostnet_050": {},
    "regnetx_002": {},
    "repvgg_a0": {},
    "convnext_atto": STAGES,
    "convnextv2_atto": STAGES,
    "vit_tiny_patch16_224": VIT,
    "deit_tiny_distilled_patch16_224": VIT,
    "beit_base_patch16_224": VIT,
    "eva02_tiny_patch14_224": VIT,
    "mixer_s16_224": {"img_size": 32},
    "gmlp_ti16_224": {"img_size": 32},
    "resmlp_12_224": {"img_size": 32},
    "swin_tiny_patch4_window7_224": {
        "img_size": 32, "window_size": 4, "embed_dim": 16, "depths": (2, 2), "num_heads": (2, 4),
    },
    "poolformer_s12": {},
    "edgenext_xx_small": {"depths": (1, 1, 1, 1)},
    "cait_xxs24_224": {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2},
    "xcit_nano_12_p16_224": {"img_size": 32, "depth": 2},
    "mobilevit_xxs": {},
    "levit_128s": {"img_size": 64},
    "pvt_v2_b0": {"depths": (1, 1, 1, 1)},
    "starnet_s1": {},
    "mambaout_femto": {"depths": (1, 1, 1, 1)},
}  # fmt: skip


def models() -> dict[str, Callable[[], Built]]:
    if importlib.util.find_spec("timm") is None:
        raise Absent("timm is not installed")
    return {name: functools.partial(build, name) for name in MODELS}


def build(name: str) -> Built:
    import timm

    options = MODELS[name]
    side = options.get("img_size", 32)
    return Built(timm.create_model(name, num_classes=5, **options), (torch.randn(2, 3, side, side),))
