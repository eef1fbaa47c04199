"""``torchvision.ops.deform_conv2d``: a convolution whose taps read at offsets from the grid, between pixels."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_pjrt.decompositions.sampling import image_of, rows_of
from torch_pjrt.decompositions.table import computed_once, foreign


class Corner(NamedTuple):
    """One of the four pixels around each point (points): its row among those of all images, and its weight."""

    row: Tensor
    inside: Tensor
    weight: Tensor
    along_y: Tensor  # the weight's derivative by the point's y
    along_x: Tensor


class Sizes(NamedTuple):
    batch: int
    channels: int
    height: int
    width: int
    kernel_height: int
    kernel_width: int
    out_height: int
    out_width: int
    groups: int
    offset_groups: int

    @property
    def taps(self) -> int:
        return self.kernel_height * self.kernel_width

    @property
    def pixels(self) -> int:
        return self.out_height * self.out_width

    @property
    def apart(self) -> tuple[int, ...]:
        """The shape of the values that are read, by offset groups."""
        return self.batch, self.offset_groups, self.taps, self.pixels, self.channels // self.offset_groups

    def columns(self, values: Tensor) -> Tensor:
        """Reshapes ``apart`` to the operand of the weights: (N, groups, pixels, taps * channels of a group)."""
        values = values.permute(0, 3, 2, 1, 4).reshape(self.batch, self.pixels, self.taps, self.groups, -1)
        return values.permute(0, 3, 1, 2, 4).reshape(self.batch, self.groups, self.pixels, -1)

    def values(self, columns: Tensor) -> Tensor:
        """Inverts ``columns``."""
        columns = columns.reshape(self.batch, self.groups, self.pixels, self.taps, -1).permute(0, 2, 3, 1, 4)
        by_offset = columns.reshape(self.batch, self.pixels, self.taps, self.offset_groups, -1)
        return by_offset.permute(0, 3, 2, 1, 4)

    def weights(self, weight: Tensor) -> Tensor:
        """Reshapes weights to (groups, taps * channels of a group, outputs of a group)."""
        weight = weight.flatten(2).reshape(self.groups, -1, self.channels // self.groups, self.taps)
        return weight.permute(0, 3, 2, 1).reshape(self.groups, -1, weight.shape[1])


def _sizes(input: Tensor, weight: Tensor, offset: Tensor, groups: int, offset_groups: int) -> Sizes:
    n, channels, height, width = input.shape
    (kernel_height, kernel_width), (out_height, out_width) = weight.shape[2:], offset.shape[2:]
    image = (n, channels, height, width)
    return Sizes(*image, kernel_height, kernel_width, out_height, out_width, groups, offset_groups)


def _places(offset: Tensor, kernel: Tensor, out: int, stride: int, padding: int, dilation: int, dim: int) -> Tensor:
    """Returns the coordinates of points (..., taps, out, out) in one dimension; ``kernel`` (taps) has the taps'."""
    shape = (-1, 1) if dim == 0 else (1, -1)
    start = (torch.arange(out, device=offset.device) * stride - padding).reshape(shape)
    return (start + (kernel * dilation).reshape(-1, 1, 1)).to(offset.dtype) + offset


def _corners(offset: Tensor, s: Sizes, stride: tuple[int, int], padding: tuple[int, int],
             dilation: tuple[int, int]) -> list[Corner]:  # fmt: skip
    offsets = offset.reshape(s.batch * s.offset_groups, s.taps, 2, s.out_height, s.out_width)
    tap = torch.arange(s.taps, device=offset.device)
    y = _places(offsets[:, :, 0], tap // s.kernel_width, s.out_height, stride[0], padding[0], dilation[0], 0)
    x = _places(offsets[:, :, 1], tap % s.kernel_width, s.out_width, stride[1], padding[1], dilation[1], 1)
    image = torch.arange(len(offsets), device=offset.device).reshape(-1, 1, 1, 1)
    top, left, one = y.floor(), x.floor(), torch.ones_like(x)
    corners = []
    for row, wy, dy in ((top, top + 1 - y, -one), (top + 1, y - top, one)):
        for column, wx, dx in ((left, left + 1 - x, -one), (left + 1, x - left, one)):
            inside = (row >= 0) & (row < s.height) & (column >= 0) & (column < s.width)
            pixel = torch.where(inside, row, 0).to(torch.int64) * s.width + torch.where(inside, column, 0).to(
                torch.int64
            )
            place = image * (s.height * s.width) + pixel
            parts = (place, inside, wy * wx, dy * wx, wy * dx)
            corners.append(Corner(*(computed_once(part.flatten()) for part in parts)))
    return corners


def _images(input: Tensor, s: Sizes) -> Tensor:
    return input.reshape(s.batch * s.offset_groups, -1, s.height, s.width)


def _pixels(rows: Tensor, corner: Corner) -> Tensor:
    return torch.where(corner.inside.unsqueeze(1), rows[corner.row], 0)


def _read(rows: Tensor, corners: list[Corner], s: Sizes) -> Tensor:
    """Returns the values at all points, of shape ``Sizes.apart``, without the mask."""
    total = torch.zeros_like(rows[:1])
    for corner in corners:
        total = total + _pixels(rows, corner) * corner.weight.unsqueeze(1)
    return total.reshape(s.apart)


def _wide(*tensors: Tensor) -> list[Tensor]:
    return [x if x.dtype == torch.float64 else x.float() for x in tensors]


@foreign("torchvision::deform_conv2d")
def deform_conv2d(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Tensor:
    """``input``: (N, C, H, W), ``weight``: (outputs, C / groups, kh, kw), ``offset``: (N, 2 * offset_groups * kh * kw,
    Ho, Wo), a tap's y and x, ``mask``: half as many channels. Returns (N, outputs, Ho, Wo)."""
    s = _sizes(input, weight, offset, groups, offset_groups)
    x, w, offsets, masks, b = _wide(input, weight, offset, mask, bias)
    corners = _corners(offsets, s, (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w))
    values = _read(computed_once(rows_of(_images(x, s))), corners, s)
    if use_mask:
        values = values * masks.reshape(*s.apart[:-1], 1)
    out = s.columns(values) @ s.weights(w)
    out = out.transpose(2, 3).reshape(s.batch, -1, s.out_height, s.out_width) + b.reshape(-1, 1, 1)
    return out.to(input.dtype).contiguous()


@foreign("torchvision::_deform_conv2d_backward")
def deform_conv2d_backward(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Returns the gradients of ``input``, ``weight``, ``offset``, ``mask`` (zeros if it is not used) and ``bias``."""
    s = _sizes(input, weight, offset, groups, offset_groups)
    dy, x, w, offsets, masks, _ = _wide(grad, input, weight, offset, mask, bias)
    corners = _corners(offsets, s, (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w))
    rows = computed_once(rows_of(_images(x, s)))
    dy = dy.reshape(s.batch, groups, -1, s.pixels)
    pulls = s.values(dy.transpose(2, 3) @ s.weights(w).transpose(1, 2))
    values = _read(rows, corners, s)
    grad_mask, factor = torch.zeros_like(masks), None
    if use_mask:
        factor = masks.reshape(*s.apart[:-1], 1)
        grad_mask = (values * pulls).sum(-1).reshape(mask.shape)
        values, pulls = values * factor, pulls * factor
    grad_weight = (dy @ s.columns(values)).sum(0)
    grad_weight = grad_weight.reshape(groups, -1, s.taps, s.channels // groups).transpose(2, 3).reshape(weight.shape)
    flat = computed_once(pulls.reshape(-1, s.apart[-1]))
    grad_rows = torch.zeros_like(rows)
    along_y = along_x = torch.zeros_like(corners[0].weight)
    for corner in corners:
        written = torch.where(corner.inside.unsqueeze(1), flat * corner.weight.unsqueeze(1), 0)
        grad_rows = grad_rows.index_add(0, corner.row, written)
        pull = computed_once((_pixels(rows, corner) * flat).sum(1))
        along_y, along_x = along_y + pull * corner.along_y, along_x + pull * corner.along_x
    shape = (s.batch * s.offset_groups, s.taps, s.out_height, s.out_width)
    grad_offset = torch.stack([along_y.reshape(shape), along_x.reshape(shape)], 2).reshape(offset.shape)
    grad_input = image_of(grad_rows, _images(x, s).shape).reshape(input.shape)
    grads = (grad_input, grad_weight, grad_offset, grad_mask, dy.sum((0, 3)).flatten())
    return tuple(
        g.to(like.dtype).contiguous() for g, like in zip(grads, (input, weight, offset, mask, bias), strict=True)
    )
