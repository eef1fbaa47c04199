"""torch.compile: the cost of a call, against bare PJRT and Inductor, for small models that are nearly all overhead.

Inductor compiles with the machine's C++ compiler; its compile time is not part of these figures (see compile_models).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import torch
from mlp import mlp
from torch import nn

import torch_pjrt
from measure import Result, compare, compare_timed, repeat_for, seconds
from torch_pjrt import _C

CPU = torch.device("cpu")


def nearly_nothing(count: int) -> tuple[Callable[[], object], Callable[[], float]]:
    """Returns one call of a program of `count` 2x2 arguments that adds two, and a timer of one call by bare PJRT."""
    texts: list[str] = []
    _C.set_program_listener(lambda graph, text: texts.append(text))
    trace = _C.Trace()
    arguments = [trace.tensor(CPU, torch.float32, [2, 2], [2, 1]) for _ in range(count)]
    total = torch.cat([a[:1, :1] for a in arguments]).sum() if count > 1 else arguments[0] + 1
    program = trace.compile([total], [CPU], CPU)
    _C.set_program_listener(None)
    function = _C.Function(lambda arguments: program, list)
    tensors = [torch.ones(2, 2) for _ in range(count)]
    bare = _C.BareProgram(texts[-1])
    return lambda: function(list(tensors)), lambda: bare.call(tensors, 200) * 1e-9


def call_cost(count: int, target: float) -> Result:
    ours, bare = nearly_nothing(count)
    repeat = repeat_for(ours)
    return compare_timed(
        f"a compiled call, {count} argument{'s' * (count > 1)}",
        lambda: (seconds(ours, repeat), bare()),
        target,
        against="bare PJRT: make buffers, execute, destroy",
    )


def compiled(fn: Callable[..., object], backend: str, **options: object) -> Callable[..., object]:
    return torch.compile(copy.deepcopy(fn), backend=backend, fullgraph=True, **options)


def inference(name: str, model: nn.Module, inputs: tuple[torch.Tensor, ...], target: float) -> list[Result]:
    """Times a model against eager, Inductor and Inductor with frozen weights, and Dynamo's guards alone."""
    model = model.eval()

    def call(fn: Callable[..., object]) -> Callable[[], object]:
        def work() -> None:
            with torch.no_grad():
                fn(*inputs)

        work()
        return work

    ours = call(compiled(model, "pjrt"))
    inductor = call(compiled(model, "inductor"))
    with torch._inductor.config.patch(freezing=True):
        frozen = call(compiled(model, "inductor"))
    return [
        compare(name, ours, inductor, target, against="Inductor"),
        compare(name, ours, frozen, None, against="Inductor, freezing"),
        compare(name, ours, call(model), None),
        compare(
            f"{name}: Dynamo's guards and eager's calls", call(compiled(model, "eager")), ours, None, against="ours"
        ),
    ]


def plus_one(size: int) -> list[Result]:
    x = torch.ones(size, size)
    functions = {}
    for backend in ("pjrt", "inductor", "eager"):
        # Each backend gets its own function: Dynamo tries the guards of all compilations of one code object.
        namespace: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {}
        exec("def plus_one(x): return x + 1", namespace)
        functions[backend] = torch.compile(namespace["plus_one"], backend=backend)
    name = f"x + 1, {size} x {size}"
    return [
        compare(name, lambda: functions["pjrt"](x), lambda: functions["inductor"](x), 0.9, against="Inductor"),
        compare(f"{name}: Dynamo's guards and eager's call", lambda: functions["eager"](x),
                lambda: functions["pjrt"](x), None, against="ours"),
    ]  # fmt: skip


def policy() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 6))


def whole_step() -> Result:
    """Times forward, backward and Adam as one program, against eager."""

    def training(wrap: Callable[[Callable[..., torch.Tensor]], Callable[..., torch.Tensor]]) -> Callable[[], object]:
        model, x = mlp().train(), torch.ones(2, 8)
        optimizer = torch.optim.Adam(model.parameters())

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run = wrap(step)
        return lambda: run(x)

    ours, eager = training(torch_pjrt.compile_step), training(lambda step: step)
    return compare("MLP of 50 layers, Adam step in compile_step", ours, eager, 0.1)


def measure() -> list[Result]:
    warnings.filterwarnings("ignore")
    return [
        call_cost(1, 1.5),
        call_cost(100, 0.4),
        *plus_one(4),
        *plus_one(100),
        *inference("MLP of 50 layers", mlp(), (torch.ones(2, 8),), 0.4),
        *inference("policy MLP, batch 1", policy(), (torch.randn(1, 17),), 0.7),
        whole_step(),
    ]
