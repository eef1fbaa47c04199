"""``torch.nn.functional.ctc_loss`` as two loops over time, where programs can't call PyTorch's kernels.

A path goes through the labels of a target with blanks around each, S = 2 * targets + 1 states. ``alpha`` has the log
probabilities of paths up to a step, ``beta`` those of paths from a step on, without the step's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from torch_pjrt.decompositions.table import decomposition, meta
from torch_pjrt.program import loops

Lengths: TypeAlias = Sequence[int] | Tensor


def _longest(targets: Tensor, lengths: Lengths) -> int:
    """Returns the number of labels for which there are states: the largest length, or the most that may be."""
    return targets.shape[-1] if isinstance(lengths, Tensor) else max(lengths, default=0)


class Paths(NamedTuple):
    """The operands of both loops, of N sequences with S states."""

    labels: Tensor
    scores: Tensor  # (T, N, S): log probabilities of the states' labels
    skips: Tensor  # (N, S): 0 where a path may come from two states before, -inf elsewhere
    inputs: Tensor  # (N): lengths
    targets: Tensor


def _paths(log_probs: Tensor, targets: Tensor, inputs: Lengths, lengths: Lengths, blank: int) -> Paths:
    def on_device(given: Lengths) -> Tensor:
        if isinstance(given, Tensor):
            return given.to(torch.int64)
        return torch.stack([torch.full((), each, dtype=torch.int64, device=log_probs.device) for each in given])

    count, longest = log_probs.shape[1], _longest(targets, lengths)
    inputs, lengths = on_device(inputs), on_device(lengths)
    place = torch.arange(longest, device=log_probs.device).expand(count, longest)
    if targets.dim() == 1:  # one after the other
        begin = lengths.cumsum(0) - lengths
        rows = targets[(begin[:, None] + place).clamp(max=max(targets.numel() - 1, 0))] if longest else place
    else:
        rows = targets[:, :longest]
    rows = torch.where(place < lengths[:, None], rows, blank).to(torch.int64)
    labels = pad(torch.stack([torch.full_like(rows, blank), rows], 2).flatten(1), (0, 1), value=blank)
    differs = pad(labels[:, 2:] != labels[:, :-2], (2, 0))[:, : labels.shape[1]]
    skips = torch.where(differs, 0, -torch.inf).to(log_probs.dtype)
    return Paths(labels, log_probs.gather(2, labels.expand(len(log_probs), -1, -1)), skips, inputs, lengths)


def _joined(*logs: Tensor) -> Tensor:
    """Returns the log of the sum of the numbers whose logs are given."""
    most = torch.stack(logs).amax(0)
    most = torch.where(most == -torch.inf, 0, most)
    return torch.stack([(x - most).exp() for x in logs]).sum(0).log() + most


def _at(x: Tensor, state: Tensor) -> Tensor:
    return x.gather(1, state.clamp(min=0)[:, None]).squeeze(1)


@decomposition("_ctc_loss")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Tensor, Tensor]:
    """``log_probs``: (T, N, C). Returns each sequence's loss (N) and alpha (N, T, S)."""
    if not log_probs.numel():
        raise NotImplementedError("the kernel says what is wrong")
    p = _paths(log_probs, targets, input_lengths, target_lengths, blank)

    def step(alpha: Tensor, score: Tensor, skips: Tensor) -> list[Tensor]:
        before = pad(alpha, (2, 0), value=-torch.inf)
        alpha = _joined(alpha, before[:, 1:-1], before[:, :-2] + skips) + score
        return [alpha, alpha]

    start = pad(torch.zeros_like(p.skips[:, :1]), (0, p.skips.shape[1] - 1), value=-torch.inf)
    alpha = loops.looped(loops.apply, step, [start], [p.scores], [p.skips])[1]
    end = (p.inputs - 1).clamp(0, len(log_probs) - 1)[None, :, None].expand(1, -1, alpha.shape[2])
    last = alpha.gather(0, end)[0]
    label = torch.where(p.targets > 0, _at(last, 2 * p.targets - 1), -torch.inf)
    none = torch.where(p.targets == 0, 0, -torch.inf).to(alpha.dtype)
    loss = -torch.where(p.inputs > 0, _joined(_at(last, 2 * p.targets), label), none)
    return loss, alpha.transpose(0, 1).contiguous()


@decomposition("_ctc_loss_backward")
def ctc_loss_backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    neg_log_likelihood: Tensor,
    log_alpha: Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> Tensor:
    """``grad``: (N). A label's gradient at a step is its probability minus the share of the paths through it."""
    p = _paths(log_probs, targets, input_lengths, target_lengths, blank)
    state = torch.arange(p.labels.shape[1], device=grad.device)
    start = torch.where(state == 2 * p.targets[:, None], 0, -torch.inf).to(log_probs.dtype)
    time = torch.arange(len(log_probs), device=grad.device)[:, None, None]
    counts = time < p.inputs[:, None]  # (T, N, 1)

    def step(beta: Tensor, score: Tensor, counts: Tensor, start: Tensor, skips: Tensor) -> list[Tensor]:
        after = pad(beta, (0, 2), value=-torch.inf)
        skipped = after[:, 2:] + pad(skips, (0, 2), value=-torch.inf)[:, 2:]
        beta = torch.where(counts, _joined(beta, after[:, 1:-1], skipped), start)
        return [torch.where(counts, beta + score, start), beta]

    beta = loops.looped(loops.apply, step, [start], [p.scores, counts], [start, p.skips], reverse=True)[1]
    shares = (log_alpha.transpose(0, 1) + beta + neg_log_likelihood[:, None]).exp()
    labels = p.labels.expand(len(log_probs), -1, -1)
    result = log_probs.exp() - torch.zeros_like(log_probs).scatter_add(2, labels, shares)
    result = torch.where(log_probs == -torch.inf, torch.nan, result)  # PyTorch's kernel divides by the probability
    impossible = (neg_log_likelihood == torch.inf)[:, None]
    result = torch.where(impossible, 0.0 if zero_infinity else torch.nan, result * grad[:, None])
    return torch.where(counts, result, 0)


@meta("_ctc_loss.Tensor")
def outline(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, *_: object
) -> tuple[Tensor, Tensor]:
    length, count, _classes = log_probs.shape
    states = 2 * _longest(targets, target_lengths) + 1
    return log_probs.new_empty(count), log_probs.new_empty(count, length, states)


@meta("_ctc_loss_backward")
@meta("_ctc_loss_backward.Tensor")
def outline_of_gradient(grad: Tensor, log_probs: Tensor, *_: object, **__: object) -> Tensor:
    return torch.empty_like(log_probs, memory_format=torch.contiguous_format)
