"""cuDNN's fused attention in a process with an emulated CUDA: emulated_cudnn.cpp runs XLA's calls."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from typing import Any

from torch_pjrt import _C
from torch_pjrt.kernels.private_function import PrivateFunction, Value, quoted

Calls = list[tuple[str, dict[str, Any]]]


def install(library: str) -> Calls:
    """Returns a list of later calls: each target, and its configuration of attention."""
    handler = ctypes.cast(ctypes.CDLL(library).emulated_cudnn, ctypes.c_void_p).value
    assert handler is not None
    calls: Calls = []
    as_it_is = PrivateFunction.custom_call

    def custom_call(
        self: PrivateFunction, target: str, operands: Sequence[Value], results: Any, config: str
    ) -> list[Value]:
        _C.register_handler("emulated_cudnn", handler, "attention")
        reported = json.loads(config)["cudnn_fmha_backend_config"]
        calls.append((target, reported))
        backward = target.endswith("Backward")
        product = reported[f"{'bmm2_grad_gemm2' if backward else 'bmm1'}_dot_dimension_numbers"]
        attributes = {
            "causal": reported["mask_type"] == "CAUSAL",
            "heads_third": product["lhs_batch_dimensions"] == ["0", "2"],
            "has_bias": "Bias" in target,
            "backward": backward,
        }
        texts = [f"scale = {reported['fmha_scale']:e} : f64"]
        texts += [f"{name} = {int(value)} : i64" for name, value in attributes.items()]
        values = as_it_is(self, target, operands, results, config)
        line = self.lines[-1].replace(quoted(target), '"emulated_cudnn"').replace("version = 2", "version = 4")
        self.lines[-1] = line.replace(quoted(config), f"{{{', '.join(texts)}}}")
        return values

    PrivateFunction.custom_call = custom_call  # type: ignore[method-assign]
    return calls
