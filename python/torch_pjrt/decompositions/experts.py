"""Products of the experts of a mixture in transformers. For operands that PyTorch's kernel doesn't support,
transformers' own ops read the number of rows of each expert."""

from __future__ import annotations

import torch
from torch import Tensor

_library = torch.library.Library("transformers", "IMPL")


def grouped_mm_fallback(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    result: Tensor = torch._grouped_mm(input, weight, offs=offs.to(torch.int32))
    return result


def grouped_mm_fallback_backward(
    input: Tensor, weight: Tensor, offs: Tensor, grad_output: Tensor
) -> tuple[Tensor, Tensor]:
    offs = offs.to(torch.int32)
    return (
        torch._grouped_mm(grad_output, weight.transpose(-2, -1), offs=offs),
        torch._grouped_mm(input.t(), grad_output, offs=offs),
    )


_library.impl("grouped_mm_fallback", grouped_mm_fallback, "PrivateUse1")
_library.impl("grouped_mm_fallback_backward", grouped_mm_fallback_backward, "PrivateUse1")
