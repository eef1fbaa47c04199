"""ResNet-18 and a two-layer BERT, batch 4, forward and training step, against the same StableHLO through bare PJRT.

Eager CPU is shown for information.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import torch
from torch import nn

from measure import Result, compare, compare_timed, seconds
from models.bert import bert
from models.resnet import resnet18
from torch_pjrt import _C

BATCH = 4
TARGET = 1.1

Call = Callable[[nn.Module], torch.Tensor]
DTYPES = {"f32": torch.float32, "f64": torch.float64, "i64": torch.int64, "ui64": torch.int64, "i32": torch.int32,
          "i1": torch.bool}  # fmt: skip


def resnet(device: str) -> tuple[nn.Module, Call]:
    torch.manual_seed(0)
    model = resnet18().to(device)
    images = torch.randn(BATCH, 3, 224, 224).to(device)
    return model, lambda m: m(images)


def two_layer_bert(device: str) -> tuple[nn.Module, Call]:
    torch.manual_seed(0)
    model = bert().to(device)
    tokens = torch.randint(0, 30522, (BATCH, 128)).to(device)
    return model, lambda m: m(input_ids=tokens).logits


class Forward:
    def __init__(self, model: nn.Module, call: Call) -> None:
        self.model, self.call = model.eval(), call

    @torch.no_grad()
    def start(self) -> torch.Tensor:
        return self.call(self.model)

    def __call__(self) -> None:
        self.start().cpu()

    def touched(self) -> Iterator[torch.Tensor]:
        return iter(())


class Train:
    def __init__(self, model: nn.Module, call: Call) -> None:
        self.model, self.call = model.train(), call
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def start(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.call(self.model).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def __call__(self) -> None:
        self.start().item()

    def touched(self) -> Iterator[torch.Tensor]:
        """What a step leaves changed."""
        yield from (p.detach() for p in self.model.parameters())
        yield from (p.grad for p in self.model.parameters() if p.grad is not None)
        yield from self.model.buffers()
        for state in self.optimizer.state.values():
            yield from (s for s in state.values() if isinstance(s, torch.Tensor))


def arguments_of(text: str) -> Iterator[torch.Tensor]:
    """Arguments of the types that a program's main function takes; how long it runs doesn't depend on their values."""
    signature = text[text.index("@main(") :].split(") ->")[0]
    for dims, element in re.findall(r"%\w+: tensor<((?:\d+x)*)(\w+)>", signature):
        dtype = DTYPES[element]
        shape = [int(d) for d in dims.split("x") if d]
        yield (
            torch.randn(shape, dtype=dtype).mul(0.02).abs()
            if dtype.is_floating_point
            else torch.zeros(shape, dtype=dtype)
        )


def bare(step: Forward | Train) -> _C.BareProgram:
    """The program of one step, with nothing of ours around it."""
    result = step.start()
    pending = [t for t in (result, *step.touched()) if _C.is_pending(t)]
    text = _C.stablehlo(pending)
    result.cpu()
    program = _C.BareProgram(text)
    program.set_arguments(list(arguments_of(text)))
    return program


def measure() -> list[Result]:
    results = []
    for name, make in (("ResNet-18", resnet), ("BERT, 2 layers", two_layer_bert)):
        for kind, step in (("forward", Forward), ("training step", Train)):
            title = f"{name}, {kind}"
            ours, eager = step(*make("pjrt")), step(*make("cpu"))
            for _ in range(3):
                ours()
            program = bare(ours)
            program.execute()
            both = lambda ours=ours, program=program: (seconds(ours, 1), program.execute())  # noqa: E731
            results.append(compare_timed(title, both, TARGET, against="bare PJRT", rounds=15))
            results.append(compare(title, ours, eager, None, rounds=5, warm=1))
    return results
