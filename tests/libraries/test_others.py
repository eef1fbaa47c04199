"""Libraries of which CI has hardly any: those that are installed.

TRIED says with which versions these tests were run by hand: after a pip install,
``./dev test tests/libraries/test_others.py``.
"""

from __future__ import annotations

import copy
import tempfile
from typing import Any

import pytest
import torch
from torch import nn

import torch_pjrt

TRIED = {
    "gpytorch": "1.15.2",
    "kornia": "0.9.0",
    "peft": "0.21.2",
    "schedulefree": "1.4.1",
    "segmentation_models_pytorch": "0.6.0",
    "timm": "1.0.31",
    "torch_geometric": "2.8.1",
    "torchmetrics": "1.9.0",
    "torchtitan": "0.3.0",
    "torchtune": "0.6.1",
    "torchvision": "0.29.1",
    "trl": "1.16.0",
}


def needed(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} {TRIED[name]}, which was tried by hand")


def steps(network: nn.Module, inputs: tuple[Any, ...], device: str, optimizer: Any = None) -> list[float]:
    """The losses of three steps on that device."""
    network = copy.deepcopy(network).to(device)
    given = [x.to(device) if isinstance(x, torch.Tensor) else x for x in inputs]
    made = (optimizer or (lambda parameters: torch.optim.SGD(parameters, 0.05)))(network.parameters())
    losses = []
    for _ in range(3):
        made.zero_grad()
        result = network(*given)
        loss = getattr(result, "logits", result).square().mean()
        loss.backward()
        made.step()
        losses.append(loss.item())
    return losses


def same_steps(network: nn.Module, *inputs: Any, optimizer: Any = None, on_the_host: tuple[str, ...] = ()) -> None:
    found = steps(network, inputs, "pjrt", optimizer)
    torch.testing.assert_close(found, steps(network, inputs, "cpu", optimizer), rtol=1e-3, atol=1e-5)
    assert tuple(torch_pjrt.metrics()["host_fallbacks"]) == on_the_host


def test_peft() -> None:
    """LoRA on a GPT-2."""
    peft = needed("peft")
    transformers = pytest.importorskip("transformers")
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 8}
    config = transformers.GPT2Config(vocab_size=11, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **size)
    network = peft.get_peft_model(transformers.GPT2LMHeadModel(config), peft.LoraConfig(r=2, target_modules=["c_attn"]))
    same_steps(network, torch.randint(11, (2, 8)))


def test_torchtitan() -> None:
    """Training on one device, with FSDP2 and tensor parallel under torchrun, and with tensor parallel in a world:
    examples/trainers/torchtitan_llama.py."""
    needed("torchtitan")
    from torchtitan.components import loss

    from torch_pjrt.distributed.rank import PerRank

    assert loss.min(2, 3) == loss.min([3, 2]) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch_pjrt._C.world_size", lambda: 2)
        assert loss.min(3, PerRank([2, 4])).values == (2, 3)


def test_torchtune() -> None:
    """The LoRA recipe with `device: null`, examples/trainers/torchtune_lora.py."""
    needed("torchtune")
    from torchtune import training, utils

    device = utils.get_device()
    assert device == torch.device("pjrt", 0)
    assert utils.get_device("cpu").type == "cpu"
    assert utils.get_torch_device_namespace() is torch.pjrt
    assert training.get_distributed_backend(device.type) == "pjrt"
    assert training.get_dtype("bf16", device) == torch.bfloat16
    training.log_memory_stats(training.get_memory_stats(device))
    training.cleanup_before_training()


def test_timm() -> None:
    """Training of a ResNet."""
    network = needed("timm").create_model("resnet10t", pretrained=False, num_classes=5)
    same_steps(network, torch.randn(2, 3, 32, 32))


def test_segmentation_models_pytorch() -> None:
    """Training of a U-Net."""
    network = needed("segmentation_models_pytorch").Unet(
        "resnet18", encoder_weights=None, classes=2, decoder_channels=[32, 16, 8, 8, 8]
    )
    # In training, batch norms of two values would amplify what rounding differs.
    same_steps(network.eval(), torch.randn(2, 3, 32, 32))


def test_schedulefree() -> None:
    """AdamWScheduleFree."""
    schedulefree = needed("schedulefree")

    def optimizer(parameters: Any) -> Any:
        made = schedulefree.AdamWScheduleFree(parameters, lr=0.01)
        made.train()
        return made

    same_steps(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), torch.randn(3, 4), optimizer=optimizer)


def test_torch_geometric() -> None:
    """Graph convolution and attention."""
    layers = pytest.importorskip("torch_geometric.nn", reason=f"torch_geometric {TRIED['torch_geometric']}")
    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    for layer in (layers.GCNConv(4, 3), layers.GATConv(4, 3)):  # which look for loops by a mask
        same_steps(layer, torch.randn(4, 4), edges, on_the_host=("aten::index.Tensor",))
        torch_pjrt.reset_metrics()


def test_kornia() -> None:
    """Filters, and a warp that gradients go through."""
    kornia = needed("kornia")
    image = torch.rand(1, 3, 16, 16)

    def filtered(device: str) -> list[torch.Tensor]:
        x = image.to(device).requires_grad_()
        angle = torch.tensor([20.0], device=device)
        y = kornia.geometry.rotate(kornia.filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0)), angle)
        (y * kornia.color.rgb_to_hsv(x)).sum().backward()
        assert x.grad is not None
        return [y.detach().cpu(), x.grad.cpu()]

    torch.testing.assert_close(filtered("pjrt"), filtered("cpu"), rtol=1e-3, atol=1e-4)


def test_gpytorch() -> None:
    """An exact Gaussian process is fitted."""
    gpytorch = needed("gpytorch")
    x = torch.linspace(0, 1, 12)

    class Process(gpytorch.models.ExactGP):  # type: ignore[misc, name-defined]
        def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.covariance = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

    def fitted(device: str) -> list[float]:
        there = x.to(device)
        likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device)
        model = Process(there, (6 * there).sin(), likelihood).to(device)
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        model.train()
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = -objective(model(there), model.train_targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    torch.testing.assert_close(fitted("pjrt"), fitted("cpu"), rtol=1e-3, atol=1e-4)


def test_torchmetrics() -> None:
    """Metrics that are moved to the device."""
    torchmetrics = needed("torchmetrics")
    scores, labels = torch.randn(20, 4), torch.randint(4, (20,))
    for made in (
        torchmetrics.classification.MulticlassAccuracy(4),
        torchmetrics.classification.MulticlassF1Score(4),
        torchmetrics.classification.MulticlassConfusionMatrix(4),
    ):
        found, wanted = copy.deepcopy(made).to("pjrt"), made
        for half in (slice(10), slice(10, 20)):
            found.update(scores[half].to("pjrt"), labels[half].to("pjrt"))
            wanted.update(scores[half], labels[half])
        torch.testing.assert_close(found.compute().cpu(), wanted.compute())


def test_trl(monkeypatch: pytest.MonkeyPatch) -> None:
    """SFTTrainer, with the bfloat16 that it trains in by default."""
    trl = needed("trl")
    datasets, transformers = pytest.importorskip("datasets"), pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models

    # datasets names a result by what it pickles of the function, which fails on a class of this pyarrow.
    monkeypatch.setattr(datasets.fingerprint.Hasher, "hash", classmethod(lambda _, value: "one"))
    words = {"[PAD]": 0, "[EOS]": 1, **{letter: 2 + index for index, letter in enumerate("abcdef")}}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="[PAD]")), pad_token="[PAD]", eos_token="[EOS]"
    )
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 8}
    data = datasets.Dataset.from_dict({"input_ids": [[2, 3, 4, 5], [3, 4, 5, 6]] * 8})

    def losses(folder: str, **options: Any) -> list[float]:
        transformers.set_seed(0)
        config = transformers.GPT2Config(vocab_size=8, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **size)
        arguments = trl.SFTConfig(
            output_dir=folder,
            max_steps=4,
            logging_steps=2,
            report_to="none",
            save_strategy="no",
            **options,
        )
        trainer = trl.SFTTrainer(
            model=transformers.GPT2LMHeadModel(config), args=arguments, train_dataset=data, processing_class=tokenizer
        )
        trainer.train()
        assert trainer.model.device.type == ("cpu" if options.get("use_cpu") else "pjrt")
        return [row["loss"] for row in trainer.state.log_history if "loss" in row]

    with tempfile.TemporaryDirectory() as folder:
        wanted = losses(folder, bf16=False, use_cpu=True)
        torch.testing.assert_close(losses(folder, bf16=False), wanted, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(losses(folder), wanted, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_torchvision(dtype: torch.dtype) -> None:
    """`nms`, `roi_align` and `deform_conv2d`, in float32 under autocast."""
    ops = needed("torchvision").ops
    corners = torch.rand(12, 2) * 20
    boxes = torch.cat([corners, corners + 1 + torch.rand(12, 2) * 8], 1)
    scores, image = torch.rand(12), torch.randn(1, 4, 32, 32).to(dtype)
    offsets, weight = torch.randn(1, 18, 32, 32).to(dtype), torch.randn(2, 4, 3, 3)

    def ran(device: str) -> list[torch.Tensor]:
        there = [x.to(device) for x in (boxes, scores, image, offsets, weight)]
        box, score, picture, offset, filters = there if device == "pjrt" else [x.float() for x in there]
        with torch.autocast("pjrt", dtype=dtype, enabled=device == "pjrt"):
            results = [
                ops.nms(box, score, 0.3),
                ops.roi_align(picture, [box], 3),
                ops.deform_conv2d(picture, offset, filters, padding=1),
            ]
        return [x.cpu().to(dtype) if x.is_floating_point() else x.cpu() for x in results]

    torch.testing.assert_close(ran("pjrt"), ran("cpu"), rtol=2e-2, atol=2e-2)
