"""One direction of one layer of ``torch.nn.LSTM`` on sequences of one length, as one call of oneDNN on the CPU.

Eager mode calls the same (``aten::mkldnn_rnn_layer``). Elsewhere (programs in files) the operator
``torch_pjrt::lstm_layer`` is the loop of ``layer.py``.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from torch_pjrt import _C
from torch_pjrt.decompositions.recurrent.layer import (
    Scan,
    before,
    differentiable,
    layer_backward,
    layer_forward,
    loop,
    unrolled_loop,
)
from torch_pjrt.decompositions.table import DECOMPOSITIONS

# x: (length, batch, features); w_ih: (4 * hidden, features); w_hh: (4 * hidden, hidden); bias: (4 * hidden), the sum of
# both; hx, cx: (batch, hidden). Returns each step's hidden state, the last hidden and cell state, and what oneDNN keeps
# for the backward if `train` is set. The backward computes that again if it is empty. It returns the gradients of the
# six tensors.
_library = torch.library.Library("torch_pjrt", "FRAGMENT")


def is_for_library(x: Tensor) -> bool:
    """Whether oneDNN computes layers of this input."""
    on_cpu = x.device.type == "cpu" or (x.device.type == "pjrt" and _C.is_host_memory())
    floats = (torch.float32, torch.bfloat16, torch.float16)
    return on_cpu and x.dtype in floats and torch.backends.mkldnn.is_available()


def lstm_layer(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor | None, hx: Tensor, cx: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns each step's hidden state of (length, batch, hidden), and the last hidden and cell state."""
    dtype = x.dtype
    tensors: list[Tensor | None] = [x, w_ih, w_hh, bias, hx, cx]
    if dtype.itemsize == 2 and not (dtype == torch.bfloat16 and torch.cpu._is_avx512_bf16_supported()):
        tensors = [None if t is None else t.float() for t in tensors]
    is_kept = torch.is_grad_enabled() and all(isinstance(size, int) for size in x.shape)
    train = is_kept and any(t is not None and t.requires_grad for t in tensors)
    outputs, hy, cy, _ = torch.ops.torch_pjrt.lstm_layer(*tensors, reverse, train)
    return outputs.to(dtype), hy.to(dtype), cy.to(dtype)


@functools.cache
def _workspace(length: int, batch: int, features: int, hidden: int, dtype: torch.dtype) -> int:
    return _C.lstm_workspace_bytes(length, batch, features, hidden, dtype)


def _kept(x: Tensor, hx: Tensor, train: bool) -> Tensor:
    """Returns memory for what oneDNN keeps."""
    sizes = map(int, (*x.shape, hx.shape[1]))  # a trace with dynamic shapes gives known ones as SymInt
    nbytes = _workspace(*sizes, x.dtype) if train else 0
    return x.new_empty(nbytes, dtype=torch.uint8)


def _forward(
    scan: Scan,
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    bias: Tensor | None,
    hx: Tensor,
    cx: Tensor,
    reverse: bool,
    train: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    gates = torch.nn.functional.linear(x, w_ih, bias)
    outputs, cells, _ = layer_forward(scan, gates, hx, cx, w_hh, None, "lstm", reverse)
    last = 0 if reverse else -1
    return outputs, outputs[last], cells[last], _kept(x, hx, train).zero_()


def _backward(
    grad_outputs: Tensor,
    grad_hy: Tensor,
    grad_cy: Tensor,
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    bias: Tensor | None,
    hx: Tensor,
    cx: Tensor,
    outputs: Tensor,
    hy: Tensor,
    cy: Tensor,
    workspace: Tensor,
    reverse: bool,
) -> tuple[Tensor, ...]:
    gates = torch.nn.functional.linear(x, w_ih, bias)
    _, cells, kept = layer_forward(loop, gates, hx, cx, w_hh, None, "lstm", reverse)
    last = 0 if reverse else -1
    grad_outputs = grad_outputs.select_scatter(grad_outputs[last] + grad_hy, 0, last)
    grad_cells = torch.zeros_like(cells).select_scatter(grad_cy, 0, last)
    grads, _, grad_hx, grad_cx = layer_backward(
        loop, grad_outputs, grad_cells, outputs, cells, kept, hx, cx, w_hh, "lstm", reverse
    )
    rows, states = grads.reshape(-1, grads.shape[2]), before(outputs, hx, reverse).reshape(-1, hx.shape[1])
    return grads @ w_ih, rows.t() @ x.reshape(-1, x.shape[2]), rows.t() @ states, rows.sum(0), grad_hx, grad_cx


def _forward_meta(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *_, hx, cx, _, train = rest
    return x.new_empty(*x.shape[:2], hx.shape[1]), _like(hx), _like(cx), _kept(x, hx, train)


def _backward_meta(
    grad_outputs: Tensor, grad_hy: Tensor, grad_cy: Tensor, x: Tensor, w_ih: Tensor, w_hh: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    _, hx, cx, *_ = rest
    return _like(x), _like(w_ih), _like(w_hh), w_hh.new_empty(w_hh.shape[0]), _like(hx), _like(cx)


def _like(tensor: Tensor) -> Tensor:
    return tensor.new_empty(tensor.shape)


DECOMPOSITIONS["torch_pjrt::lstm_layer"] = functools.partial(_forward, loop)
DECOMPOSITIONS["torch_pjrt::lstm_layer_backward"] = _backward
_library.impl("lstm_layer", _forward_meta, "Meta")
_library.impl("lstm_layer_backward", _backward_meta, "Meta")


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.reverse, _ = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(output[3])


def _gradients(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # once: checkpoints unpack them once
    tensors, results = saved[:6], saved[6:]
    grads = [torch.zeros_like(y) if g is None else g for g, y in zip(given, results[:3], strict=False)]
    if torch.is_grad_enabled():  # for a double backward
        again = functools.partial(_forward, unrolled_loop, reverse=ctx.reverse, train=False)
        return *differentiable(again, tensors, grads), None, None
    gradients = torch.ops.torch_pjrt.lstm_layer_backward(*grads, *tensors, *results, ctx.reverse)
    return *(None if t is None else g for t, g in zip(tensors, gradients, strict=True)), None, None


torch.library.register_autograd("torch_pjrt::lstm_layer", _gradients, setup_context=_setup, lib=_library)
