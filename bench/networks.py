"""Networks, forward and training step, batch 4, against the same StableHLO through bare PJRT: ResNet-18 and a two-layer
BERT here, ResNet-50 and BERT-base in large_networks.py.

Eager CPU is shown for information.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import torch
from torch import nn

import torch_pjrt
from measure import Result, compare, compare_timed, seconds
from models.language import bert
from models.resnet import resnet18
from torch_pjrt import _C

BATCH = 4
TARGET = 1.1

Call = Callable[[nn.Module], torch.Tensor]
DTYPES = {"f32": torch.float32, "f64": torch.float64, "i64": torch.int64, "ui64": torch.int64, "i32": torch.int32,
          "i1": torch.bool}  # fmt: skip


def resnet(device: str, make: Callable[[], nn.Module] = resnet18) -> tuple[nn.Module, Call]:
    torch.manual_seed(0)
    model = make().to(device)
    images = torch.randn(BATCH, 3, 224, 224).to(device)
    return model, lambda m: m(images)


def sentences(device: str, make: Callable[[], nn.Module] = bert) -> tuple[nn.Module, Call]:
    torch.manual_seed(0)
    model = make().to(device)
    tokens = torch.randint(0, 30522, (BATCH, 128)).to(device)
    return model, lambda m: m(input_ids=tokens).logits


class Forward:
    def __init__(self, model: nn.Module, call: Call) -> None:
        self.model, self.call = model.eval(), call

    @torch.no_grad()
    def __call__(self) -> None:
        self.call(self.model).cpu()


class Train:
    def __init__(self, model: nn.Module, call: Call) -> None:
        self.model, self.call = model.train(), call
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        loss = self.call(self.model).square().mean()
        loss.backward()
        self.optimizer.step()
        loss.item()


def arguments_of(text: str) -> Iterator[tuple[torch.Tensor, int]]:
    """Yields arguments of the types that a program takes, each with the result that may overwrite it, or -1.

    The program's running time doesn't depend on their values.
    """
    signature = text[text.index("@main(") :].split(") ->")[0]
    for dims, element, result in re.findall(
        r"%\w+: tensor<((?:\d+x)*)(\w+)>(?: {tf\.aliasing_output = (\d+) : i32})?", signature
    ):
        dtype = DTYPES[element]
        shape = [int(d) for d in dims.split("x") if d]
        floats = dtype.is_floating_point
        tensor = torch.randn(shape, dtype=dtype).mul(0.02).abs() if floats else torch.zeros(shape, dtype=dtype)
        yield tensor, int(result or -1)


def steady_program(step: Callable[[], object]) -> str:
    """Returns the StableHLO of one step, after steps have stopped compiling. Raises if a step is not one program."""
    compiled: list[str] = []
    _C.set_program_listener(lambda graph, stablehlo: compiled.append(stablehlo))
    try:
        for _ in range(5):
            before, executions = len(compiled), torch_pjrt.metrics()["executions"]
            step()
            if len(compiled) == before:
                break
        else:
            raise RuntimeError("each step compiles")
    finally:
        _C.set_program_listener(None)
    if (executed := torch_pjrt.metrics()["executions"] - executions) != 1:
        raise RuntimeError(f"a step runs {executed} programs")
    return compiled[-1]


def bare(text: str) -> _C.BareProgram:
    """Returns the same program by bare PJRT; it updates in place the buffers that the step updates in place."""
    program = _C.BareProgram(text)
    program.set_arguments(*map(list, zip(*arguments_of(text), strict=True)))
    return program


def measured(networks: dict[str, Callable[[str], tuple[nn.Module, Call]]], rounds: int) -> list[Result]:
    results = []
    for name, make in networks.items():
        for kind, step in (("forward", Forward), ("training step", Train)):
            title = f"{name}, {kind}"
            ours, eager = step(*make("pjrt")), step(*make("cpu"))
            program = bare(steady_program(ours))
            program.execute()
            both = lambda ours=ours, program=program: (seconds(ours, 1), program.execute())  # noqa: E731
            results.append(compare_timed(title, both, TARGET, against="bare PJRT", rounds=rounds))
            results.append(compare(title, ours, eager, None, rounds=max(3, rounds // 3), warm=1))
    return results


def measure() -> list[Result]:
    return measured({"ResNet-18": resnet, "BERT, 2 layers": sentences}, rounds=15)
