"""Every OpInfo entry with an out= of another dtype."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from tests.ops.opinfo import OPS, UNPREDICTABLE, UNSUPPORTED, on_device, samples, to_device, usual_dtype
from tests.ops.test_opinfo import run
from tests.ops.test_out import run_out, said_of

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.int32, torch.bool)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.supports_out])
@pytest.mark.sampled(3)
def test_an_out_of_another_dtype(name: str) -> None:
    """Each out is converted, or refused in the CPU's words. Recording decides that, so calls are interpreted."""
    if name in UNSUPPORTED:
        pytest.skip(UNSUPPORTED[name])
    op = OPS[name]
    for sample in samples(op, usual_dtype(op), 2):
        moved, result = on_device(sample), run(op, sample)
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if not all(isinstance(one, torch.Tensor) for one in results):
            continue

        def given(outs: list[torch.Tensor], is_one: bool = isinstance(result, torch.Tensor)) -> Any:
            return outs[0] if is_one else tuple(outs)

        usual = [torch.empty_like(one) for one in results]
        if said_of(lambda sample=sample, usual=usual, given=given: run_out(op, sample, given(usual))) != ("done",):
            continue  # this sample's call has no out=
        for which, dtype in itertools.product(range(len(results)), DTYPES):
            outs = [torch.zeros_like(one, dtype=dtype if i == which else None) for i, one in enumerate(results)]
            on_it = [to_device(out) for out in outs]
            expected = said_of(lambda s=sample, outs=outs, given=given: run_out(op, s, given(outs)))
            assert said_of(lambda s=moved, outs=on_it, given=given: run_out(op, s, given(outs))) == expected
            if expected == ("done",) and op.name not in UNPREDICTABLE:
                for actual, wanted in zip(on_it, outs, strict=True):
                    if wanted.layout == torch.strided:
                        assert actual.stride() == wanted.stride()
                    # The result is computed in the usual dtype, and rounded to the other.
                    torch.testing.assert_close(actual.cpu(), wanted, rtol=1e-2, atol=1e-3, equal_nan=True)
