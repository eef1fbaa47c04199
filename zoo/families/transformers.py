"""Models of transformers' MODEL_MAPPING, with small configurations and arguments by the names of their parameters."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from zoo.model import Absent, Built
from zoo.tiny_config import tiny

TOKENS, BATCH = 8, 2


def models() -> dict[str, Callable[[], Built]]:
    try:
        from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES
    except ImportError as error:
        raise Absent(f"transformers: {error}") from error
    return {name: functools.partial(build, name) for name in MODEL_MAPPING_NAMES}


def build(name: str) -> Built:
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    transformers.logging.set_verbosity_error()
    config = tiny(CONFIG_MAPPING[name])
    found = MODEL_MAPPING_NAMES[name]
    model_class = getattr(transformers, found if isinstance(found, str) else found[0])
    module = model_class(config)
    return Built(module, (), arguments(module, config))


def setting(config: Any, *names: str, default: Any) -> Any:
    """Returns the first of these fields that the configuration or its parts have."""
    parts = [config, *(value for value in vars(config).values() if hasattr(value, "model_type"))]
    for name in names:
        for part in parts:
            if isinstance(value := getattr(part, name, None), (int, list, tuple)):
                return value
    return default


def arguments(module: torch.nn.Module, config: Any) -> dict[str, Any]:
    parameters = inspect.signature(module.forward).parameters
    vocabulary = setting(config, "vocab_size", "vocabulary_size", default=60)
    vocabulary = vocabulary if isinstance(vocabulary, int) else vocabulary[0]
    side = setting(config, "image_size", "img_size", "input_size", default=32)
    height, width = side if isinstance(side, (list, tuple)) else (side, side)
    channels = setting(config, "num_channels", "in_channels", "in_chans", default=3)
    main = getattr(module, "main_input_name", "input_ids")
    found: dict[str, Any] = {}

    def tokens(length: int = TOKENS) -> torch.Tensor:
        return torch.randint(4, max(vocabulary, 5), (BATCH, length))

    if "input_ids" in parameters:
        found["input_ids"] = tokens()
        if "attention_mask" in parameters:
            found["attention_mask"] = torch.tensor([[1] * TOKENS, [1] * (TOKENS - 2) + [0] * 2])
    if "pixel_values" in parameters:
        found["pixel_values"] = torch.randn(BATCH, channels, height, width)
    if "pixel_values_videos" in parameters and "pixel_values" not in parameters:
        found["pixel_values_videos"] = torch.randn(
            BATCH, setting(config, "num_frames", default=4), channels, height, width
        )
    if "input_features" in parameters:
        bins = setting(config, "num_mel_bins", "feature_size", "input_feat_per_channel", default=80)
        length = 2 * setting(config, "max_source_positions", default=32)
        first = module.__class__.__name__.startswith(("Whisper", "Qwen2Audio"))
        found["input_features"] = torch.randn(BATCH, *((bins, length) if first else (length, bins)))
    if "input_values" in parameters and not found:
        found["input_values"] = torch.randn(BATCH, 800)
    if main not in found and main in parameters and main.startswith("input"):
        found[main] = torch.randn(BATCH, 800)
    if getattr(config, "is_encoder_decoder", False):
        if "decoder_input_ids" in parameters:
            found["decoder_input_ids"] = tokens(TOKENS - 1)
        if "decoder_input_values" in parameters:
            found["decoder_input_values"] = torch.randn(BATCH, TOKENS, setting(config, "num_mel_bins", default=80))
    return found
