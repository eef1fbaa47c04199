"""A small actor-critic for reinforcement learning."""

from __future__ import annotations

import torch
from torch import nn


class Policy(nn.Module):
    """Returns (batch, actions + 1): the logits of the actions, and the value of the state."""

    def __init__(self, observations: int = 17, actions: int = 6, width: int = 64) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observations, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor, self.critic = nn.Linear(width, actions), nn.Linear(width, 1)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        hidden = self.body(observations)
        return torch.cat([self.actor(hidden), self.critic(hidden)], 1)
