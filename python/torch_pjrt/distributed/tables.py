"""A table of the placements of a model's parameters."""

from __future__ import annotations

from torch import nn


def describe(model: nn.Module) -> str:
    """Returns a table of the model's parameters: name, shape, placements ("-" for a tensor that isn't a DTensor), and
    bytes per device. The last line has their sums."""
    from torch.distributed.tensor import DTensor

    rows, total, whole = [("parameter", "shape", "placements", "bytes a device")], 0, 0
    for name, parameter in model.named_parameters():
        is_sharded = isinstance(parameter, DTensor)
        local = parameter._local_tensor if is_sharded else parameter
        placements = ", ".join(map(str, parameter.placements)) if is_sharded else "-"
        nbytes = local.numel() * local.element_size()
        total += nbytes
        whole += parameter.numel() * parameter.element_size()
        rows.append((name, str(tuple(parameter.shape)), placements, f"{nbytes:,}"))
    rows.append(("total", "", f"of {whole:,}", f"{total:,}"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=False)), row[3].rjust(widths[3])])
        for row in rows
    )
