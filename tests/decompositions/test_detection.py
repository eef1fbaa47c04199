"""torchvision's operators on regions of images, compared with loops that follow their definitions.

If torchvision is installed, its own operators are tested; else operators of the same names and schemas.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import torch_pjrt

pytestmark = pytest.mark.each_way

ROI = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
IMAGE = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
CONVOLUTION = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, "
    "SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, "
    "bool use_mask"
)


def _out_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _convolved(x: Tensor, w: Tensor, _o: Any, _m: Any, _b: Any, sh: int, sw: int, ph: int, pw: int, dh: int, dw: int,
               *_: Any) -> Tensor:  # fmt: skip
    height, width = (_out_size(x.shape[2], w.shape[2], sh, ph, dh), _out_size(x.shape[3], w.shape[3], sw, pw, dw))
    return x.new_empty(len(x), len(w), height, width)


SHAPES: dict[str, Callable[..., Any]] = {
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor": lambda *_: 1 / 0,
    f"roi_align(Tensor input, Tensor rois, {ROI}, int sampling_ratio, bool aligned) -> Tensor": (
        lambda x, rois, _, h, w, *__: x.new_empty(len(rois), x.shape[1], h, w)
    ),
    f"_roi_align_backward(Tensor grad, Tensor rois, {ROI}, {IMAGE}, int sampling_ratio, bool aligned) -> Tensor": (
        lambda grad, _r, _s, _h, _w, *rest: grad.new_empty(rest[:4])
    ),
    f"roi_pool(Tensor input, Tensor rois, {ROI}) -> (Tensor, Tensor)": (
        lambda x, rois, _, h, w: (
            x.new_empty(len(rois), x.shape[1], h, w),
            x.new_empty(len(rois), x.shape[1], h, w, dtype=torch.int32),
        )
    ),
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {ROI}, {IMAGE}) -> Tensor": (
        lambda grad, _r, _a, _s, _h, _w, *image: grad.new_empty(image)
    ),
    f"deform_conv2d({CONVOLUTION}) -> Tensor": _convolved,
    f"_deform_conv2d_backward(Tensor grad, {CONVOLUTION}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)": (
        lambda _, *tensors: tuple(x.new_empty(x.shape) for x in tensors[:5])
    ),
}

try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):  # RuntimeError: torchvision is built for another torch
    _library = torch.library.Library("torchvision", "DEF")
    for _schema, _shape in SHAPES.items():
        _library.define(_schema)
        if not _schema.startswith("nms"):
            _library.impl(_schema.partition("(")[0], _shape, "Meta")

ops = torch.ops.torchvision


@pytest.fixture(autouse=True)
def stays_on_the_device() -> Iterator[None]:
    with torch_pjrt.strict_mode():
        yield


def nms(boxes: Tensor, scores: Tensor, threshold: float) -> list[int]:
    kept: list[int] = []
    for i in scores.sort(stable=True, descending=True).indices.tolist():
        good = True
        for j in kept:
            size = (torch.minimum(boxes[i, 2:], boxes[j, 2:]) - torch.maximum(boxes[i, :2], boxes[j, :2])).clamp(min=0)
            shared = size[0] * size[1]
            both = (boxes[[j, i], 2] - boxes[[j, i], 0]) * (boxes[[j, i], 3] - boxes[[j, i], 1])
            good &= not (shared / (both[0] + both[1] - shared)).item() > threshold
        if good:
            kept.append(i)
    return kept


def boxes_of(n: int, generator: torch.Generator) -> Tensor:
    corner, size = (torch.randint(0, 12, (n, 2), generator=generator).double() for _ in range(2))
    return torch.cat([corner, corner + size], 1).float()


@pytest.mark.parametrize(("n", "threshold"), [(0, 0.5), (1, 0.5), (63, 1 / 3), (64, 0.5), (65, 0.0), (150, 0.2)])
@pytest.mark.cpu_arithmetic
def test_nms(n: int, threshold: float) -> None:
    """Boxes include equal scores, boxes without area (whose overlap is NaN), and overlaps equal to the threshold."""
    generator = torch.Generator().manual_seed(n)
    boxes, scores = boxes_of(n, generator), torch.randint(0, 9, (n,), generator=generator).float()
    kept = ops.nms(boxes.to("pjrt"), scores.to("pjrt"), threshold)
    assert (kept.device.type, kept.dtype, kept.is_contiguous()) == ("pjrt", torch.int64, True)
    assert kept.tolist() == nms(boxes, scores, threshold)


def test_nms_of_boxes_each_of_which_overlaps_the_next() -> None:
    at = torch.arange(300.0)
    boxes = torch.stack([at, 0 * at, at + 10, 0 * at + 1], 1)
    assert ops.nms(boxes.to("pjrt"), -at.to("pjrt"), 0.8).tolist() == list(range(0, 300, 2))


def test_nms_reads_once_and_compiles_once_for_any_number_of_kept_boxes() -> None:
    scores = torch.arange(100.0, device="pjrt")
    generator = torch.Generator().manual_seed(0)
    for i in range(3):
        boxes = boxes_of(100, generator).to("pjrt")
        torch_pjrt.sync()
        before = torch_pjrt.metrics()
        kept = ops.nms(boxes, scores, 0.3)
        after = torch_pjrt.metrics()
        assert after["syncs"] == before["syncs"] + 1
        assert i == 0 or after["graphs_compiled"] == before["graphs_compiled"]
        assert kept.tolist() == nms(boxes.cpu(), scores.cpu(), 0.3)


@pytest.mark.parametrize(
    ("boxes", "scores", "message"),
    [
        (torch.ones(3), torch.ones(3), "boxes should be a 2d tensor, got 1D"),
        (torch.ones(3, 5), torch.ones(3), "boxes should have 4 elements in dimension 1, got 5"),
        (torch.ones(3, 4), torch.ones(3, 1), "scores should be a 1d tensor, got 2D"),
        (torch.ones(3, 4), torch.ones(2), "same number of elements in dimension 0, got 3 and 2"),
        (torch.ones(3, 4), torch.ones(3).double(), "dets should have the same type as scores"),
        (torch.ones(3, 4).half(), torch.ones(3).half(), "not implemented for 'Half'"),
    ],
)
def test_errors_of_nms(boxes: Tensor, scores: Tensor, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        ops.nms(boxes.to("pjrt"), scores.to("pjrt"), 0.5)


def bilinear(image: Tensor, y: Any, x: Any) -> Tensor:
    """Returns (C) for an image (C, H, W) with zeros around it. ``y`` and ``x`` may be tensors that require grad."""
    top, left, total = math.floor(y), math.floor(x), image.new_zeros(image.shape[0])
    for row, wy in ((top, top + 1 - y), (top + 1, y - top)):
        for column, wx in ((left, left + 1 - x), (left + 1, x - left)):
            if 0 <= row < image.shape[1] and 0 <= column < image.shape[2]:
                total = total + image[:, row, column] * (wy * wx)
    return total


def roi_align(image: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool) -> Tensor:
    results = []
    for number, *corners in rois.tolist():
        x1, y1, x2, y2 = (corner * scale - (0.5 if aligned else 0) for corner in corners)
        h, w = (y2 - y1, x2 - x1) if aligned else (max(y2 - y1, 1), max(x2 - x1, 1))
        ny, nx = (ratio, ratio) if ratio > 0 else (math.ceil(h / height), math.ceil(w / width))
        plane = image[int(number)]
        most_y, most_x = plane.shape[1] - 1, plane.shape[2] - 1
        for i in range(height):
            for j in range(width):
                total = plane.new_zeros(len(plane))
                for a in range(ny):
                    for b in range(nx):
                        y, x = y1 + (i + (a + 0.5) / ny) * h / height, x1 + (j + (b + 0.5) / nx) * w / width
                        if -1 <= y <= most_y + 1 and -1 <= x <= most_x + 1:
                            total = total + bilinear(plane, min(max(y, 0), most_y), min(max(x, 0), most_x))
                results.append(total / max(ny * nx, 1))
    return torch.stack(results).reshape(len(rois), height, width, -1).permute(0, 3, 1, 2)


ROIS = [
    [0, 1.0, 1.3, 9.2, 7.1], [1, 0, 0, 3, 3], [1, 2, 2, 2, 2], [0, -9, -9, -6, -6], [0, -2, 3, 17.5, 4],
    [1, 5, 6, 2, 1], [1, 0.5, 0.2, 21, 16],
]  # fmt: skip


@pytest.mark.parametrize(
    ("ratio", "aligned", "dtype"),
    [(-1, False, torch.float32), (0, True, torch.float64), (2, True, torch.float32), (3, False, torch.float64)],
)
@pytest.mark.sampled(2)
def test_roi_align(ratio: int, aligned: bool, dtype: torch.dtype) -> None:
    image, rois, expected, grad, expected_grad = of_regions(ratio, aligned)
    x, r, g = (t.detach().to("pjrt", dtype) for t in (image, rois, grad))
    torch.testing.assert_close(ops.roi_align(x, r, 0.7, 3, 2, ratio, aligned).cpu(), expected.to(dtype))
    back = ops._roi_align_backward(g, r, 0.7, 3, 2, 2, 3, 8, 10, ratio, aligned)
    torch.testing.assert_close(back.cpu(), expected_grad.to(dtype))


@functools.cache  # interpreted and compiled are compared with the same
def of_regions(ratio: int, aligned: bool) -> tuple[Tensor, ...]:
    """Returns images and regions, the result, a gradient of the result, and the gradient of the images."""
    image = torch.randn(2, 3, 8, 10, dtype=torch.float64, requires_grad=True)
    rois = torch.tensor(ROIS, dtype=torch.float64)
    expected = roi_align(image, rois, 0.7, 3, 2, ratio, aligned)
    grad = torch.randn_like(expected)
    return image, rois, expected.detach(), grad, torch.autograd.grad(expected, image, grad)[0]


def test_what_no_sample_reads_may_be_infinite() -> None:
    """Regions of 1 and of 25 samples a bin are processed together; the first must not read the second's samples."""
    image = torch.full((1, 2, 12, 12), torch.inf)
    image[:, :, 6:, 6:] = torch.randn(6, 6)
    rois = torch.tensor([[0, 7, 7, 9.0, 9.0], [0, 0, 0, 10, 10], [0, 8.0, 8, 10, 10]])
    expected = roi_align(image, rois, 1.0, 2, 2, 0, False)
    aligned = ops.roi_align(image.to("pjrt"), rois.to("pjrt"), 1.0, 2, 2, 0, False)
    torch.testing.assert_close(aligned.cpu(), expected)
    assert expected[[0, 2]].isfinite().all()


@pytest.mark.cpu_arithmetic
def test_how_many_samples_is_decided_as_on_the_cpu() -> None:
    """14 / 7 is exactly 2, but 14 * (1 / 7) is more."""
    rois = torch.tensor([[0, 0, 0, size, size] for size in (7.0, 14.0, 21.0, 28.0, 35.0)])
    image = torch.randn(1, 2, 36, 36)
    expected = roi_align(image.double(), rois, 1.0, 7, 7, 0, False).float()
    torch.testing.assert_close(ops.roi_align(image.to("pjrt"), rois.to("pjrt"), 1.0, 7, 7, 0, False).cpu(), expected)


def roi_pool(image: Tensor, rois: Tensor, scale: float, height: int, width: int) -> tuple[Tensor, Tensor]:
    shape = (len(rois), image.shape[1], height, width)
    values, places = torch.zeros(shape), torch.full(shape, -1, dtype=torch.int32)
    step, one = torch.tensor([height, width]), torch.tensor(1.0)
    for k, (number, *corners) in enumerate(rois.tolist()):
        x1, y1, x2, y2 = (math.floor(abs(c * scale) + 0.5) * (1 if c >= 0 else -1) for c in corners)
        size = torch.tensor([max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)]) * one / step
        for i in range(height):
            for j in range(width):
                bins = torch.tensor([i, j])
                low, high = (bins * size).floor().int().tolist(), ((bins + 1) * size).ceil().int().tolist()
                rows = range(max(low[0] + y1, 0), min(high[0] + y1, image.shape[2]))
                columns = range(max(low[1] + x1, 0), min(high[1] + x1, image.shape[3]))
                if not rows or not columns:
                    continue
                window = image[int(number), :, rows.start : rows.stop, columns.start : columns.stop].flatten(1)
                best, first = window.max(1)
                values[k, :, i, j] = best
                at = (rows.start + first // len(columns)) * image.shape[3] + columns.start + first % len(columns)
                places[k, :, i, j] = at.int()
    return values, places


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_roi_pool(scale: float) -> None:
    image = torch.randint(0, 9, (2, 3, 8, 10)).float() - 20  # with equal elements
    rois = torch.tensor([*ROIS, [0, 0, 0, 8, 8], [1, 1, 1, 9, 6]])
    values, places = (t.cpu() for t in ops.roi_pool(image.to("pjrt"), rois.to("pjrt"), scale, 7, 3))
    expected, expected_places = roi_pool(image, rois, scale, 7, 3)
    assert torch.equal(values, expected)
    assert torch.equal(places, expected_places)
    grad, expected_grad = torch.randn(values.shape), torch.zeros(image.shape)
    for k, c, i, j in (places >= 0).nonzero().tolist():
        expected_grad[int(rois[k, 0]), c].view(-1)[places[k, c, i, j]] += grad[k, c, i, j]
    given = (grad.to("pjrt"), rois.to("pjrt"), places.to("pjrt"), scale, 7, 3, *image.shape)
    torch.testing.assert_close(ops._roi_pool_backward(*given).cpu(), expected_grad)


def deform_conv2d(x: Tensor, w: Tensor, offset: Tensor, mask: Tensor, b: Tensor, sh: int, sw: int, ph: int, pw: int,
                  dh: int, dw: int, groups: int, offset_groups: int, use_mask: bool) -> Tensor:  # fmt: skip
    out = _convolved(x, w, None, None, None, sh, sw, ph, pw, dh, dw)
    kernel, in_group = [(i, j) for i in range(w.shape[2]) for j in range(w.shape[3])], x.shape[1] // offset_groups
    results = []
    for n in range(len(x)):
        for oy in range(out.shape[2]):
            for ox in range(out.shape[3]):
                columns = []  # (C) a tap
                for tap, (i, j) in enumerate(kernel):
                    parts = []
                    for g in range(offset_groups):
                        at = g * len(kernel) + tap
                        y = oy * sh - ph + i * dh + offset[n, 2 * at, oy, ox]
                        x_ = ox * sw - pw + j * dw + offset[n, 2 * at + 1, oy, ox]
                        read = bilinear(x[n, g * in_group : (g + 1) * in_group], y, x_)
                        parts.append(read * mask[n, at, oy, ox] if use_mask else read)
                    columns.append(torch.cat(parts))
                column = torch.stack(columns, 1).reshape(groups, -1)
                weight = w.reshape(groups, len(w) // groups, -1)
                results.append((weight @ column.unsqueeze(2)).flatten() + b)
    return torch.stack(results).reshape(len(x), *out.shape[2:], -1).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("numbers", "use_mask"),
    [((1, 1, 1, 1, 1, 1, 1, 1), False), ((2, 1, 0, 2, 1, 2, 2, 1), True), ((1, 2, 1, 1, 2, 1, 2, 4), True)],
)  # fmt: skip
@pytest.mark.sampled(2)
def test_deform_conv2d(numbers: tuple[int, ...], use_mask: bool) -> None:
    tensors, expected, grad, expected_grads = deformed(numbers, use_mask)
    given = [t.detach().to("pjrt") for t in tensors]
    torch.testing.assert_close(ops.deform_conv2d(*given, *numbers, use_mask).cpu(), expected)
    grads = ops._deform_conv2d_backward(grad.to("pjrt"), *given, *numbers, use_mask)
    for one, wanted in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(one.cpu(), wanted)


@functools.cache  # interpreted and compiled are compared with the same
def deformed(numbers: tuple[int, ...], use_mask: bool) -> tuple[list[Tensor], Tensor, Tensor, tuple[Tensor, ...]]:
    """Returns operands, the result, a gradient of the result, and the gradients of the operands."""
    groups, offset_groups, taps = *numbers[6:], 6
    x, w, b = torch.randn(2, 4, 5, 6), torch.randn(4, 4 // groups, 3, 2), torch.randn(4)
    out = _convolved(x, w, None, None, None, *numbers[:6])
    offset = torch.randn(2, 2 * offset_groups * taps, *out.shape[2:]) * 2
    mask = torch.rand(2, offset_groups * taps, *out.shape[2:]) if use_mask else torch.zeros(2, 1)
    tensors = [t.double().requires_grad_() for t in (x, w, offset, mask, b)]
    expected = deform_conv2d(*tensors, *numbers, use_mask)
    grad = torch.randn_like(expected)
    return tensors, expected.detach(), grad, torch.autograd.grad(expected, tensors, grad, materialize_grads=True)


def test_compiled_with_tensors_on_the_cpu() -> None:
    image, rois = torch.randn(2, 3, 8, 10), torch.tensor(ROIS)

    def f(image: Tensor, rois: Tensor) -> tuple[Tensor, Tensor]:
        return ops.roi_align(image, rois, 1.0, 3, 2, -1, True) * 2, ops.roi_pool(image, rois, 1.0, 3, 2)[1]

    aligned, places = torch.compile(f, backend="pjrt", fullgraph=True)(image, rois)
    torch.testing.assert_close(aligned, 2 * roi_align(image.double(), rois, 1.0, 3, 2, -1, True).float())
    assert torch.equal(places, roi_pool(image, rois, 1.0, 3, 2)[1])


def test_autocast_computes_in_float32() -> None:
    image, rois = torch.randn(2, 3, 8, 10).bfloat16(), torch.tensor(ROIS)
    boxes, scores = boxes_of(20, torch.Generator().manual_seed(0)), torch.rand(20).half()
    with torch.autocast("pjrt", dtype=torch.bfloat16):
        aligned = ops.roi_align(image.to("pjrt"), rois.to("pjrt"), 1.0, 3, 2, 2, True)
        values, places = ops.roi_pool(image.to("pjrt"), rois.to("pjrt"), 1.0, 3, 2)
        kept = ops.nms(boxes.to("pjrt"), scores.to("pjrt"), 0.3)
    assert (aligned.dtype, values.dtype, places.dtype) == (torch.bfloat16, torch.bfloat16, torch.int32)
    expected = roi_align(image.double(), rois, 1.0, 3, 2, 2, True)
    torch.testing.assert_close(aligned.cpu().double(), expected, rtol=1e-2, atol=1e-3)
    assert torch.equal(places.cpu(), roi_pool(image.float(), rois, 1.0, 3, 2)[1])
    assert kept.tolist() == nms(boxes, scores.float(), 0.3)


def test_nothing_to_read() -> None:
    image, none = torch.randn(2, 3, 8, 10, device="pjrt"), torch.zeros(0, 5, device="pjrt")
    assert ops.roi_align(image, none, 1.0, 3, 2, 2, True).cpu().shape == (0, 3, 3, 2)
    assert [x.cpu().shape for x in ops.roi_pool(image, none, 1.0, 3, 2)] == [(0, 3, 3, 2)] * 2
    none = torch.zeros(0, 3, 3, 2, device="pjrt")
    back = ops._roi_align_backward(none, torch.zeros(0, 5, device="pjrt"), 1.0, 3, 2, 2, 3, 8, 10, 2, True)
    assert torch.equal(back.cpu(), torch.zeros(2, 3, 8, 10))
