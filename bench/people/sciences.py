"""Numerical programs: differential equations, Gaussian processes, inference, samplers, quasi-Newton loops."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.distributions import Gamma, HalfNormal, Normal

from .person import draws, person


def _rk4(f: nn.Module, x: torch.Tensor, steps: int, dt: float) -> torch.Tensor:
    path = [x]
    for _ in range(steps):
        k1 = f(x)
        k2 = f(x + dt / 2 * k1)
        k3 = f(x + dt / 2 * k2)
        k4 = f(x + dt * k3)
        x = x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path.append(x)
    return torch.stack(path)


@person
def neural_ode(device: str) -> object:
    torch.manual_seed(0)
    f = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2)).to(device)
    optimizer = torch.optim.RMSprop(f.parameters(), lr=1e-3)
    target = torch.randn(11, 20, 2).to(device)
    losses = []
    for _ in range(80):
        optimizer.zero_grad()
        loss = (_rk4(f, target[0], 10, 0.1) - target).abs().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@person
@torch.no_grad()
def adaptive_ode(device: str) -> object:
    """Halves a step until its error is small; each step reads a number."""
    x = torch.tensor([1.0, 0.5]).to(device)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[0] * (1.5 - x[1]), x[1] * (x[0] - 3)])

    t, dt = 0.0, 0.1
    while t < 100:
        k1 = f(x)
        k2 = f(x + dt * k1)
        error = (dt / 2 * (k2 - k1)).abs().max().item()
        if error > 1e-2:
            dt *= 0.5
            continue
        x, t = x + dt / 2 * (k1 + k2), t + dt
        dt *= min(1.5, 0.9 * math.sqrt(1e-2 / max(error, 1e-9)))
    return x


@person
def gaussian_process(device: str) -> object:
    torch.manual_seed(0)
    x = torch.linspace(0, 1, 60).unsqueeze(1).to(device)
    y = (torch.sin(6 * x) + 0.1 * torch.randn(60, 1).to(device)).squeeze(1)
    scale, length, noise = (torch.zeros((), device=device, requires_grad=True) for _ in range(3))
    optimizer = torch.optim.Adam([scale, length, noise], lr=0.1)
    losses = []
    for _ in range(300):
        optimizer.zero_grad()
        distance = (x - x.T).square()
        k = scale.exp() * torch.exp(-distance / (0.1 * length.exp())) + (0.01 + noise.exp()) * torch.eye(
            60, device=device
        )
        root = torch.linalg.cholesky(k)
        solved = torch.cholesky_solve(y.unsqueeze(1), root).squeeze(1)
        loss = 0.5 * y @ solved + root.diagonal().log().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@draws
def variational_inference(device: str) -> object:
    torch.manual_seed(0)
    x, y = torch.randn(100, 3).to(device), torch.randn(100).to(device)
    mean, log = torch.zeros(4, device=device, requires_grad=True), torch.zeros(4, device=device, requires_grad=True)
    optimizer = torch.optim.Adam([mean, log], lr=0.02)
    losses = []
    for _ in range(500):
        guide = Normal(mean, log.exp())
        w = guide.rsample()
        prior = Normal(torch.zeros(4, device=device), torch.ones(4, device=device))
        likelihood = Normal(x @ w[:3] + w[3], torch.ones((), device=device)).log_prob(y).sum()
        loss = -(likelihood + prior.log_prob(w).sum() - guide.log_prob(w).sum())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@draws
def hamiltonian_monte_carlo(device: str) -> object:
    torch.manual_seed(0)
    data = torch.randn(50).to(device) + 2

    def log_density(q: torch.Tensor) -> torch.Tensor:
        scale = q[1].exp()
        one = torch.ones((), device=device)
        likelihood = Normal(q[0], scale).log_prob(data).sum()
        return likelihood + Normal(one * 0, one * 10).log_prob(q[0]) + HalfNormal(one).log_prob(scale) + q[1]

    def gradient(q: torch.Tensor) -> torch.Tensor:
        q = q.detach().requires_grad_()
        return torch.autograd.grad(log_density(q), q)[0]

    q, samples = torch.zeros(2, device=device), []
    for _ in range(100):
        p = torch.randn(2).to(device)
        before = log_density(q) - 0.5 * p.square().sum()
        new = q
        p = p + 0.05 * gradient(new)
        for _ in range(5):
            new = new + 0.1 * p
            p = p + 0.1 * gradient(new)
        after = log_density(new) - 0.5 * p.square().sum()
        if torch.rand(()).item() < (after - before).exp().item():
            q = new
        samples.append(q.tolist())
    return samples


@person
def lbfgs_rosenbrock(device: str) -> object:
    ends = []
    for start in range(15):
        x = torch.linspace(-1.5, 1.0 + 0.1 * start, 6).to(device).requires_grad_()
        optimizer = torch.optim.LBFGS([x], lr=1, max_iter=60, line_search_fn="strong_wolfe")

        def closure(x: torch.Tensor = x, optimizer: torch.optim.Optimizer = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        ends.append(closure().item() < 5.0)
    return ends


@person
def lbfgs_regression(device: str) -> object:
    torch.manual_seed(0)
    losses = []
    for _ in range(30):
        x, y = torch.randn(200, 10).to(device), torch.randint(0, 3, (200,)).to(device)
        net = nn.Linear(10, 3).to(device)
        optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5)

        def closure(
            x: torch.Tensor = x, y: torch.Tensor = y, net: nn.Module = net,
            optimizer: torch.optim.Optimizer = optimizer,
        ) -> torch.Tensor:  # fmt: skip
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            return loss

        losses += [optimizer.step(closure).item() for _ in range(5)]
    return losses


@person
def newton(device: str) -> object:
    torch.manual_seed(0)
    ends = []
    for _ in range(200):
        a = torch.randn(30, 30)
        a = (a @ a.T + 30 * torch.eye(30)).to(device)
        b, x = torch.randn(30).to(device), torch.zeros(30, device=device)
        for _ in range(60):
            residual = a @ x - b + 0.1 * x**3
            step = torch.linalg.solve(a + torch.diag(0.3 * x**2), residual)
            x = x - 0.5 * step
            if step.norm().item() < 1e-6:
                break
        ends.append(x.sum())
    return torch.stack(ends)


@person
def conjugate_gradient(device: str) -> object:
    torch.manual_seed(0)
    ends = []
    for _ in range(400):
        a = torch.randn(100, 100)
        a = (a @ a.T / 100 + torch.eye(100)).to(device)
        b, x = torch.randn(100).to(device), torch.zeros(100, device=device)
        r = b - a @ x
        p, old = r, r @ r
        for _ in range(60):
            q = a @ p
            alpha = old / (p @ q)
            x, r = x + alpha * p, r - alpha * q
            new = r @ r
            if new.sqrt() < 1e-4:
                break
            p, old = r + new / old * p, new
        ends.append(x.sum())
    return torch.stack(ends)


@draws
def bayesian_gamma(device: str) -> object:
    torch.manual_seed(0)
    log = torch.zeros(2, device=device, requires_grad=True)
    data = torch.rand(100).to(device) * 3 + 0.1
    optimizer = torch.optim.SGD([log], lr=1e-3)
    losses = []
    for _ in range(600):
        optimizer.zero_grad()
        loss = -Gamma(log[0].exp(), log[1].exp()).log_prob(data).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@person
@torch.no_grad()
def bodies(device: str) -> object:
    """A simulation with a read in each step."""
    torch.manual_seed(0)
    x, v, mass = torch.randn(80, 3).to(device), torch.zeros(80, 3).to(device), torch.rand(80).to(device)
    energies = []
    for _ in range(1000):
        d = x[None] - x[:, None]
        force = (d * (mass[None, :, None] / (d.square().sum(-1, keepdim=True) + 0.01) ** 1.5)).sum(1)
        v = v + 0.01 * force
        x = x + 0.01 * v
        energies.append((0.5 * mass * v.square().sum(1)).sum().item())
    return energies
