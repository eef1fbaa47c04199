"""Every model by name, with inputs, a target and a loss: at its usual size, or small enough for a test."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.alexnet import AlexNet
from models.dlrm import DLRM
from models.language import bert, gpt2, llama
from models.mobile import mnasnet, mobilenet_v2
from models.policy import Policy
from models.recurrent import RecurrentLanguageModel
from models.resnet import resnet18, resnet50, resnext50
from models.squeezenet import SqueezeNet
from models.unet import UNet
from models.vgg import VGG16
from models.vit import ViT


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and one batch for it, on the CPU; both may be moved."""

    model: nn.Module
    inputs: tuple[Tensor, ...]
    target: Tensor
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy

    @staticmethod
    def output(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        """Returns the tensor among the model's results that is compared."""
        result = model(*inputs)
        return result if isinstance(result, Tensor) else result.logits


def _next_token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def _actor_critic_loss(output: Tensor, target: Tensor) -> Tensor:
    """target: (batch, 2), the action taken and its return."""
    log_probabilities = output[:, :-1].log_softmax(1)
    advantage = target[:, 1] - output[:, -1]
    chosen = log_probabilities.gather(1, target[:, :1].long()).squeeze(1)
    entropy = -(log_probabilities.exp() * log_probabilities).sum(1)
    return (advantage.square() - chosen * advantage.detach() - 0.01 * entropy).mean()


def _images(make: Callable[..., nn.Module], side: int, **small_sizes: object) -> Callable[[bool, int], Case]:
    def case(small: bool, batch: int) -> Case:
        model = make(classes=10, **small_sizes) if small else make()
        size = side if small else 224
        images = torch.randn(batch, 3, size, size)
        return Case(model, (images,), torch.randint(0, 10, (batch,)))

    return case


def _bert(small: bool, batch: int) -> Case:
    sizes = {"vocab_size": 100, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    model = bert(2, **sizes) if small else bert(12)
    tokens = torch.randint(0, model.config.vocab_size, (batch, 16 if small else 128))
    return Case(model, (tokens,), torch.randint(0, 2, (batch,)))


def _gpt2(small: bool, batch: int) -> Case:
    model = gpt2(2, vocab_size=100, n_embd=32, n_head=4, n_positions=64) if small else gpt2(12)
    tokens = torch.randint(0, model.config.vocab_size, (batch, 16 if small else 128))
    return Case(model, (tokens,), tokens, _next_token_loss)


def _llama(small: bool, batch: int) -> Case:
    sizes = {
        "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 64,
    }  # fmt: skip
    model = llama(2, **sizes) if small else llama(4)
    tokens = torch.randint(0, model.config.vocab_size, (batch, 16 if small else 128))
    return Case(model, (tokens,), tokens, _next_token_loss)


def _recurrent(kind: type[nn.RNNBase]) -> Callable[[bool, int], Case]:
    def case(small: bool, batch: int) -> Case:
        model = RecurrentLanguageModel(kind, 50, 16) if small else RecurrentLanguageModel(kind)
        tokens = torch.randint(0, model.embedding.num_embeddings, (batch, 7 if small else 64))
        return Case(model, (tokens,), tokens, _next_token_loss)

    return case


def _unet(small: bool, batch: int) -> Case:
    model, side = (UNet(8, 2), 16) if small else (UNet(), 256)
    mask = torch.rand(batch, 1, side, side).round()
    return Case(model, (torch.randn(batch, 3, side, side),), mask, F.binary_cross_entropy_with_logits)


def _dlrm(small: bool, batch: int) -> Case:
    rows, tables = (50, 3) if small else (10_000, 8)
    model = DLRM(rows, tables, 8) if small else DLRM()
    inputs = (torch.randn(batch, 13), torch.randint(0, rows, (batch, tables, 4)))
    return Case(model, inputs, torch.rand(batch).round(), F.binary_cross_entropy_with_logits)


def _policy(small: bool, batch: int) -> Case:
    target = torch.stack([torch.randint(0, 6, (batch,)).float(), torch.randn(batch)], 1)
    return Case(Policy(width=16) if small else Policy(), (torch.randn(batch, 17),), target, _actor_critic_loss)


CATALOGUE: dict[str, Callable[[bool, int], Case]] = {
    "resnet18": _images(resnet18, 32, width=8, blocks=(1, 1, 1)),
    "resnet50": _images(resnet50, 32, width=8, blocks=(1, 2, 1)),
    "resnext50": _images(resnext50, 32, width=16, groups=4, blocks=(1, 1, 1)),
    "alexnet": _images(AlexNet, 63, width=4),
    "mobilenet_v2": _images(mobilenet_v2, 64, width=0.25, most_blocks=1),
    "mnasnet": _images(mnasnet, 64, width=0.25, most_blocks=1),
    "squeezenet": _images(SqueezeNet, 32, width=8),
    "vgg16": _images(VGG16, 32, width=4),
    "vit": _images(ViT, 16, image=16, patch=4, width=32, heads=4, layers=2),
    "bert": _bert,
    "gpt2": _gpt2,
    "llama": _llama,
    "lstm": _recurrent(nn.LSTM),
    "gru": _recurrent(nn.GRU),
    "unet": _unet,
    "dlrm": _dlrm,
    "policy": _policy,
}


def case(name: str, small: bool = False, batch: int = 4, dropout: bool = False) -> Case:
    """Returns the model `name` of the catalogue, one batch of random inputs, its target and loss.

    Args:
        small: True for a size for tests, instead of the usual one.
        dropout: False removes all dropout from the model, so that its results can be compared.
    """
    torch.manual_seed(0)
    made = CATALOGUE[name](small, batch)
    if not dropout:
        for module in made.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            elif isinstance(module, nn.RNNBase):
                module.dropout = 0.0
    return made
