"""A composite of one's own, done by the library beside: `python examples/kernel/use.py build/kernel/librms_norm.so`."""

from __future__ import annotations

import sys

import torch

import torch_pjrt


@torch_pjrt.composite("example.rms_norm", eps=1e-5)
def rms_norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * (x * x).mean(-1, keepdim=True).add(1e-5).rsqrt() * scale


def fits(call) -> bool:
    """Accepts float32, which the handler is for."""
    return call.operands[0].dtype == torch.float32


def main(library: str) -> None:
    x, scale = torch.randn(64, 256), torch.rand(256)
    expected = rms_norm(x, scale)
    torch_pjrt.register_kernel("example.rms_norm", library=library, symbol="rms_norm_f32", when=fits)
    on_device = [tensor.to("pjrt") for tensor in (x, scale)]
    with torch_pjrt.explain() as report:
        torch.testing.assert_close(rms_norm(*on_device).cpu(), expected)
        rms_norm(*(tensor.double() for tensor in on_device)).cpu()
    print(report)
    compiled = torch.compile(rms_norm, backend="pjrt")
    torch.testing.assert_close(compiled(x, scale), expected)


if __name__ == "__main__":
    main(sys.argv[1])
