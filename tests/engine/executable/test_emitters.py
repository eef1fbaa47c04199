"""The choice of XLA:CPU's emitters changes no value, and no compile takes minutes (Note [Emitters])."""

from __future__ import annotations

import time

import pytest
import torch

pytestmark = pytest.mark.compiled

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.cpu().view(torch.uint8)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_conversions_to_floats_of_8_bits_round_once(dtype: torch.dtype) -> None:
    halves = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    for x in torch.cat([halves.float(), halves.float() * (1 + 2**-9)]).split(2**14):
        expected, got = x.to(dtype), x.to("pjrt").to(dtype).cpu()
        numbers = ~expected.float().isnan()
        assert torch.equal(bits(got)[numbers], bits(expected)[numbers])
        assert got.float()[~numbers].isnan().all()


@pytest.mark.parametrize("dtype", FLOAT8)
def test_floats_of_8_bits_are_moved_as_they_are(dtype: torch.dtype) -> None:
    x = torch.arange(256).to(torch.uint8).view(dtype)
    there = x.to("pjrt")
    assert torch.equal(bits(there.flip(0)), bits(x).flip(0))
    assert torch.equal(bits(there.view(16, 16).T.contiguous()), bits(x).view(16, 16).T)
    numbers = ~torch.cat([x, x[3:]]).float().isnan()  # XLA concatenates them as other floats, and NaN loses its bits
    assert torch.equal(bits(torch.cat([there, there[3:]]))[numbers], torch.cat([bits(x), bits(x)[3:]])[numbers])


def test_a_chain_of_gathers_compiles_in_time() -> None:
    def chain(y: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        for step in range(14):
            y = y[1:]
            y = 0.3 * y[places[step + 1 :].clamp(max=y.numel() - 1)] * y + 0.2
        return y

    y, places = torch.rand(100), torch.randint(0, 100, (100,))
    started = time.process_time()
    torch.testing.assert_close(chain(y.to("pjrt"), places.to("pjrt")).cpu(), chain(y, places))
    assert time.process_time() - started < 30  # instead of minutes with the older emitters
