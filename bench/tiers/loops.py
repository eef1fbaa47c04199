"""Loops as people write them, small enough that the time before the compile matters, for floor.py and costs.py.

Each is a function of a device that returns the work of one step, which ends with a read, as such loops do.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

Step = Callable[[], object]
LOOPS: dict[str, Callable[[str], Step]] = {}


def loop(name: str) -> Callable[[Callable[[str], Step]], Callable[[str], Step]]:
    def add(make: Callable[[str], Step]) -> Callable[[str], Step]:
        LOOPS[name] = make
        return make

    return add


def training(net: nn.Module, loss: Callable[[], Tensor], optimizer: torch.optim.Optimizer | None = None) -> Step:
    stepping = optimizer or torch.optim.AdamW(net.parameters(), lr=1e-3)

    def step() -> float:
        stepping.zero_grad()
        value = loss()
        value.backward()
        stepping.step()
        return value.item()

    return step


def deep(device: str, optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer]) -> Step:
    layers = [layer for _ in range(50) for layer in (nn.Linear(8, 8), nn.Tanh())]
    net = nn.Sequential(*layers).to(device)
    x, y = torch.randn(16, 8).to(device), torch.randn(16, 8).to(device)
    return training(net, lambda: F.mse_loss(net(x), y), optimizer([*net.parameters()]))


@loop("50-layer MLP, Adam")
def deep_adam(device: str) -> Step:
    return deep(device, lambda parameters: torch.optim.Adam(parameters))


@loop("50-layer MLP, SGD")
def deep_sgd(device: str) -> Step:
    return deep(device, lambda parameters: torch.optim.SGD(parameters, lr=0.01))


@loop("50-layer MLP, momentum, foreach=False")
def deep_momentum(device: str) -> Step:
    return deep(device, lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, foreach=False))


@loop("CNN of ./dev run")
def small_cnn(device: str) -> Step:
    from examples.digits import DigitNet, digits

    net = DigitNet().to(device)
    images, labels = (t[:64] for t in digits()[0].tensors)
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=20_000)
    step = training(net, lambda: F.cross_entropy(net(images.to(device)), labels.to(device)), optimizer)

    def scheduled() -> object:
        loss = step()
        schedule.step()
        return loss

    return scheduled


@loop("simulation of 200 bodies")
def bodies(device: str) -> Step:
    place, speed = torch.randn(200, 3).to(device), torch.zeros(200, 3).to(device)

    def step() -> float:
        nonlocal place, speed
        between = place[None] - place[:, None]
        distance = (between.square().sum(-1) + 0.01).sqrt()
        force = (between / distance[..., None] ** 3).sum(1)
        speed = speed + 1e-4 * force
        place = place + 1e-3 * speed
        return (0.5 * speed.square().sum() - (1 / distance).triu(1).sum()).item()

    return step


@loop("LSTM, 30 steps of 16 rows")
def lstm(device: str) -> Step:
    embedding, cell, head = (m.to(device) for m in (nn.Embedding(100, 32), nn.LSTM(32, 64), nn.Linear(64, 100)))
    tokens = torch.randint(0, 100, (31, 16)).to(device)

    def loss() -> Tensor:
        return F.cross_entropy(head(cell(embedding(tokens[:-1]))[0]).flatten(0, 1), tokens[1:].flatten())

    return training(nn.ModuleList([embedding, cell, head]), loss)


@loop("MLP on digits")
def mlp(device: str) -> Step:
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    x, y = torch.randn(64, 64), torch.randint(0, 10, (64,))
    return training(net, lambda: F.cross_entropy(net(x.to(device)), y.to(device)))


@loop("transformer's training")
def transformer(device: str) -> Step:
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(200, 64), net, nn.Linear(64, 200)).to(device)
    tokens = torch.randint(0, 200, (8, 33)).to(device)
    return training(model, lambda: F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()))


@loop("policy that acts and learns")
def policy(device: str) -> Step:
    net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

    def step() -> float:
        states, actions = [], []
        state = torch.randn(4)
        with torch.no_grad():
            for _ in range(8):
                states.append(state)
                action = net(state.to(device)).softmax(-1).multinomial(1).item()
                actions.append(action)
                state = state + 0.1 * (action - 0.5)
        optimizer.zero_grad()
        chosen = net(torch.stack(states).to(device)).log_softmax(-1)
        returns = torch.arange(8.0, 0.0, -1.0).to(device)
        loss = -(chosen.gather(1, torch.tensor(actions)[:, None].to(device))[:, 0] * returns).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


@loop("ResNet-18 at batch 4")
def resnet(device: str) -> Step:
    from models.resnet import resnet18

    net = resnet18(classes=10).to(device)
    x, y = torch.randn(4, 3, 64, 64).to(device), torch.randint(0, 10, (4,)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    return training(net, lambda: F.cross_entropy(net(x), y), optimizer)


@loop("varying lengths")
def lengths(device: str) -> Step:
    embedding, cell, head = (m.to(device) for m in (nn.Embedding(100, 32), nn.GRU(32, 32), nn.Linear(32, 2)))
    chance = random.Random(0)

    def loss() -> Tensor:
        tokens = torch.randint(0, 100, (chance.randint(5, 40), 8)).to(device)
        return F.cross_entropy(head(cell(embedding(tokens))[0][-1]), torch.randint(0, 2, (8,)).to(device))

    return training(nn.ModuleList([embedding, cell, head]), loss)


@loop("Newton's method")
def newton(device: str) -> Step:
    scale = torch.rand(100).to(device) + 1

    def step() -> int:
        x, rounds = torch.ones(100, device=device), 0
        while True:
            change = (x * x - scale) / (2 * x)
            x = x - change
            rounds += 1
            if change.abs().max() < 1e-5:
                return rounds

    return step


@loop("L-BFGS")
def lbfgs(device: str) -> Step:
    net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    x = torch.randn(100, 4).to(device)
    y = x.sum(1, keepdim=True).sin()
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=4)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss

    return lambda: optimizer.step(closure).item()


@loop("Langevin sampler")
def sampler(device: str) -> Step:
    x = torch.randn(64, 10).to(device).requires_grad_()

    def step() -> float:
        energy = (x.square().sum(1) + 0.1 * (3 * x).cos().sum(1)).sum()
        (slope,) = torch.autograd.grad(energy, x)
        with torch.no_grad():
            x.add_(-0.01 * slope + 0.14 * torch.randn_like(x))
        return energy.item()

    return step


def generating(model: nn.Module, device: str, **how: object) -> Step:
    model = model.eval().to(device)
    prompt = torch.randint(0, 500, (1, 8)).to(device)
    how = {"max_new_tokens": 32, "min_new_tokens": 32, "do_sample": False, "pad_token_id": 0, **how}
    return lambda: model.generate(prompt, **how).cpu()


def tiny_gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=500, bos_token_id=1, eos_token_id=2))


def tiny_llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=500)
    )


@loop("GPT-2 generate(), 32 tokens")
def gpt2_dynamic(device: str) -> Step:
    return generating(tiny_gpt2(), device)


@loop("GPT-2 generate(), static cache")
def gpt2_static(device: str) -> Step:
    return generating(tiny_gpt2(), device, cache_implementation="static", disable_compile=True)


@loop("Llama generate(), 32 tokens")
def llama_dynamic(device: str) -> Step:
    return generating(tiny_llama(), device)


@loop("Llama generate(), static cache")
def llama_static(device: str) -> Step:
    return generating(tiny_llama(), device, cache_implementation="static", disable_compile=True)
