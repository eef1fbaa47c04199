"""Agents: a policy gradient, PPO, DQN, SAC, and stable-baselines3."""

from __future__ import annotations

import copy
import itertools
import random
from collections import deque

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from torch import nn
from torch.distributions import Categorical, Normal
from torch.nn import functional as F

from .person import draws, person


def _mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


@draws
def reinforce(device: str) -> object:
    torch.manual_seed(0)
    environment = gymnasium.make("CartPole-v1")
    policy = _mlp(4, 32, 2).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    lengths = []
    for episode in range(15):
        state, _ = environment.reset(seed=episode)
        logs, rewards, done = [], [], False
        while not done and len(rewards) < 40:
            chosen = Categorical(logits=policy(torch.as_tensor(state).to(device)))
            action = chosen.sample()
            logs.append(chosen.log_prob(action))
            state, reward, done, _, _ = environment.step(action.item())
            rewards.append(float(reward))
        returns = torch.tensor(np.cumsum(rewards[::-1])[::-1].copy(), dtype=torch.float32).to(device)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        loss = -(torch.stack(logs) * returns).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lengths.append(len(rewards))
    return lengths


@draws
def ppo(device: str) -> object:
    torch.manual_seed(0)
    environment = gymnasium.make("CartPole-v1")
    actor, critic = _mlp(4, 64, 2).to(device), _mlp(4, 64, 1).to(device)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-4, eps=1e-5)
    state, _ = environment.reset(seed=0)
    losses = []
    for _ in range(2):
        states, actions, logs, rewards, values = [], [], [], [], []
        for _ in range(128):
            x = torch.as_tensor(state, dtype=torch.float32).to(device)
            with torch.no_grad():
                chosen = Categorical(logits=actor(x))
                action = chosen.sample()
                values.append(critic(x).squeeze(-1))
            states.append(x)
            actions.append(action)
            logs.append(chosen.log_prob(action))
            state, reward, done, _, _ = environment.step(action.cpu().numpy())
            rewards.append(float(reward))
            if done:
                state, _ = environment.reset()
        x, a, old, v = torch.stack(states), torch.stack(actions), torch.stack(logs).detach(), torch.stack(values)
        returns = torch.zeros_like(v)
        after = torch.zeros((), device=device)
        for t in reversed(range(len(rewards))):
            after = rewards[t] + 0.99 * after
            returns[t] = after
        advantage = returns - v
        for _ in range(4):
            for batch in torch.randperm(128).split(32):
                batch = batch.to(device)
                chosen = Categorical(logits=actor(x[batch]))
                ratio = (chosen.log_prob(a[batch]) - old[batch]).exp()
                gain = advantage[batch]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                loss = loss + 0.5 * (critic(x[batch]).squeeze(-1) - returns[batch]).square().mean()
                loss = loss - 0.01 * chosen.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
                optimizer.step()
        losses.append(loss.item())
    return losses


@person
def dqn(device: str) -> object:
    torch.manual_seed(0)
    random.seed(0)
    environment = gymnasium.make("CartPole-v1")
    network = _mlp(4, 64, 2).to(device)
    target = copy.deepcopy(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, amsgrad=True)
    replay: deque[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]] = deque(maxlen=1000)
    state = torch.tensor(environment.reset(seed=0)[0], device=device).unsqueeze(0)
    losses = []
    for step in range(200):
        if random.random() > 0.3:
            with torch.no_grad():
                action = network(state).max(1).indices.view(1, 1)
        else:
            action = torch.tensor([[random.randint(0, 1)]], device=device)
        observation, reward, done, _, _ = environment.step(action.item())
        after = torch.tensor(observation, device=device).unsqueeze(0)
        replay.append((state, action, after, torch.tensor([float(reward) * (not done)], device=device)))
        state = after if not done else torch.tensor(environment.reset(seed=step)[0], device=device).unsqueeze(0)
        if len(replay) < 32:
            continue
        states, actions, afters, rewards = (torch.cat(x) for x in zip(*random.sample(list(replay), 32), strict=True))
        value = network(states).gather(1, actions)
        with torch.no_grad():
            best = target(afters).max(1).values
        loss = F.smooth_l1_loss(value, (best * 0.99 + rewards).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(network.parameters(), 100)
        optimizer.step()
        losses.append(loss.detach())
        held = target.state_dict()
        for key, now in network.state_dict().items():
            held[key] = now * 0.005 + held[key] * 0.995
        target.load_state_dict(held)
    return torch.stack(losses)[:40]


@draws
def sac(device: str) -> object:
    torch.manual_seed(0)
    actor = _mlp(6, 64, 4).to(device)
    first, second = _mlp(8, 64, 1).to(device), _mlp(8, 64, 1).to(device)
    targets = copy.deepcopy(first), copy.deepcopy(second)
    of_actor = torch.optim.Adam(actor.parameters(), lr=3e-4)
    of_critics = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=3e-4)
    alpha = torch.zeros(1, requires_grad=True, device=device)
    of_alpha = torch.optim.Adam([alpha], lr=3e-4)
    losses = []

    def act(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log = actor(x).chunk(2, -1)
        drawn = Normal(mean, log.clamp(-5, 2).exp())
        raw = drawn.rsample()
        action = raw.tanh()
        return action, (drawn.log_prob(raw) - (1 - action.square() + 1e-6).log()).sum(-1, keepdim=True)

    for _ in range(60):
        x, u, r, after = (torch.randn(64, n).to(device) for n in (6, 2, 1, 6))
        with torch.no_grad():
            action, log = act(after)
            both = torch.cat([after, action], 1)
            goal = r + 0.99 * (torch.min(targets[0](both), targets[1](both)) - alpha.exp() * log)
        now = torch.cat([x, u], 1)
        loss = F.mse_loss(first(now), goal) + F.mse_loss(second(now), goal)
        of_critics.zero_grad()
        loss.backward()
        of_critics.step()
        action, log = act(x)
        both = torch.cat([x, action], 1)
        of_actor.zero_grad()
        (alpha.exp().detach() * log - torch.min(first(both), second(both))).mean().backward()
        of_actor.step()
        of_alpha.zero_grad()
        (-alpha.exp() * (log + 2).detach()).mean().backward()
        of_alpha.step()
        with torch.no_grad():
            for net, target in zip((first, second), targets, strict=True):
                for p, q in zip(net.parameters(), target.parameters(), strict=True):
                    q.mul_(0.995).add_(p, alpha=0.005)
        losses.append(loss.item())
    return losses


@draws
def stable_baselines_ppo(device: str) -> object:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=128, batch_size=64, n_epochs=4, seed=0, device=device)
    model.learn(256)
    return [0.0]
