"""Shrinks any configuration of transformers: by the names of its fields, and by their defaults."""

from __future__ import annotations

import re
from typing import Any

# The first pattern that matches a field's name determines its value; only float and int fields are changed.
SIZES: list[tuple[str, Any]] = [
    (r"drop|layerdrop", 0.0),
    (r"vocab_size$|^vocabulary_size|codebook_size|num_codes", 64),
    (r"token_id$|token_index$|^(bos|eos|pad|sep|cls|unk|mask)_", None),
    (r"max_position_embeddings|max_sequence_length|^n_positions|^n_ctx|max_.*positions|max_seq_len", 64),
    (r"num_key_value_heads|num_kv_heads|n_head_kv|multi_query_group_num", 2),
    (r"(num|n)_.*heads?$|^n_heads?$|^heads$|encoder_heads|attention_heads$", 2),
    (r"^head_dim$|_head_dim$|_head_size$|^d_kv$|attention_head_dim", 8),
    (r"(num|n)_.*(hidden_)?layers?$|^n_layers?$|^layers$|^depth$|_depth$|_layers$|num_.*blocks?$", 2),
    (r"num_experts_per_tok|^top_k$|moe_k$|moe_topk", 2),
    (r"(num|n)_.*experts$|num_local_experts|n_routed_experts", 4),
    (r"image_size$|^img_size$|input_size$|^crop_size$", 16),
    (r"patch_size$", 4),
    (
        r"(hidden_size|hidden_dim|^d_model|^n_embd|^dim$|embed_dim|emb_dim|^width$|embedding_size|d_embed|encoder_hidden)",
        16,
    ),
    (r"(intermediate|ffn|ff_dim|^d_ff|^n_inner|feed_forward|mlp_dim|feedforward)", 32),
    (r"num_labels", 3),
]
LISTS = r"layer_types|_types$|pattern|labels?$|architectures|id2label"


def tiny(config_class: type, **given: Any) -> Any:
    """Returns an instance of the class with small sizes."""
    default = config_class()
    return config_class(**{**fields(default), **given})


def fields(default: Any) -> dict[str, Any]:
    """Returns constructor arguments of the default's class for a small instance."""
    import transformers

    found: dict[str, Any] = {}
    for name in dict.fromkeys([*getattr(type(default), "__dataclass_fields__", {}), *vars(default)]):
        value = getattr(default, name, None)
        if isinstance(value, transformers.PretrainedConfig):
            found[name] = type(value)(**fields(value))
        elif not isinstance(value, bool) and isinstance(value, (int, float)):
            small = of_scalar(name, value)
            if small is not None:
                found[name] = small
        elif isinstance(value, (list, tuple)) and value and not re.search(LISTS, name):
            found[name] = [of_item(name, each) for each in value]
    return found


def of_scalar(name: str, value: float) -> Any:
    for pattern, small in SIZES:
        if re.search(pattern, name):
            if small is None:
                return min(value, 3) if value >= 0 else None
            return type(value)(small) if isinstance(small, float) else min(value, small)
    return None


def of_item(name: str, value: Any) -> Any:
    """Returns an item of a list: widths of stages become small multiples of eight, depths one."""
    if isinstance(value, bool) or not isinstance(value, int):
        return [of_item(name, each) for each in value] if isinstance(value, (list, tuple)) else value
    if re.search(r"depth|layers|blocks", name):
        return 1
    if re.search(r"hidden|dim|channels|width|sizes|embed|conv_dim", name) and value > 16:
        return 16
    if re.search(r"image_size|img_size", name):
        return 32
    return value
