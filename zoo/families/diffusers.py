"""Networks and blocks of diffusers, small."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from zoo.model import Absent, Built

B, W = 2, 16


def models() -> dict[str, Callable[[], Built]]:
    if importlib.util.find_spec("diffusers") is None:
        raise Absent("diffusers is not installed")
    return {name: functools.partial(build, name) for name in SPECS}


def images(channels: int = 4, side: int = 16) -> torch.Tensor:
    return torch.randn(B, channels, side, side)


def text(width: int = W, length: int = 6) -> torch.Tensor:
    return torch.randn(B, length, width)


def times() -> torch.Tensor:
    return torch.tensor([3, 700])


def build(name: str) -> Built:
    import diffusers

    make, arguments = SPECS[name]
    return Built(make(diffusers), *arguments())


def block(name: str, **options: Any) -> Callable[[Any], Any]:
    def make(_: Any) -> Any:
        from diffusers.models import resnet
        from diffusers.models.transformers import transformer_2d
        from diffusers.models.unets import unet_2d_blocks

        for module in (unet_2d_blocks, resnet, transformer_2d):
            if hasattr(module, name):
                return getattr(module, name)(**options)
        raise LookupError(name)

    return make


UNET = {"sample_size": 16, "block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4}
CROSS = {"cross_attention_dim": W, "attention_head_dim": 4}
DOWN_UP = {
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
}
Spec = tuple[Callable[[Any], Any], Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]]
SPECS: dict[str, Spec] = {
    "UNet2DModel": (
        lambda d: d.UNet2DModel(
            in_channels=3, out_channels=3, attention_head_dim=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"), **UNET,
        ),
        lambda: ((images(3), times()), {}),
    ),
    "UNet2DConditionModel": (
        lambda d: d.UNet2DConditionModel(**UNET, **CROSS, **DOWN_UP),
        lambda: ((images(), times(), text()), {}),
    ),
    "UNet1DModel": (
        lambda d: d.UNet1DModel(block_out_channels=(32, 32, 64), layers_per_block=1, sample_size=32,
                                extra_in_channels=64),
        lambda: ((torch.randn(B, 2, 32), times()), {}),
    ),
    "ControlNetModel": (
        lambda d: d.ControlNetModel(
            in_channels=4, conditioning_embedding_out_channels=(8, 16), down_block_types=DOWN_UP["down_block_types"],
            block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, **CROSS,
        ),
        lambda: ((images(), times(), text(), images(3, 32)), {}),
    ),
    "AutoencoderKL": (
        lambda d: d.AutoencoderKL(block_out_channels=(8, 16), norm_num_groups=4, latent_channels=2,
                                  down_block_types=("DownEncoderBlock2D",) * 2,
                                  up_block_types=("UpDecoderBlock2D",) * 2),
        lambda: ((images(3),), {}),
    ),
    "AutoencoderTiny": (
        lambda d: d.AutoencoderTiny(encoder_block_out_channels=(8, 8), decoder_block_out_channels=(8, 8),
                                    num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1)),
        lambda: ((images(3),), {}),
    ),
    "VQModel": (
        lambda d: d.VQModel(block_out_channels=(8, 16), norm_num_groups=4, latent_channels=3, num_vq_embeddings=16,
                            down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2),
        lambda: ((images(3),), {}),
    ),
    "PriorTransformer": (
        lambda d: d.PriorTransformer(num_attention_heads=2, attention_head_dim=8, num_layers=2, embedding_dim=W,
                                     num_embeddings=6, additional_embeddings=4),
        lambda: ((torch.randn(B, W), times(), torch.randn(B, W), text()), {}),
    ),
    "SD3Transformer2DModel": (
        lambda d: d.SD3Transformer2DModel(sample_size=8, in_channels=4, num_layers=2, attention_head_dim=8,
                                          num_attention_heads=2, joint_attention_dim=W, caption_projection_dim=16,
                                          pooled_projection_dim=W, out_channels=4, pos_embed_max_size=16),
        lambda: ((images(4, 8), text(), torch.randn(B, W), times()), {}),
    ),
    "DiTTransformer2DModel": (
        lambda d: d.DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=2,
                                          sample_size=8, patch_size=2, norm_num_groups=4, num_embeds_ada_norm=10),
        lambda: ((images(4, 8),), {"timestep": times(), "class_labels": torch.tensor([1, 4])}),
    ),
    "FluxTransformer2DModel": (
        lambda d: d.FluxTransformer2DModel(in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
                                           num_attention_heads=2, joint_attention_dim=W, pooled_projection_dim=W,
                                           axes_dims_rope=(4, 4, 8)),
        lambda: ((), {
            "hidden_states": torch.randn(B, 16, 4), "encoder_hidden_states": text(), "timestep": torch.rand(B),
            "pooled_projections": torch.randn(B, W), "img_ids": torch.randn(16, 3), "txt_ids": torch.zeros(6, 3),
        }),
    ),
    "PixArtTransformer2DModel": (
        lambda d: d.PixArtTransformer2DModel(num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4,
                                             num_layers=2, sample_size=8, cross_attention_dim=16, caption_channels=W,
                                             num_embeds_ada_norm=1000, use_additional_conditions=False),
        lambda: ((images(4, 8), text()), {"timestep": times()}),
    ),
    "ResnetBlock2D": (block("ResnetBlock2D", in_channels=8, temb_channels=W, groups=4),
                      lambda: ((images(8), torch.randn(B, W)), {})),
    "AttnDownBlock2D": (block("AttnDownBlock2D", in_channels=8, out_channels=8, temb_channels=W, resnet_groups=4,
                              attention_head_dim=4), lambda: ((images(8), torch.randn(B, W)), {})),
    "CrossAttnDownBlock2D": (
        block("CrossAttnDownBlock2D", in_channels=8, out_channels=8, temb_channels=W, resnet_groups=4,
              cross_attention_dim=W, num_attention_heads=2),
        lambda: ((images(8), torch.randn(B, W), text()), {}),
    ),
    "Transformer2DModel": (
        lambda d: d.Transformer2DModel(num_attention_heads=2, attention_head_dim=8, in_channels=8, num_layers=1,
                                       norm_num_groups=4, cross_attention_dim=W),
        lambda: ((images(8), text()), {}),
    ),
}  # fmt: skip
