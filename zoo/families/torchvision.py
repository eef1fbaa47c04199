"""Classifiers of torchvision. Its detectors need operators of its binary, which may be for another PyTorch."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from zoo.model import Absent, Built

SIDES = {"alexnet": 64, "squeezenet1_1": 48, "vgg11": 32, "inception_v3": 80}
CLASSIFIERS = (
    "alexnet", "squeezenet1_1", "vgg11", "resnet18", "wide_resnet", "mobilenet_v2", "mobilenet_v3_small",
    "shufflenet_v2_x0_5", "mnasnet0_5", "googlenet", "densenet", "vision_transformer", "swin", "swin_v2", "maxvit",
    "convnext", "regnet_y_400mf", "efficientnet", "lraspp", "video",
)  # fmt: skip


def models() -> dict[str, Callable[[], Built]]:
    if importlib.util.find_spec("torchvision") is None:
        raise Absent("torchvision is not installed")
    return {name: functools.partial(build, name) for name in CLASSIFIERS}


def module(name: str) -> Any:
    from torchvision import models as source
    from torchvision.models import convnext, densenet, efficientnet, maxvit, resnet, swin_transformer, video

    small: dict[str, Callable[[], Any]] = {
        "resnet18": lambda: resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], 5),
        "wide_resnet": lambda: resnet.ResNet(resnet.Bottleneck, [1, 1, 1, 1], 5, width_per_group=128),
        "densenet": lambda: densenet.DenseNet(8, (2, 2), 16, num_classes=5),
        "googlenet": lambda: source.googlenet(aux_logits=False, init_weights=False, num_classes=5),
        "vision_transformer": lambda: source.VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=5),
        "swin": lambda: source.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=5),
        "swin_v2": lambda: source.SwinTransformer(
            [4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=5, block=swin_transformer.SwinTransformerBlockV2,
            downsample_layer=swin_transformer.PatchMergingV2,
        ),
        "maxvit": lambda: maxvit.MaxVit((32, 32), 16, 4, [16, 32], [1, 1], 8, 0.0, num_classes=5),
        "convnext": lambda: source.ConvNeXt([convnext.CNBlockConfig(8, 16, 1), convnext.CNBlockConfig(16, None, 1)],
                                            num_classes=5),
        "efficientnet": lambda: source.EfficientNet(
            [efficientnet.MBConvConfig(1, 3, 1, 32, 16, 1), efficientnet.MBConvConfig(4, 5, 2, 16, 24, 2)], 0.0,
            num_classes=5,
        ),
        "lraspp": lambda: source.segmentation.lraspp_mobilenet_v3_large(weights_backbone=None, num_classes=5),
        "video": lambda: video.resnet.VideoResNet(
            video.resnet.BasicBlock, [video.resnet.Conv3DSimple] * 4, [1, 1, 1, 1], video.resnet.BasicStem, 5
        ),
    }  # fmt: skip
    return small[name]() if name in small else getattr(source, name)(num_classes=5)


def build(name: str) -> Built:
    side = SIDES.get(name, 32)
    shape = (2, 3, 4, 16, 16) if name == "video" else (2, 3, side, side)
    return Built(module(name), (torch.randn(shape),))
