"""``torchvision.ops.nms``: boxes that overlap a better one are suppressed, in blocks, best first.

After earlier blocks have suppressed the boxes that they overlap, a box of a block depends on the better boxes of the
block only. Within a block, all boxes are updated together until nothing changes, which takes as many iterations as the
longest chain of overlapping boxes. The number of kept boxes is data, so it is read.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import foreign
from torch_pjrt.program import loops

BLOCK = 64  # boxes

_library = torch.library.Library("torch_pjrt", "FRAGMENT")
_library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
_library.impl("nms", lambda dets, scores, _: scores.new_empty(len(scores) + 1, dtype=torch.int64), "Meta")


def _above(x: Tensor, threshold: float) -> Tensor:
    """Returns ``x > threshold`` in float64, as the CPU's kernel computes it."""
    rounded = torch.tensor(threshold, dtype=x.dtype, device="cpu")
    if rounded.item() > threshold:
        rounded = torch.nextafter(rounded, torch.tensor(-torch.inf, dtype=x.dtype, device="cpu"))
    return x > rounded.item()


def _overlaps(a: Tensor, b: Tensor, threshold: float) -> Tensor:
    """Returns (n, m), a mask of the pairs in which a box of ``a`` (n) suppresses one of ``b`` (m); both (5, ...), with
    areas."""
    x1, y1, x2, y2, area = a.unsqueeze(-1)
    # max and min would treat NaN in another way than the kernel's comparisons.
    left, top = torch.where(x1 < b[0], b[0], x1), torch.where(y1 < b[1], b[1], y1)
    right, bottom = torch.where(b[2] < x2, b[2], x2), torch.where(b[3] < y2, b[3], y2)
    width, height = right - left, bottom - top
    shared = torch.where(width > 0, width, 0) * torch.where(height > 0, height, 0)
    return _above(shared / (area + b[4] - shared), threshold)


@foreign("torch_pjrt::nms")
def kept_boxes(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Returns (n + 1): the number of the (n, 4) boxes that are kept, then their indices, best first, then padding."""
    n = len(dets)
    order = scores.sort(stable=True, descending=True).indices
    blocks = -(-n // BLOCK)
    boxes = torch.nn.functional.pad(dets[order].t(), (0, blocks * BLOCK - n))
    boxes = torch.cat([boxes, ((boxes[2] - boxes[0]) * (boxes[3] - boxes[1])).unsqueeze(0)])
    place = torch.arange(blocks * BLOCK, device=dets.device)
    later = torch.ones(BLOCK, BLOCK, dtype=torch.bool, device=dets.device).triu(1)

    def goes_on(block: Tensor, *_: Tensor) -> list[Tensor]:
        return [block < blocks]

    def next_block(block: Tensor, alive: Tensor, boxes: Tensor, place: Tensor, later: Tensor) -> list[Tensor]:
        here = block * BLOCK + place[:BLOCK]
        own, candidates = boxes.index_select(1, here), alive.index_select(0, here)
        conflicts = _overlaps(own, own, iou_threshold) & later

        def changes(_kept: Tensor, changed: Tensor, *_: Tensor) -> list[Tensor]:
            return [changed]

        def again(kept: Tensor, _: Tensor, candidates: Tensor, conflicts: Tensor) -> list[Tensor]:
            now = candidates & ~(conflicts & kept.unsqueeze(1)).any(0)
            return [now, (now != kept).any().reshape(1)]

        kept, _ = loops.while_loop(
            loops.apply, changes, again, [candidates, torch.ones_like(block, dtype=torch.bool)], [candidates, conflicts]
        )
        hit = (_overlaps(own, boxes, iou_threshold) & kept.unsqueeze(1)).any(0) & (place > here[-1])
        return [block + 1, (alive & ~hit).index_copy(0, here, kept)]

    block = torch.zeros(1, dtype=torch.int64, device=dets.device)
    _, kept = loops.while_loop(loops.apply, goes_on, next_block, [block, place < n], [boxes, place, later])
    kept = kept[:n]
    first = (~kept).to(torch.int32).sort(stable=True).indices
    return torch.cat([kept.sum().reshape(1), order[first]])


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Returns (kept): the indices of the boxes that are kept, best first. ``dets``: (n, 4), ``scores``: (n)."""
    if dets.dim() != 2:
        raise RuntimeError(f"boxes should be a 2d tensor, got {dets.dim()}D")
    if dets.shape[1] != 4:
        raise RuntimeError(f"boxes should have 4 elements in dimension 1, got {dets.shape[1]}")
    if scores.dim() != 1:
        raise RuntimeError(f"scores should be a 1d tensor, got {scores.dim()}D")
    if len(dets) != len(scores):
        raise RuntimeError(
            f"boxes and scores should have same number of elements in dimension 0, got {len(dets)} and {len(scores)}"
        )
    if dets.dtype != scores.dtype:
        raise RuntimeError("dets should have the same type as scores")
    if dets.dtype not in (torch.float32, torch.float64):
        name = {torch.float16: "Half", torch.bfloat16: "BFloat16"}.get(dets.dtype, str(dets.dtype))
        raise NotImplementedError(f"\"nms_kernel\" not implemented for '{name}'")
    if dets.numel() == 0:
        return torch.empty(0, dtype=torch.int64, device=dets.device)
    found = torch.ops.torch_pjrt.nms(dets, scores, iou_threshold).cpu()
    return found[1 : 1 + int(found[0])].to(dets.device)


_torchvision = torch.library.Library("torchvision", "IMPL")
_torchvision.impl("nms", nms, "PrivateUse1")
