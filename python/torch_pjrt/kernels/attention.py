"""Attention on NVIDIA's GPUs, forward and backward, by the custom calls of XLA to cuDNN's fused kernels.

It claims the ops that ``scaled_dot_product_attention`` becomes. The scores are never in memory: the backward only needs
the logarithms of the rows' sums, float32 of (batch, heads, queries).

Dropout is left to the decomposition: XLA's call counts its own random numbers, in each program from the start, so that
neither ``torch.manual_seed`` nor a repeated forward (checkpointing) would give the expected mask.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.kernels import cudnn
from torch_pjrt.kernels.call import Call, Form, forms, value_of
from torch_pjrt.kernels.private_function import PrivateFunction, Value, row_major

OLDEST = (8, 0)  # compute capability
# The largest width of a head; the larger limit applies from a capability on.
WIDEST, WIDER_FROM, WIDER = 128, (9, 0), 256
# A bias below any score, because some versions of cuDNN make NaN of infinite numbers.
LOWEST = {"bf16": -(2.0**41), "f16": -(2.0**15)}


class Attention:
    """A call of one of the ops, with operands by their names in the schema, and its sizes."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.is_backward = call.name.endswith("_backward.default")
        op = getattr(torch.ops.aten, call.name.split(".")[1]).default
        declared = [a.name.rstrip("_") for a in op._schema.arguments if "Tensor" in str(a.type)]
        names = call.attributes.get("operands", declared[: len(call.operands)])
        self.at = {str(name).rstrip("_"): i for i, name in enumerate(names)}
        self.query, self.key, self.value = (self.four(self.form(name)) for name in ("query", "key", "value"))
        self.bias = self.four(self.form("attn_bias")) if "attn_bias" in self.at else None
        self.is_causal = bool(call.attributes.get("is_causal", False))
        self.dropout = float(call.attributes.get("dropout_p", 0.0))
        wanted = call.attributes.get("grad_input_mask", [True] * len(call.results))
        self.wanted = [*map(bool, wanted), False][:4]

    def form(self, name: str) -> Form:
        return self.call.operands[self.at[name]]

    def four(self, form: Form) -> tuple[int, ...]:
        return (1,) * (4 - len(form.shape)) + tuple(form.shape)

    @property
    def scale(self) -> float:
        return float(self.call.attributes.get("scale", 1 / math.sqrt(self.query[3])))

    @property
    def scores(self) -> tuple[int, int, int, int]:
        batch, heads, queries, _ = self.query
        return batch, heads, queries, self.key[2]

    @property
    def heads_third(self) -> bool:
        """Whether heads are the third dimension in memory, as in projections of tokens that were split into heads."""
        layouts = [self.form(name).layout for name in ("query", "key", "value")]
        return layouts == [(3, 1, 2, 0)] * 3


def why_not(call: Call) -> str:
    """Returns the reason why cuDNN can't take the call, or "". A backward has its forward's conditions, besides those
    for a mask's gradient."""
    dtypes = {call.operands[i].dtype for i in range(3)}
    if len(dtypes) > 1 or not dtypes <= {torch.bfloat16, torch.float16}:
        return "it is for bfloat16 and float16"
    if any(len(form.shape) not in (3, 4) for form in call.operands[:3]):
        return "it is for three or four dimensions"
    a = Attention(call)
    batch, heads, queries, keys = a.scores
    width = a.query[3]
    if 0 in (*a.query, *a.key):
        return "it is empty"
    if a.key != a.value or width != a.key[3]:
        return "its query, key and value are not equally wide"
    if a.key[0] != batch or heads % a.key[1]:
        return "its query, key and value don't match in size"
    widest = WIDER if (reported := capability()) and reported >= WIDER_FROM else WIDEST
    if width % 8 or width > widest:
        return f"heads are {width} wide, and it is for multiples of 8 up to {widest}"
    if queries == 1 or keys == 1:
        return "it has one query or key alone"
    if a.dropout > 0:
        return "it drops out: XLA's call of cuDNN heeds no seed of PyTorch's"
    if call.attributes.get("return_debug_mask", False):
        return "it gives no debug mask"
    if a.bias is not None and (said := why_no_mask(a)):
        return said
    if _C.world_size() > 1:
        return "the program is one of several devices"
    if reported and reported < OLDEST:
        return f"the GPU's compute capability is {reported[0]}.{reported[1]}, and it is for 8.0 and later"
    return ""


def why_no_mask(a: Attention) -> str:
    assert a.bias is not None
    _, heads, queries, keys = a.scores
    form = a.form("attn_bias")
    if form.dtype != a.form("query").dtype:
        return "its mask is of another dtype"
    if a.is_causal:
        return "it is causal and has a mask"
    if len(form.shape) > 4 or any(one not in (1, all_) for one, all_ in zip(a.bias, a.scores, strict=True)):
        return "its mask doesn't match in size"
    if queries % 2 or keys % 2:
        return "it has a mask, and an odd number of queries or keys"
    if a.is_backward and a.wanted[3] and a.bias != (1, heads, queries, keys):
        return "the gradient of a mask is for one of all heads and no batch"
    return ""


def capability() -> tuple[int, ...] | None:
    """Returns CUDA's compute capability, such as (9, 0), if the plugin reports it."""
    reported = str(_C.device_properties(0)["attributes"].get("compute_capability", ""))
    return tuple(map(int, reported.split("."))) if re.fullmatch(r"\d+\.\d+", reported) else None


class _Body:
    """The common part of the forward's and the backward's function."""

    def __init__(self, a: Attention) -> None:
        self.a = a
        self.f = PrivateFunction(a.call.operands)
        self.element = self.f.operands[a.at["query"]].element
        self.hidden: Value | None = None  # a mask of the rows of scores that the bias hides completely
        self.bias = self._bias() if a.bias is not None else None

    def operand(self, name: str) -> Value:
        return self.f.operands[self.a.at[name]]

    def heads(self, name: str) -> Value:
        """Returns a tensor of (…, heads, tokens, width) in the form that the call takes."""
        x = self.operand(name)
        four = self.f.reshape(x, (1,) * (4 - len(x.dims)) + x.dims)
        return self.f.transpose(four, (0, 2, 1, 3)) if self.a.heads_third else four

    def result(self, dims: tuple[int, ...]) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        return self.element, dims, (3, 1, 2, 0) if self.a.heads_third else (3, 2, 1, 0)

    def call(self, operands: list[Value], results: list[Any]) -> list[Value]:
        a = self.a
        config = cudnn.config(
            a.scores,
            self.element,
            a.scale,
            is_causal=a.is_causal,
            heads_third=a.heads_third,
            is_backward=a.is_backward,
        )
        target = cudnn.target(a.bias is not None, a.is_backward)
        workspace = ("ui8", (0,), (0,))
        return self.f.custom_call(target, operands, [*results, workspace], config)

    def _bias(self) -> Value:
        """Returns the bias without infinite numbers. Finds the rows that the bias hides completely (``hidden``), and
        subtracts the maximum from rows that it hides by finite numbers below any score, which changes no softmax."""
        a, f = self.a, self.f
        assert a.bias is not None
        x = f.convert(f.reshape(self.operand("attn_bias"), a.bias), "f32")
        lowest = LOWEST[self.element]
        rows, every = a.bias[:3], (0, 1, 2)
        greatest = f.greatest_of_rows(x)
        self.hidden = f.compare("EQ", greatest, f.constant(-math.inf, "f32", rows))
        is_low = f.compare("LT", greatest, f.constant(lowest / 2, "f32", rows))
        taken = f.select(is_low, greatest, f.constant(0, "f32", rows))
        taken = f.select(self.hidden, f.constant(0, "f32", rows), taken)
        moved = f.binary("subtract", x, f.broadcast(taken, a.bias, every))
        bounded = f.convert(f.binary("maximum", moved, f.constant(lowest, "f32", a.bias)), self.element)
        return f.broadcast(bounded, (*a.bias[:2], *a.scores[2:]), (0, 1, 2, 3))

    def hidden_rows(self, dims: tuple[int, ...]) -> Value:
        assert self.hidden is not None
        return self.f.broadcast(self.hidden, dims, (0, 1, 2))


def forward(call: Call) -> tuple[str, str]:
    """Returns the name and the text of a function that computes the op's results."""
    a = Attention(call)
    body = _Body(a)
    f, rows = body.f, a.scores[:3]
    operands = [body.heads(name) for name in ("query", "key", "value")]
    if body.bias is not None:
        operands.append(body.bias)
    out, sums, _ = body.call(operands, [body.result(a.query), ("f32", rows, row_major(rows))])
    if body.bias is not None:  # low rows keep sums without the subtracted maximum, in which they would be lost
        out = f.select(body.hidden_rows(a.query), f.constant(0, body.element, a.query), out)
        sums = f.select(body.hidden_rows(rows), f.constant(-math.inf, "f32", rows), sums)
    given = [f.reshape(out, call.results[0].shape), saved(f, sums, call.results[1])]
    given += [f.zeros(form) for form in call.results[2:]]
    return f.text(given)


def saved(f: PrivateFunction, sums: Value, form: Form) -> Value:
    """Returns the sums in the op's form: longer rows or none if memory-efficient, one more dimension if cuDNN's."""
    if 0 in form.shape:
        return f.zeros(form)
    is_longer = len(form.shape) == 3 and form.shape[2] > sums.dims[2]
    return f.longer_rows(sums, form.shape[2]) if is_longer else f.reshape(sums, form.shape)


def backward(call: Call) -> tuple[str, str]:
    """Returns the name and the text of a function that computes the gradients that are asked for."""
    a = Attention(call)
    body = _Body(a)
    f, rows = body.f, a.scores[:3]
    sums = body.operand("logsumexp")
    sums = f.reshape(f.first_of_rows(sums, rows[2]) if len(sums.dims) == 3 else sums, rows)
    if body.bias is not None:  # a hidden row's probabilities are then exp(lowest - 0)
        sums = f.select(body.hidden_rows(rows), f.constant(0, "f32", rows), sums)
    operands = [*(body.heads(name) for name in ("query", "key", "value")), sums, body.heads("grad_out")]
    results = [body.result(a.query), body.result(a.key), body.result(a.value)]
    if body.bias is not None:
        operands.append(body.bias)
        if a.wanted[3]:
            results.append((body.element, body.bias.dims, row_major(body.bias.dims)))
    operands.append(body.heads("out"))
    grads = body.call(operands, results)[:-1]
    if body.bias is not None and not a.wanted[3]:  # the op has this result, but nothing reads it
        grads.append(f.zeros(a.form("attn_bias")))
    if len(call.results) != len(grads):
        grads = [grad for grad, is_wanted in zip(grads, a.wanted, strict=False) if is_wanted]
    return f.text([f.reshape(x, form.shape) for x, form in zip(grads, call.results, strict=True)])


def claim(name: str, platform: str, texts: dict[str, str], operands: Any, results: Any, file: str, line: int) -> Any:
    """Returns the reason to decline the call, or the function that replaces the op."""
    attributes = {key: value_of(text) for key, text in texts.items()}
    call = Call(name, platform, forms(operands), forms(results), attributes, texts, file, line)
    return why_not(call) or (backward if name.endswith("_backward.default") else forward)(call)
