"""Makes libraries importable whose own operators are compiled for another PyTorch than the installed one."""

from __future__ import annotations

import functools
import importlib.util

import torch

# torchvision's operators without a kernel; its Python code registers shapes for them when it is imported.
OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "qroi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    *(
        f"{name}(Tensor input) -> Tensor"
        for name in (
            "_roi_align_backward", "ps_roi_align", "_ps_roi_align_backward", "roi_pool", "_roi_pool_backward",
            "ps_roi_pool", "_ps_roi_pool_backward", "deform_conv2d", "_deform_conv2d_backward",
        )
    ),
)  # fmt: skip


@functools.cache
def define_missing_operators() -> torch.library.Library | None:
    """Defines torchvision's operators if its binary is for another PyTorch; returns the library that defines them."""
    if importlib.util.find_spec("torchvision") is None:
        return None
    try:
        import torchvision  # noqa: F401
    except Exception:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in OPERATORS:
            name = operator.partition("(")[0]
            if not hasattr(torch.ops.torchvision, name):
                library.define(operator)
        return library
    return None
