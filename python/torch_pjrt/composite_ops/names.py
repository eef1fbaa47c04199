"""Names of composites, as data."""

from __future__ import annotations

SUFFIX = ".backward"  # the suffix of a backward's name

# Ops that PyTorch decomposes before a backend sees them; kept whole if they are enabled.
KEPT = (
    "aten.cosine_similarity.default",
    "aten.cross_entropy_loss.default",
    "aten.gru.input",
    "aten.instance_norm.default",
    "aten.linear.default",
    "aten.lstm.input",
    "aten.rms_norm.default",
    "aten.rnn_relu.input",
    "aten.rnn_tanh.input",
    "aten.scaled_dot_product_attention.default",
)

# Steps of optimizers by torch._foreach_* calls, kept whole if they are enabled, with torch.optim's module and function.
STEPS = {
    "torch_pjrt.foreach_adam_.default": ("adam", "_multi_tensor_adam"),
    "torch_pjrt.foreach_sgd_.default": ("sgd", "_multi_tensor_sgd"),
}

# Consumers' names of composites, by consumer. A value of an attribute may have its own name. Names whose operands have
# another layout than ATen's are excluded: odml.scaled_dot_product_attention has heads third.
RENAMED: dict[str, dict[str, str]] = {
    # LiteRT, which knows aten.gelu.default, aten.hardswish.default and aten.avg_pool2d.default by these names.
    "odml": {
        "aten.embedding.default": "odml.embedding_lookup",
        "aten.native_group_norm.default": "odml.group_norm",
        "aten.rms_norm.default": "odml.rms_norm",
        "aten.upsample_bilinear2d.default": "odml.upsample_bilinear2d",
    },
    # tt-mlir.
    "tenstorrent": {
        "aten.argmax.default": "tenstorrent.argmax",
        "aten.gather.default": "tenstorrent.gather",
        "aten.gelu.default": "tenstorrent.gelu",
        'aten.gelu.default(approximate = "tanh")': "tenstorrent.gelu_tanh",
        "aten.native_group_norm.default": "tenstorrent.group_norm",
        "aten.native_layer_norm.default": "tenstorrent.layer_norm",
        "aten.rms_norm.default": "tenstorrent.rms_norm",
        "aten.scaled_dot_product_attention.default": "tenstorrent.scaled_dot_product_attention",
        "aten.topk.default": "tenstorrent.topk",
        "torch_pjrt.fused_adamw_.default": "tenstorrent.adamw",
    },
}
