"""Timings: each figure is one of `items`, the cheapest and most informative first, and is timed alternately with other
ways to compute the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from compile_models import MODELS
from facts import everything
from first_minute import LONG, SCRIPTS, measured
from torch import Tensor, nn
from torch.nn import functional as F
from ways import Timed, Timing, compiled, moved, training_step
from worker import Item, Setting, Values

from models.catalogue import Case, case
from models.language import gpt2, llama

CHEAPEST = (
    "resnet18",
    "alexnet",
    "squeezenet",
    "mobilenet_v2",
    "vit",
    "resnet50",
    "bert",
    "mnasnet",
    "resnext50",
    "vgg16",
)
PRECISIONS = ("TF32", "bf16")
# Ten of them use some 40 GiB for inference, and four for training.
MODELS_AT_ONCE = {"inference": 10, "a step": 4}


def items(setting: Setting) -> list[Item]:
    assert sorted(CHEAPEST) == sorted(MODELS)

    def models(kind: str, precision: str, ways: tuple[str, ...], suffix: str = "", limit: float = 150) -> list[Item]:
        group = f"models, {kind}, {precision}{suffix}"
        return [
            Item(f"{name}, {kind}, {precision}{suffix}", partial(model, name, kind, precision, ways), limit, group,
                 MODELS_AT_ONCE[kind])
            for name in CHEAPEST
        ]  # fmt: skip

    def language(*names: str, limit: float = 120) -> list[Item]:
        # A step uses 50 GiB for its five ways, so each has the card for itself.
        return [Item(name, LANGUAGE[name], limit, name if "step" in name else "language", 3) for name in names]

    usual, most = ("eager", "pjrt", "inductor"), ("pjrt", "max-autotune")
    attention = [
        Item(f"attention of 8,192 tokens, {kind}", partial(attending, kind), 60, "attention", 2)
        for kind in ("forward", "forward and backward")
    ]
    return [
        Item("what the card does", ceilings, 30),
        Item("x + 1", partial(small, "x + 1"), 60),
        Item("three linear layers", partial(small, "three linear layers"), 60),
        *attention,
        *models("inference", "TF32", usual),
        *language("GPT-2, inference", "GPT-2, decoding", "Llama 1B, decoding, batch 1"),
        *models("a step", "TF32", usual),
        *language("GPT-2, a step", "Llama 1B, decoding, batch 16", "Llama 1B, prefill of 2,048"),
        *models("inference", "bf16", usual),
        *language("Llama 1B, a step of 2,048", "Llama 1B, a step of 2,048, checkpointing", limit=240),
        *models("a step", "bf16", usual),
        *(Item(f"first minute: {name}", partial(first_minute, name), 60) for name in SCRIPTS if name != LONG),
        *models("inference", "bf16", most, ", max-autotune", 240),
        *models("a step", "bf16", most, ", max-autotune", 240),
        *models("inference", "TF32", most, ", max-autotune", 240),
        *models("a step", "TF32", most, ", max-autotune", 240),
    ]


# --- the card and small calls -----------------------------------------------------------------------------------------


def ceilings(setting: Setting) -> Values:
    """Measures the limits of the machine: the rates of a large copy and a large product."""
    side = 64 if setting.tiny else 8192
    a, b = (torch.randn(side, side, device=setting.device).bfloat16() for _ in range(2))
    source = torch.randn(side * side, device=setting.device)
    target = torch.empty_like(source)
    timing = Timing(setting, per=3)
    timing.add("product", lambda: lambda: a @ b)
    timing.add("copy", lambda: lambda: target.copy_(source))
    values = timing.timed()
    median = values["median"]
    return {
        "machine": everything(setting.device),
        "bf16 product, TFLOP/s": 2 * side**3 / median["product"] / 1e12,
        "copy, GB/s, read and written": 8 * side * side / median["copy"] / 1e9,
    }


def small(name: str, setting: Setting) -> Timed:
    timing = Timing(setting, per=2 if setting.tiny else 100)
    x = torch.randn(4, 64, device=setting.device)
    layers = nn.Sequential(*(m for _ in range(3) for m in (nn.Linear(64, 64), nn.ReLU()))).to(setting.device)

    def make(way: str) -> Callable[[], object]:
        # Each way gets its own function: Dynamo tries the guards of all compilations of one code object.
        namespace: dict[str, Callable[[Tensor], Tensor]] = {}
        exec("def plus_one(x): return x + 1", namespace)
        function = namespace["plus_one"] if name == "x + 1" else layers
        function = compiled(way, setting, function)

        def call() -> Tensor:
            with torch.no_grad():
                return function(x)

        return call

    for way in ("eager", "inductor", "pjrt"):
        timing.add(way, partial(make, way))
    yield
    return timing.timed(rounds=15)


def attending(kind: str, setting: Setting) -> Timed:
    """Times causal attention of one row of 16 heads of 128 in bfloat16; eager is PyTorch's flash attention."""
    timing = Timing(setting)
    sizes = (1, 2, 64, 16) if setting.tiny else (1, 16, 8192, 128)

    def make(way: str) -> Callable[[], object]:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

        tensors = [
            torch.randn(sizes, device=setting.device, dtype=torch.bfloat16).requires_grad_(kind != "forward")
            for _ in range(3)
        ]
        function = compiled(way, setting, attend)

        def call() -> object:
            result = function(*tensors)
            return torch.autograd.grad(result, tensors, result.detach()) if kind != "forward" else result

        return call

    for way in ("eager", "pjrt"):
        timing.add(way, partial(make, way))
    yield
    return timing.timed()


# --- models -----------------------------------------------------------------------------------------------------------


def precise(precision: str) -> torch.dtype:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    return torch.bfloat16 if precision == "bf16" else torch.float32


def model(name: str, kind: str, precision: str, ways: tuple[str, ...], setting: Setting) -> Timed:
    """Times a model of the catalogue, at batch 32."""
    dtype = precise(precision)
    made = case(name, small=setting.tiny, batch=2 if setting.tiny else 32)
    network = made.model.to(dtype).train(kind == "a step")
    inputs = tuple(x.to(setting.device, dtype if x.is_floating_point() else None) for x in made.inputs)
    target = made.target.to(setting.device)
    timing = Timing(setting)

    def make(way: str) -> Callable[[], object]:
        own = moved(way, setting, network)
        if kind == "a step":
            return training_step(
                way, setting, own, lambda m: made.loss(Case.output(m, inputs).float(), target),
                partial(torch.optim.SGD, lr=1e-4, momentum=0.9),
            )  # fmt: skip
        function = compiled(way, setting, own)

        def call() -> Tensor:
            with torch.no_grad():
                return Case.output(function, inputs)

        return call

    for way in ways:
        timing.add(way, partial(make, way))
    yield
    return timing.timed()


# --- language models --------------------------------------------------------------------------------------------------

LLAMA_1B = {
    "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128_256, "max_position_embeddings": 8192, "tie_word_embeddings": True,
}  # fmt: skip
SMALL_LLAMA = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}


def language_model(kind: str, setting: Setting) -> nn.Module:
    """Returns a model in bfloat16, with random weights made on its device."""
    from transformers import masking_utils

    # Outside of a trace it reads values to detect packed sequences; in a trace it makes a mask as if they were packed.
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    torch.manual_seed(0)
    default = torch.get_default_dtype()
    torch.set_default_dtype(precise("bf16"))
    try:
        with torch.device(setting.device):
            if kind == "GPT-2":
                return gpt2(2, vocab_size=100, n_embd=32, n_head=4, n_positions=64) if setting.tiny else gpt2()
            return llama(2, **SMALL_LLAMA) if setting.tiny else llama(16, **LLAMA_1B)
    finally:
        torch.set_default_dtype(default)


def tokens_for(network: Any, batch: int, length: int, setting: Setting) -> Tensor:
    return torch.randint(0, network.config.vocab_size, (batch, 16 if setting.tiny else length), device=setting.device)


def decoding(kind: str, batch: int, setting: Setting) -> Timed:
    from decode import step

    network = language_model(kind, setting)
    timing = Timing(setting)
    for way in ("eager", "pjrt", "inductor", "pjrt, lazily"):

        def make(way: str = way) -> Callable[[], object]:
            place = 8 if setting.tiny else 512
            return step(
                moved(way, setting, network),
                partial(compiled, way, setting),
                batch=batch,
                position=place,
                length=2 * place,
            )

        timing.add(way, make)
    yield
    return timing.timed()


def forward(kind: str, batch: int, length: int, setting: Setting) -> Timed:
    network = language_model(kind, setting).eval()
    tokens, timing = tokens_for(network, batch, length, setting), Timing(setting)
    for way in ("eager", "pjrt", "inductor", "pjrt, lazily"):

        def make(way: str = way) -> Callable[[], object]:
            function, given = compiled(way, setting, moved(way, setting, network)), moved(way, setting, tokens)

            def call() -> object:
                with torch.no_grad():
                    return function(input_ids=given, use_cache=False).logits

            return call

        timing.add(way, make)
    yield
    return timing.timed()


def language_step(kind: str, batch: int, length: int, checkpointing: bool, setting: Setting) -> Timed:
    network = language_model(kind, setting).train()
    network.config.use_cache = False
    if checkpointing:
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    tokens, timing = tokens_for(network, batch, length, setting), Timing(setting)
    for way in ("eager", "pjrt", "inductor", "pjrt, compile_step", "pjrt, lazily"):

        def make(way: str = way) -> Callable[[], object]:
            given = moved(way, setting, tokens)
            return training_step(
                way, setting, moved(way, setting, network), lambda m: m(input_ids=given, labels=given).loss,
                partial(torch.optim.AdamW, lr=1e-5),
            )  # fmt: skip

        timing.add(way, make)
    yield
    return timing.timed(rounds=5)


LANGUAGE: dict[str, Callable[[Setting], Timed]] = {
    "GPT-2, inference": partial(forward, "GPT-2", 8, 512),
    "GPT-2, decoding": partial(decoding, "GPT-2", 1),
    "GPT-2, a step": partial(language_step, "GPT-2", 8, 512, False),
    "Llama 1B, decoding, batch 1": partial(decoding, "Llama", 1),
    "Llama 1B, decoding, batch 16": partial(decoding, "Llama", 16),
    "Llama 1B, prefill of 2,048": partial(forward, "Llama", 1, 2048),
    "Llama 1B, a step of 2,048": partial(language_step, "Llama", 1, 2048, False),
    "Llama 1B, a step of 2,048, checkpointing": partial(language_step, "Llama", 1, 2048, True),
}


# --- the first minute -------------------------------------------------------------------------------------------------


def first_minute(name: str, setting: Setting) -> Values:
    """Times a whole script with a cold cache, in a process of its own, against eager on CUDA."""
    values: Values = {"unit": "s", "first": {}, "broke": {}, "memory": {}, "median": {}}
    for way, device in (("eager", setting.device), ("pjrt", "pjrt")):
        with tempfile.TemporaryDirectory() as cache:
            values["median"][way] = measured(name, device, cache)[0][-1]
        setting.report(values)
    return values
