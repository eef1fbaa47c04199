"""The first minute of ordinary scripts, each in a process of its own with a cold cache, against CPU eager, with a plot
of seconds against steps. They run under TORCH_PJRT_COMPILE=auto, again with the cache of that run, and under "first".

A script is a generator of its steps. The time begins when torch and the model are loaded, and ends with the last step.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

OUT = Path(__file__).resolve().parent / "out"
SCRIPTS: dict[str, Callable[[str], Iterator[object]]] = {}


def script(function: Callable[[str], Iterator[object]]) -> Callable[[str], Iterator[object]]:
    SCRIPTS[function.__name__] = function
    return function


def _training(net: nn.Module, loss: Callable[[int], torch.Tensor], steps: int) -> Iterator[object]:
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for i in range(steps):
        value = loss(i)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        yield value.item()


def _generating(model: nn.Module, device: str, **how: object) -> Iterator[object]:
    model = model.eval().to(device)
    prompt = torch.randint(0, 500, (1, 8)).to(device)
    yield None
    result = model.generate(prompt, max_new_tokens=64, pad_token_id=0, eos_token_id=None, **how)
    yield result.cpu()


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=500, eos_token_id=None))


def _llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=500,
            eos_token_id=None,
        )
    )  # fmt: skip


@script
def generate_greedy_gpt2(device: str) -> Iterator[object]:
    yield from _generating(_gpt2(), device)


@script
def generate_sampling_gpt2(device: str) -> Iterator[object]:
    yield from _generating(_gpt2(), device, do_sample=True)


@script
def generate_beam_llama(device: str) -> Iterator[object]:
    yield from _generating(_llama(), device, num_beams=4)


@script
def sentences_of_new_lengths(device: str) -> Iterator[object]:
    embedding, lstm, head = (m.to(device) for m in (nn.Embedding(100, 32), nn.LSTM(32, 32), nn.Linear(32, 2)))
    lengths = random.sample(range(5, 60), 30)

    def loss(i: int) -> torch.Tensor:
        tokens = torch.randint(0, 100, (lengths[i], 8)).to(device)
        return F.cross_entropy(head(lstm(embedding(tokens))[0][-1]), torch.randint(0, 2, (8,)).to(device))

    yield None
    yield from _training(nn.ModuleList([embedding, lstm, head]), loss, len(lengths))


@script
def random_crops(device: str) -> Iterator[object]:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 10),
    ).to(device)  # fmt: skip
    images = torch.randn(8, 3, 48, 48).to(device)

    def loss(i: int) -> torch.Tensor:
        size = random.randint(24, 47)
        top, left = random.randint(0, 48 - size), random.randint(0, 48 - size)
        crop = images[:, :, top : top + size, left : left + size]
        return F.cross_entropy(net(crop), torch.arange(8, device=device))

    yield None
    yield from _training(net, loss, 40)


@script
def spec_augment(device: str) -> Iterator[object]:
    net = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    features = torch.randn(8, 100, 40).to(device)

    def loss(i: int) -> torch.Tensor:
        x = features.clone()
        for _ in range(2):
            width, start = random.randint(1, 20), random.randint(0, 79)
            x[:, start : start + width] = 0
        return F.cross_entropy(net(x).mean(1), torch.arange(8, device=device))

    yield None
    yield from _training(net, loss, 40)


@script
def dqn_with_replay(device: str) -> Iterator[object]:
    net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
    replay = [(torch.randn(1, 4).to(device), torch.randn(1).to(device)) for _ in range(200)]

    def loss(i: int) -> torch.Tensor:
        states, targets = zip(*random.sample(replay, 32), strict=True)
        return F.smooth_l1_loss(net(torch.cat(states)).amax(1), torch.cat(targets))

    yield None
    yield from _training(net, loss, 60)


@script
def teacher_forcing_by_chance(device: str) -> Iterator[object]:
    embedding, cell, head = (m.to(device) for m in (nn.Embedding(50, 32), nn.GRUCell(32, 32), nn.Linear(32, 50)))
    target = torch.randint(0, 50, (12, 8)).to(device)

    def loss(i: int) -> torch.Tensor:
        h, token, total = torch.zeros(8, 32, device=device), target[0], torch.zeros((), device=device)
        for t in range(1, 12):
            h = cell(embedding(token), h)
            scores = head(h)
            total = total + F.cross_entropy(scores, target[t])
            token = target[t] if random.random() < 0.5 else scores.argmax(1)
        return total

    yield None
    yield from _training(nn.ModuleList([embedding, cell, head]), loss, 30)


@script
def layer_drop(device: str) -> Iterator[object]:
    layers = nn.ModuleList(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True) for _ in range(4)).to(device)
    x = torch.randn(4, 12, 32).to(device)

    def loss(i: int) -> torch.Tensor:
        y = x
        for layer in layers:
            if random.random() < 0.7:
                y = layer(y)
        return (y * y).mean() + sum(p.sum() * 0 for p in layers.parameters())

    yield None
    yield from _training(layers, loss, 30)


@script
def evaluation(device: str) -> Iterator[object]:
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device).eval()
    right = 0
    yield None
    with torch.no_grad():
        for _ in range(100):
            x, y = torch.randn(32, 64).to(device), torch.randint(0, 10, (32,)).to(device)
            right += (net(x).argmax(1) == y).sum().item()
            yield right


@script
def maml(device: str) -> Iterator[object]:
    net = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 1)).to(device)

    def loss(i: int) -> torch.Tensor:
        total = torch.zeros((), device=device)
        for _ in range(2):
            x = torch.randn(10, 1).to(device)
            fast = dict(net.named_parameters())
            for _ in range(3):
                inner = (torch.func.functional_call(net, fast, x) - x.sin()).square().mean()
                grads = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
                fast = {name: p - 0.1 * g for (name, p), g in zip(fast.items(), grads, strict=True)}
            total = total + (torch.func.functional_call(net, fast, x) - x.sin()).square().mean()
        return total

    yield None
    yield from _training(net, loss, 20)


@script
def newton(device: str) -> Iterator[object]:
    yield None
    for i in range(10):
        a, x = torch.full((100,), 2.0 + i, device=device), torch.ones(100, device=device)
        error = torch.ones((), device=device)
        while error > 1e-5:
            step = (x * x - a) / (2 * x)
            x = x - step
            error = step.abs().max()
        yield x.sum().item()


@script
def notebook(device: str) -> Iterator[object]:
    x = torch.randn(50, 20).to(device)
    yield None
    for f in (
        lambda: x.mean(0), lambda: x.std(1), lambda: x @ x.T, lambda: (x > 0).sum(), lambda: x.softmax(1)[:2],
        lambda: torch.linalg.norm(x), lambda: x.sort(1)[0][:3], lambda: x.T.cov(), lambda: x[x[:, 0] > 0].shape,
        lambda: torch.einsum("ij,kj->ik", x, x).diagonal(), lambda: x.view(10, 100).cumsum(1), lambda: x.topk(3)[1],
        lambda: torch.cat([x, x * 2]).var(), lambda: F.layer_norm(x, (20,)), lambda: x.unique().numel(),
    ):  # fmt: skip
        yield str(f())


@script
def first_steps_resnet(device: str) -> Iterator[object]:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from models.resnet import resnet18

    net = resnet18().to(device)
    x = torch.randn(4, 3, 96, 96).to(device)
    yield None
    yield from _training(net, lambda i: F.cross_entropy(net(x), torch.arange(4, device=device)), 10)


@script
def first_steps_bert(device: str) -> Iterator[object]:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=500
    )
    net = BertForSequenceClassification(config).to(device)
    tokens = torch.randint(0, 500, (8, 32)).to(device)
    labels = torch.randint(0, 2, (8,)).to(device)
    yield None
    yield from _training(net, lambda i: net(input_ids=tokens, labels=labels).loss, 10)


@script
def first_steps_t5(device: str) -> Iterator[object]:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=500, decoder_start_token_id=0
    )
    net = T5ForConditionalGeneration(config).to(device)
    tokens = torch.randint(0, 500, (8, 32)).to(device)
    labels = torch.randint(0, 500, (8, 16)).to(device)
    yield None
    yield from _training(net, lambda i: net(input_ids=tokens, labels=labels).loss, 10)


@script
def first_steps_whisper(device: str) -> Iterator[object]:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_ffn_dim=128, vocab_size=500, max_source_positions=50, num_mel_bins=20,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    net = WhisperForConditionalGeneration(config).to(device)
    sound = torch.randn(4, 20, 100).to(device)
    labels = torch.randint(3, 500, (4, 16)).to(device)
    yield None
    yield from _training(net, lambda i: net(input_features=sound, labels=labels).loss, 10)


@script
def a_thousand_steps(device: str) -> Iterator[object]:
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    x, y = torch.randn(128, 64).to(device), torch.randint(0, 10, (128,)).to(device)
    yield None
    yield from _training(net, lambda i: F.cross_entropy(net(x), y), 1000)


LONG = "a_thousand_steps"  # compared with `first`, and not part of the mean


def run(name: str, device: str) -> None:
    """Prints the time at the end of each step, and the first step from which on all were compiled."""
    torch.manual_seed(0)
    random.seed(0)
    steps = SCRIPTS[name](device)
    next(steps)
    times, compiled_from, counted = [], 0, 0
    start = time.perf_counter()
    for i, _ in enumerate(steps):
        times.append(time.perf_counter() - start)
        if device == "pjrt":
            import torch_pjrt

            before, counted = counted, torch_pjrt.metrics()["graphs_interpreted"]
            compiled_from = i + 1 if counted > before else compiled_from
    print(json.dumps({"times": times, "compiled_from": compiled_from}))


def measured(name: str, device: str, cache: str, policy: str = "auto") -> tuple[list[float], int]:
    environment = {
        **os.environ, "TORCH_PJRT_CACHE": "1", "TORCH_PJRT_CACHE_DIR": cache, "TORCH_PJRT_COMPILE": policy,
    }  # fmt: skip
    command = [sys.executable, "-W", "ignore", __file__, name, device]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} on {device}: {done.stderr[-2000:]}")
    reported = json.loads(done.stdout.splitlines()[-1])
    return reported["times"], reported["compiled_from"]


def picture(curves: dict[str, dict[str, list[float]]], path: Path) -> None:
    from matplotlib import pyplot as plt

    columns = 4
    rows = (len(curves) + columns - 1) // columns
    figure, grid = plt.subplots(rows, columns, figsize=(4 * columns, 2.6 * rows), layout="constrained", squeeze=False)
    for axes in grid.flat[len(curves) :]:
        axes.axis("off")
    for axes, (name, by_kind) in zip(grid.flat, curves.items(), strict=False):
        for kind, times in by_kind.items():
            axes.plot(range(1, len(times) + 1), times, label=kind, marker="." if len(times) < 4 else None)
        axes.set(title=name.replace("_", " "), xlabel="steps", ylabel="seconds", yscale="log")
    grid.flat[0].legend(fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def measure() -> list[object]:
    from measure import Result

    names = os.environ.get("TORCH_PJRT_BENCH_SCRIPTS", ",".join(SCRIPTS)).split(",")
    results, curves = [], {}
    cold, warm = [], []
    for name in names:
        with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as other:
            eager, _ = measured(name, "cpu", cache)
            ours, compiled_from = measured(name, "pjrt", cache)
            again, _ = measured(name, "pjrt", cache)
            first, _ = measured(name, "pjrt", other, "first")
        curves[name] = {"eager CPU": eager, "auto, cold": ours, "auto, warm": again, "first, cold": first}
        results += [
            Result(f"{name}, cold", ours[-1], eager[-1], ours[-1] / eager[-1], None if name == LONG else 1.5),
            Result(f"{name}, warm", again[-1], eager[-1], again[-1] / eager[-1], None if name == LONG else 1.1),
            Result(f"{name}, TORCH_PJRT_COMPILE=first", first[-1], eager[-1], first[-1] / eager[-1], None),
        ]
        limit = 1.3 * eager[0] + 0.5
        results.append(
            Result(f"{name}, first step", ours[0], limit, ours[0] / limit, 1.0, against="1.3 of eager's + 0.5")
        )
        if compiled_from < len(ours):
            at = ours[compiled_from - 1] if compiled_from else 0.0
            results.append(
                Result(
                    f"{name}, compiled from step {compiled_from + 1} on, at",
                    at,
                    ours[-1],
                    at / ours[-1],
                    None,
                    against="all of it",
                )
            )
        if name == LONG:
            results.append(
                Result(f"{name}, beside first", ours[-1], first[-1], ours[-1] / first[-1], 1.1, against="first")
            )
        else:
            cold.append(ours[-1] / eager[-1])
            warm.append(again[-1] / eager[-1])
    OUT.mkdir(exist_ok=True)
    picture(curves, OUT / "first_minute_steps.png")
    for kind, ratios, target in (("cold", cold, 1.2), ("warm", warm, 1.1)):
        mean = statistics.geometric_mean(ratios) if ratios else 1.0
        results.append(Result(f"all scripts, {kind}, geometric mean", mean, 1.0, mean, target, unit=""))
    return results


if __name__ == "__main__":
    run(*sys.argv[1:])
