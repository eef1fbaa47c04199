"""Writes whose values depend on what they overwrite: XLA:CPU must not do them in place (``emit_program.h``)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

import torch_pjrt
from tests.peak import growth

Program = Callable[[torch.Tensor], torch.Tensor]


def shifted_sums(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[1:] += x[:-1]
    y[2:] += torch.where(x[2:] > 0.5, x[:-2], x.new_zeros(1))
    return y


def of_a_multiple(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[1:] += x[:-1]
    y[2:] += x[:-2]
    return y


def shifted(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[1:] = y[:-1].clone()
    y[2:] += 1
    return y


def transposed(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[2:] = x.flip(0)[2:]
    y[:6:2] = y[:6:2] * 0.5 + y[1:4]
    y[4:6] += 1
    return y


def by_rows(x: torch.Tensor) -> torch.Tensor:
    y = x.clone().reshape(4, 2)
    for i in range(1, 4):
        y[i] = 0.5 * y[i - 1] + x.reshape(4, 2)[i]
    y[0] += y[3]
    return y


PROGRAMS: list[Program] = [shifted_sums, of_a_multiple, shifted, transposed, by_rows]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program(program: Program) -> None:
    x = torch.rand(8)
    expected = program(x)
    torch.testing.assert_close(program(x.to("pjrt")).cpu(), expected)
    torch.testing.assert_close(torch_pjrt.jit(program, (x,))(x), expected)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(program, backend="pjrt")(x), expected)


def window(generator: random.Random, sizes: torch.Size) -> tuple[slice, ...]:
    slices = []
    for size in sizes:
        length = generator.randrange(1, size + 1)
        start = generator.randrange(size - length + 1)
        slices.append(slice(start, start + length, generator.choice([1, 1, 1, 2])))
    return tuple(slices)


def random_program(seed: int) -> Callable[[torch.Tensor, torch.Tensor], list[torch.Tensor]]:
    def program(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        generator = random.Random(seed)
        tensors = [x, y]
        for _ in range(generator.randrange(2, 7)):
            tensor, source = generator.choice(tensors), generator.choice(tensors)
            kind = generator.randrange(5)
            if kind == 0:
                tensors.append(tensor.clone())
            elif kind == 1:
                tensors.append(tensor * generator.choice([1, 2, -1]) + generator.choice([0, 1]))
            else:
                place = window(generator, x.shape)
                others = [window(generator, x.shape) for _ in range(20)]
                fitting = [other for other in others if source[other].shape == tensor[place].shape]
                value = source[generator.choice(fitting)] if fitting else source.flip(0)[place]
                if kind == 2:
                    tensor[place] += value * 1
                else:
                    tensor[place] = tensor[place] * 0.5 + value if kind == 3 else value.clone()
        return tensors

    return program


@pytest.mark.parametrize("sizes", [(8,), (6, 4)])
def test_random_programs(sizes: tuple[int, ...]) -> None:
    for seed in range(60):
        program = random_program(seed)
        x, y = torch.rand(2, *sizes, generator=torch.Generator().manual_seed(seed))
        expected = program(x.clone(), y.clone())
        actual = program(x.to("pjrt"), y.to("pjrt"))
        for a, b in zip(actual, expected, strict=True):
            torch.testing.assert_close(a.cpu(), b, msg=f"seed {seed}")


def test_memory_of_windows_of_many_dimensions() -> None:
    def shifted_twice(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[1:, 2:, 3:, 4:] += x[:-1, :-2, :-3, :-4]
        y[:-2, :-3, :-4, :-5] += y[2:, 3:, 4:, 5:].clone()
        return y

    x = torch.rand(32, 32, 32, 64)
    on_device = x.to("pjrt")
    growth(lambda: shifted_twice(on_device))  # compiles
    assert growth(lambda: shifted_twice(on_device)) < 8 * x.nbytes
    assert shifted_twice(on_device).cpu().equal(shifted_twice(x))
