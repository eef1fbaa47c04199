"""XLA:GPU's custom calls of cuDNN's fused attention: their names and their configuration.

Letters of shapes: B batch, N heads of the query, T queries, S keys, D the width of a head.
"""

from __future__ import annotations

import json
from typing import Any

ELEMENTS = {"bf16": "BF16", "f16": "F16"}

# For each product its contracted and its batch dimensions: (left, right), (left, right). First the forward's products,
# then the backward's: of a result's gradient with the product's right operand, and with its left operand.
_HEADS_SECOND = {
    "bmm1": ((3, 3), ((0, 1), (0, 1))),
    "bmm2": ((3, 2), ((0, 1), (0, 1))),
    "bmm1_grad_gemm1": ((2, 2), ((0, 1), (0, 1))),
    "bmm1_grad_gemm2": ((3, 2), ((0, 1), (0, 1))),
    "bmm2_grad_gemm1": ((2, 2), ((0, 1), (0, 1))),
    "bmm2_grad_gemm2": ((3, 3), ((0, 1), (0, 1))),
}
_HEADS_THIRD = {
    "bmm1": ((3, 3), ((0, 2), (0, 2))),
    "bmm2": ((3, 1), ((0, 1), (0, 2))),
    "bmm1_grad_gemm1": ((2, 1), ((0, 1), (0, 2))),
    "bmm1_grad_gemm2": ((3, 1), ((0, 1), (0, 2))),
    "bmm2_grad_gemm1": ((2, 1), ((0, 1), (0, 2))),
    "bmm2_grad_gemm2": ((3, 3), ((0, 2), (0, 2))),
}


def target(has_bias: bool, is_backward: bool) -> str:
    return f"__cudnn$fmha{'ScaleBias' if has_bias else ''}Softmax{'Backward' if is_backward else ''}"


def config(
    scores: tuple[int, int, int, int],
    element: str,
    scale: float,
    *,
    is_causal: bool,
    heads_third: bool,
    is_backward: bool,
) -> str:
    """Returns the configuration, XLA's ``GpuBackendConfig``, as JSON. ``scores``: (B, N, T, S). With ``heads_third``
    operands are (B, T, N, D) and (B, S, N, D); otherwise heads are their second dimension."""
    products = _HEADS_THIRD if heads_third else _HEADS_SECOND
    attention: dict[str, Any] = {
        "algorithm": {
            "algo_id": "0",
            "math_type": "TENSOR_OP_MATH",
            "tuning_knobs": {"17": "1", "24": "0"},
            "is_cudnn_frontend": True,
            "workspace_size": "0",
        },
        "fmha_scale": scale,
        "intermediate_tensor_shape": {
            "element_type": ELEMENTS[element],
            "dimensions": [str(size) for size in scores],
            "tuple_shapes": [],
            "layout": {
                "dim_level_types": [],
                "dim_unique": [],
                "dim_ordered": [],
                "minor_to_major": ["3", "2", "1", "0"],
                "tiles": [],
                "element_size_in_bits": "0",
                "memory_space": "0",
                "index_primitive_type": "PRIMITIVE_TYPE_INVALID",
                "pointer_primitive_type": "PRIMITIVE_TYPE_INVALID",
                "dynamic_shape_metadata_prefix_bytes": "0",
            },
            "is_dynamic_dimension": [False] * 4,
        },
        "is_flash_attention": True,
        "mask_type": "CAUSAL" if is_causal else "NO_MASK",
        "dropout_rate": 0.0,
        "seed": 42,
        "sliding_window_length": 0,
        "max_seg_per_batch": 1,
        "is_paged_attention": False,
    }
    for name, (contracted, batch) in products.items():
        if ("grad" in name) == is_backward:
            attention[f"{name}_dot_dimension_numbers"] = {
                "lhs_contracting_dimensions": [str(contracted[0])],
                "rhs_contracting_dimensions": [str(contracted[1])],
                "lhs_batch_dimensions": [str(dim) for dim in batch[0]],
                "rhs_batch_dimensions": [str(dim) for dim in batch[1]],
            }
    return json.dumps({"operation_queue_id": "0", "cudnn_fmha_backend_config": attention})
