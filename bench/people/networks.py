"""Networks with training loops of their own: pictures, texts, sounds, graphs."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from .person import draws, person


@person
def mnist(device: str) -> object:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 32), nn.ReLU(), nn.Linear(32, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.Adadelta(net.parameters(), lr=1.0)
    loader = DataLoader(TensorDataset(torch.randn(480, 1, 14, 14), torch.randint(0, 10, (480,))), batch_size=32)
    losses = []
    for _ in range(2):
        net.train()
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = F.nll_loss(F.log_softmax(net(x), 1), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        net.eval()
        with torch.no_grad():
            right = sum((net(x.to(device)).argmax(1) == y.to(device)).sum().item() for x, y in loader)
        assert right >= 0
    return losses[:15]


@person
def mlp_on_digits(device: str) -> object:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x, y = torch.randn(1280, 64).to(device), torch.randint(0, 10, (1280,)).to(device)
    losses = []
    for _ in range(5):
        for i in range(0, 1280, 64):
            loss = F.cross_entropy(net(x[i : i + 64]), y[i : i + 64])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    return losses


@person
def dcgan(device: str) -> object:
    torch.manual_seed(0)
    generator = nn.Sequential(
        nn.ConvTranspose2d(16, 16, 4), nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 8, 4, 2, 1),
        nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh(),
    ).to(device)  # fmt: skip
    critic = nn.Sequential(
        nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 4, 2, 1), nn.BatchNorm2d(16),
        nn.LeakyReLU(0.2), nn.Conv2d(16, 1, 4), nn.Flatten(),
    ).to(device)  # fmt: skip
    both = [torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999)) for net in (generator, critic)]
    losses = []
    for _ in range(25):
        real, noise = torch.randn(16, 1, 16, 16).to(device), torch.randn(16, 16, 1, 1).to(device)
        ones, zeros = torch.ones(16, 1, device=device), torch.zeros(16, 1, device=device)
        critic.zero_grad()
        fake = generator(noise)
        loss = F.binary_cross_entropy_with_logits(critic(real), ones)
        loss = loss + F.binary_cross_entropy_with_logits(critic(fake.detach()), zeros)
        loss.backward()
        both[1].step()
        generator.zero_grad()
        F.binary_cross_entropy_with_logits(critic(fake), ones).backward()
        both[0].step()
        losses.append(loss.item())
    return losses[:8]


@draws
def vae(device: str) -> object:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(196, 64), nn.ReLU(), nn.Linear(64, 16)).to(device)
    decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 196), nn.Sigmoid()).to(device)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    total = 0.0
    for _ in range(60):
        x = torch.rand(64, 196).to(device)
        mean, log = encoder(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * log).exp()
        loss = F.binary_cross_entropy(decoder(z), x, reduction="sum")
        loss = loss - 0.5 * (1 + log - mean.square() - log.exp()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total


class _Block(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(size), nn.LayerNorm(size)])
        self.attend, self.project = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.attend(self.norms[0](x)).split(c, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp(self.norms[1](x))


class _NanoGPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(65, 64), nn.Embedding(32, 64)
        self.blocks = nn.Sequential(_Block(64, 4), _Block(64, 4))
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 65, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.words(tokens) + self.places(places))))


@person
def nanogpt(device: str) -> object:
    torch.manual_seed(0)
    text = torch.randint(0, 65, (2000,))
    net = _NanoGPT().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    losses = []
    for step in range(40):
        starts = torch.randint(0, 1960, (8,))
        x = torch.stack([text[i : i + 32] for i in starts]).to(device)
        y = torch.stack([text[i + 1 : i + 33] for i in starts]).to(device)
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1, (step + 1) / 10)
        loss = F.cross_entropy(net(x).view(-1, 65), y.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@draws
@torch.no_grad()
def nanogpt_sampling(device: str) -> object:
    """Samples as nanoGPT's sample.py does: without a cache, the cropped text is read again for each token."""
    torch.manual_seed(0)
    net = _NanoGPT().to(device).eval()
    tokens = torch.zeros(1, 1, dtype=torch.long, device=device)
    for _ in range(60):
        scores = net(tokens[:, -32:])[:, -1] / 0.8
        best, _ = scores.topk(20)
        scores[scores < best[:, [-1]]] = -math.inf
        tokens = torch.cat([tokens, torch.multinomial(scores.softmax(-1), 1)], 1)
    return tokens.float()


@person
def word_lstm(device: str) -> object:
    """Trains a model like PyTorch's example word_language_model."""
    torch.manual_seed(0)
    embedding, lstm, head = (m.to(device) for m in (nn.Embedding(300, 32), nn.LSTM(32, 32, 2), nn.Linear(32, 300)))
    parameters = [*embedding.parameters(), *lstm.parameters(), *head.parameters()]
    text = torch.randint(0, 300, (421, 10)).to(device)
    state = (torch.zeros(2, 10, 32, device=device), torch.zeros(2, 10, 32, device=device))
    losses = []
    for i in range(0, 420, 14):
        state = tuple(s.detach() for s in state)
        y, state = lstm(embedding(text[i : i + 14]), state)
        loss = F.cross_entropy(head(y).view(-1, 300), text[i + 1 : i + 15].view(-1))
        for p in parameters:
            p.grad = None
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.25)
        for p in parameters:
            p.data.add_(p.grad, alpha=-1.0)
        losses.append(loss.item())
    return losses


@person
def sentences_gru(device: str) -> object:
    torch.manual_seed(0)
    embedding, gru, head = (m.to(device) for m in (nn.Embedding(100, 32), nn.GRU(32, 32), nn.Linear(32, 2)))
    optimizer = torch.optim.Adam([*embedding.parameters(), *gru.parameters(), *head.parameters()])
    losses = []
    for n in torch.randperm(40)[:25] + 5:
        tokens, labels = torch.randint(0, 100, (int(n), 8)).to(device), torch.randint(0, 2, (8,)).to(device)
        loss = F.cross_entropy(head(gru(embedding(tokens))[0][-1]), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _edges() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randint(0, 200, (2, 800)), torch.randn(200, 32)


@person
def graph_convolution(device: str) -> object:
    (source, target), x = (t.to(device) for t in _edges())
    first, second = nn.Linear(32, 16).to(device), nn.Linear(16, 4).to(device)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01, weight_decay=5e-4)
    y = torch.randint(0, 4, (200,)).to(device)
    degree = torch.zeros(200, device=device).scatter_add_(0, target, torch.ones(800, device=device)).clamp(min=1)
    weight = (degree[source] * degree[target]).rsqrt()

    def spread(h: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(h).index_add_(0, target, h[source] * weight[:, None])

    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = F.cross_entropy(spread(second(spread(first(x)).relu())), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@person
def graph_attention(device: str) -> object:
    (source, target), x = (t.to(device) for t in _edges())
    linear, attend = nn.Linear(32, 16).to(device), nn.Linear(32, 1).to(device)
    head = nn.Linear(16, 4).to(device)
    optimizer = torch.optim.Adam([*linear.parameters(), *attend.parameters(), *head.parameters()], lr=0.01)
    y = torch.randint(0, 4, (200,)).to(device)
    losses = []
    for _ in range(60):
        h = linear(x)
        score = F.leaky_relu(attend(torch.cat([h[source], h[target]], 1)).squeeze(1), 0.2)
        top = torch.full((200,), -1e9, device=device).scatter_reduce(0, target, score, "amax")
        score = (score - top[target]).exp()
        total = torch.zeros(200, device=device).scatter_add(0, target, score)
        share = score / (total[target] + 1e-9)
        h = torch.zeros_like(h).index_add(0, target, h[source] * share[:, None])
        loss = F.cross_entropy(head(F.elu(h)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[:20]


@person
@torch.no_grad()
def spectrograms(device: str) -> object:
    """Computes torchaudio's transforms: a mel spectrogram in decibels, deltas, and the inverse by Griffin and Lim."""
    torch.manual_seed(0)
    window = torch.hann_window(256).to(device)
    banks = torch.rand(129, 32).to(device)
    sums = []
    for _ in range(20):
        sound = torch.randn(2, 4000).to(device)
        spectrum = torch.stft(sound, 256, 128, window=window, return_complex=True)
        power = spectrum.abs().square()
        mel = (power.transpose(1, 2) @ banks).transpose(1, 2)
        db = 10 * mel.clamp(min=1e-10).log10()
        db = torch.maximum(db, db.amax((1, 2), keepdim=True) - 80)
        deltas = F.conv1d(F.pad(db, (2, 2), mode="replicate").flatten(0, 1)[:, None],
                          torch.arange(-2.0, 3.0).to(device)[None, None]) / 10  # fmt: skip
        sums.append(deltas.abs().mean() + db.mean())
    magnitude = power.sqrt()
    phase = torch.ones_like(spectrum)
    for _ in range(8):
        wave = torch.istft(magnitude * phase, 256, 128, window=window)
        phase = torch.stft(wave, 256, 128, window=window, return_complex=True)
        phase = phase / (phase.abs() + 1e-8)
    return torch.stack([*sums, wave.square().mean()])


@person
def detection(device: str) -> object:
    """Trains a detector: anchors, their overlaps with boxes, a head for classes and one for offsets, then NMS."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()).to(device)
    classes, offsets = nn.Conv2d(32, 3, 1).to(device), nn.Conv2d(32, 4, 1).to(device)
    optimizer = torch.optim.SGD(
        [*body.parameters(), *classes.parameters(), *offsets.parameters()], lr=1e-3, momentum=0.9
    )
    grid = torch.stack(torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij"), -1).reshape(-1, 2) * 4
    anchors = torch.cat([grid, grid + 8], 1).to(device)

    def overlap(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        corner = (torch.min(a[:, None, 2:], b[None, :, 2:]) - torch.max(a[:, None, :2], b[None, :, :2])).clamp(min=0)
        inner = corner.prod(2)
        area_a, area_b = ((c[:, 2:] - c[:, :2]).prod(1) for c in (a, b))
        return inner / (area_a[:, None] + area_b[None] - inner)

    losses = []
    for _ in range(25):
        image = torch.randn(2, 3, 32, 32).to(device)
        features = body(image)
        scores, moves = classes(features).flatten(2).transpose(1, 2), offsets(features).flatten(2).transpose(1, 2)
        loss = torch.zeros((), device=device)
        for i in range(2):
            corner = torch.rand(4, 2) * 20
            boxes = torch.cat([corner, corner + 8], 1).to(device)
            best, which = overlap(anchors, boxes).max(1)
            labels = torch.where(best > 0.4, which % 2 + 1, torch.zeros_like(which))
            loss = loss + F.cross_entropy(scores[i], labels)
            found = best > 0.4
            loss = loss + F.smooth_l1_loss(moves[i] * found[:, None], (boxes[which] - anchors) * found[:, None])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class _Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))
        self.enter, self.down = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, 2, 1)
        self.up, self.leave = nn.ConvTranspose2d(16, 16, 4, 2, 1), nn.Conv2d(32, 3, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        angle = t[:, None].float() * torch.exp(-torch.arange(8, device=x.device) / 2)
        h = self.enter(x) + self.time(torch.cat([angle.sin(), angle.cos()], 1))[:, :, None, None]
        return self.leave(torch.cat([h, self.up(F.silu(self.norm(self.down(F.silu(h)))))], 1))


@person
def diffusion_training(device: str) -> object:
    torch.manual_seed(0)
    net = _Denoiser().to(device)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    average = [p.detach().clone() for p in net.parameters()]
    losses = []
    for _ in range(30):
        x, noise, t = (
            torch.randn(4, 3, 16, 16).to(device),
            torch.randn(4, 3, 16, 16).to(device),
            torch.randint(0, 100, (4,)),
        )
        share = kept[t.to(device)][:, None, None, None]
        loss = F.mse_loss(net(share.sqrt() * x + (1 - share).sqrt() * noise, t.to(device)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for a, p in zip(average, net.parameters(), strict=True):
                a.lerp_(p, 0.01)
        losses.append(loss.item())
    return losses


@person
@torch.no_grad()
def diffusion_sampling(device: str) -> object:
    torch.manual_seed(0)
    net = _Denoiser().to(device).eval()
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0)
    x = torch.randn(2, 3, 16, 16).to(device)
    for t in reversed(range(0, 100, 2)):
        noise = net(x, torch.full((2,), t, device=device))
        now, before = kept[t], kept[max(t - 2, 0)]
        clean = (x - (1 - now).sqrt().item() * noise) / now.sqrt().item()
        x = before.sqrt().item() * clean.clamp(-3, 3) + (1 - before).sqrt().item() * noise
    return x


@person
def resnet_block_training(device: str) -> object:
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(),
                nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b),
            )  # fmt: skip
            self.short = nn.Conv2d(a, b, 1, 2, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.relu(self.body(x) + self.short(x))

    net = nn.Sequential(Block(3, 16), Block(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).to(
        device
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, nesterov=True)
    losses = []
    for _ in range(30):
        x, y = torch.randn(8, 3, 32, 32).to(device), torch.randint(0, 10, (8,)).to(device)
        loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@draws
def transformer_with_dropout(device: str) -> object:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    net = nn.Sequential(nn.Embedding(100, 32), nn.TransformerEncoder(layer, 2), nn.Linear(32, 100)).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    losses = []
    for _ in range(30):
        tokens = torch.randint(0, 100, (8, 20)).to(device)
        loss = F.cross_entropy(net(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@person
def float16_with_a_scaler(device: str) -> object:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.LayerNorm(128), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device)
    losses = []
    for _ in range(40):
        x, y = torch.randn(32, 64).to(device), torch.randint(0, 10, (32,)).to(device)
        with torch.autocast(device, dtype=torch.float16):
            loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


@person
def per_sample_gradients(device: str) -> object:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    values = {name: p.detach() for name, p in net.named_parameters()}

    def loss(values: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (torch.func.functional_call(net, values, x[None]).squeeze() - y).square()

    of_each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    norms = []
    for _ in range(30):
        gradients = of_each(values, torch.randn(20, 16).to(device), torch.randn(20).to(device))
        size = sum(g.flatten(1).square().sum(1) for g in gradients.values()).sqrt()
        share = (1 / size).clamp(max=1)
        values = {n: p - 0.1 * (share.view(-1, *[1] * p.ndim) * gradients[n]).mean(0) for n, p in values.items()}
        norms.append(size.mean().item())
    return norms
