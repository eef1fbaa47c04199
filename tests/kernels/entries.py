"""What makes each composite of an op: OpInfo's samples, and calls of what OpInfo has no samples for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from tests.ops.opinfo import OPS, on_device, samples, tensors, usual_dtype

aten = torch.ops.aten

# OpInfo's name -> which of its samples. Each makes composites that none before it makes.
SAMPLES: dict[str, tuple[int, ...]] = {
    "_batch_norm_with_update": (0,), "_native_batch_norm_legit": (0, 9), "_upsample_bilinear2d_aa": (0,),
    "addbmm": (0,), "addmv": (0,), "addr": (0,), "argmax": (0,), "argmin": (0,), "baddbmm": (0,), "bucketize": (0,),
    "cdist": (0,), "cholesky_inverse": (0,), "cholesky_solve": (0,), "cummax": (0,), "cummin": (0,), "cumprod": (0,),
    "fft.hfft": (0,), "gather": (0,), "grid_sampler_2d": (0,), "grid_sampler_3d": (0,), "histc": (0,),
    "index_add": (0,), "index_put": (0,), "index_select": (0,), "isin": (0,), "kthvalue": (0,),
    "linalg.cholesky_ex": (0,), "log_softmax": (0,), "logcumsumexp": (0,), "logsumexp": (0,), "masked.median": (0,),
    "max.reduction_with_dim": (0,), "median": (1,), "min.reduction_with_dim": (0,), "mode": (0,), "mv": (0,),
    "native_batch_norm": (0,), "native_layer_norm": (0,), "norm": (0,), "quantile": (0,), "scatter_reduce.sum": (0,),
    "sigmoid": (0,), "softmax": (0,), "sort": (2,), "std": (0,), "std_mean": (0,), "stft": (0,), "tanh": (0,),
    "topk": (0,), "torch._scaled_mm": (0,), "torch._scaled_mm_v2": (0,),
    "torch.ops.aten._safe_softmax.default": (0,), "triangular_solve": (0,), "var": (0,), "var_mean": (0,), "vdot": (0,),
    "nn.functional.adaptive_avg_pool3d": (0,), "nn.functional.adaptive_max_pool1d": (0,),
    "nn.functional.adaptive_max_pool3d": (0,), "nn.functional.avg_pool1d": (0,), "nn.functional.avg_pool3d": (0,),
    "nn.functional.binary_cross_entropy": (0,), "nn.functional.binary_cross_entropy_with_logits": (0,),
    "nn.functional.celu": (0,), "nn.functional.conv1d": (0,), "nn.functional.cosine_similarity": (0,),
    "nn.functional.cross_entropy": (0,), "nn.functional.elu": (0,), "nn.functional.embedding": (0,),
    "nn.functional.embedding_bag": (0,), "nn.functional.gelu": (0,), "nn.functional.glu": (0,),
    "nn.functional.group_norm": (0,), "nn.functional.hardshrink": (0,), "nn.functional.hardsigmoid": (0,),
    "nn.functional.hardswish": (0,), "nn.functional.huber_loss": (0,), "nn.functional.instance_norm": (0,),
    "nn.functional.interpolate.area": (0,), "nn.functional.interpolate.bicubic": (0,),
    "nn.functional.interpolate.linear": (0,), "nn.functional.interpolate.nearest": (6, 14),
    "nn.functional.interpolate.nearest-exact": (0, 6, 14), "nn.functional.interpolate.trilinear": (0,),
    "nn.functional.leaky_relu": (0,), "nn.functional.linear": (0,),
    "nn.functional.linear_cross_entropy.chunked": (0,), "nn.functional.logsigmoid": (0,),
    "nn.functional.max_pool1d": (0,), "nn.functional.max_pool3d": (0,), "nn.functional.mish": (0,),
    "nn.functional.mse_loss": (0,), "nn.functional.nll_loss": (0, 14), "nn.functional.pad.reflect": (0, 6, 9),
    "nn.functional.pad.replicate": (0, 9), "nn.functional.pad.replicate_negative": (0,),
    "nn.functional.pixel_shuffle": (0,), "nn.functional.prelu": (0,), "nn.functional.relu": (0,),
    "nn.functional.relu6": (0,), "nn.functional.rms_norm": (0,), "nn.functional.scaled_dot_product_attention": (0,),
    "nn.functional.silu": (0,), "nn.functional.smooth_l1_loss": (0,), "nn.functional.soft_margin_loss": (0,),
    "nn.functional.softplus": (0,), "nn.functional.softshrink": (0,), "nn.functional.threshold": (0,),
    "nn.functional.unfold": (0,), "nn.functional.upsample_bilinear": (0,), "nn.functional.upsample_nearest": (0,),
}  # fmt: skip

Case = Callable[[], list[torch.Tensor]]


def with_gradients(results: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    results = tensors(results)
    outputs = [y for y in results if y.requires_grad]
    if not inputs or not outputs:
        return results
    grads = torch.autograd.grad(outputs, inputs, [torch.ones_like(y) for y in outputs], allow_unused=True)
    return [*results, *(grad for grad in grads if grad is not None)]


def of_opinfo(name: str) -> list[Case]:
    """Samples with their tensors on the device."""
    op, indices = OPS[name], SAMPLES[name]
    dtype = usual_dtype(op)
    drawn = list(samples(op, dtype, indices[-1] + 1, requires_grad=op.supports_autograd and dtype.is_floating_point))

    def case(sample: Any) -> Case:
        inputs = [t for t in tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
        return lambda: with_gradients(op.op(sample.input, *sample.args, **sample.kwargs), inputs)

    return [case(on_device(drawn[i], name)) for i in indices]


def x(*sizes: int, grad: bool = True) -> torch.Tensor:
    return torch.randn(sizes).to("pjrt").requires_grad_(grad)


def called(function: Callable[..., Any], *inputs: torch.Tensor) -> Case:
    wanted = [t for t in inputs if t.requires_grad]
    return lambda: with_gradients(function(*inputs), wanted)


def recurrent(kind: Any, length: int = 6, **options: Any) -> Case:
    module = kind(3, 4, **options).to("pjrt")
    return called(lambda x, *_: module(x)[0], x(length, 2, 3), *module.parameters())


def step(kind: Any, **options: Any) -> Case:
    values = [torch.randn(5), torch.randn(2, 3)]

    def run() -> list[torch.Tensor]:
        parameters = [torch.nn.Parameter(value.to("pjrt")) for value in values]
        optimizer = kind(parameters, lr=0.125, **options)
        for parameter in parameters:
            parameter.grad = parameter.detach() * 2
        torch_sync()
        optimizer.step()
        return [parameter.detach() for parameter in parameters]

    return run


def torch_sync() -> None:
    import torch_pjrt

    torch_pjrt.sync()


def own() -> list[Case]:
    """What has no samples, or none that a device which is no CPU and no CUDA takes that way."""
    image, rows, square = x(1, 2, 4, 4), x(3, 4), x(4, 4)
    plain, stats = x(2, 3, 4, grad=False), [x(3, grad=False), x(3, grad=False).detach().abs()]
    q = x(2, 4, 8, 8)
    bytes_ = torch.randint(-5, 5, (32, 32), dtype=torch.int8).to("pjrt")
    half = torch.randn(4, 4).half().to("pjrt")
    weights = [x(12, 4, grad=False), x(12, grad=False), x(4, 4, grad=False), x(4, grad=False)]
    sorted_ = torch.arange(4.0).to("pjrt")
    return [
        called(lambda a, *s: aten._batch_norm_no_update(a, None, None, *s, 0.1, 1e-5)[:1], plain, *stats),
        called(lambda a, *s: aten._native_batch_norm_legit_no_training(a, None, None, *s, 0.1, 1e-5)[:1], plain, *stats),
        called(lambda a: aten._cholesky_solve_helper(a, a, False), square.detach()),
        called(lambda a: aten._embedding_bag_forward_only(a, torch.tensor([1, 2, 0]).to("pjrt"), torch.tensor([0, 2]).to("pjrt"))[:1], rows.detach()),
        called(lambda a: F.embedding_bag(torch.tensor([[1, 2], [0, 1]]).to("pjrt"), a, mode="sum"), rows),
        called(lambda a, w: aten._fused_rms_norm(a, [4], w, 1e-5), rows, x(4)),
        called(lambda a: aten._int_mm(a, a), bytes_),
        called(lambda a: aten._logcumsumexp(a, 0), rows.detach()),
        called(lambda a: aten._masked_softmax(a, torch.eye(4).bool().to("pjrt"), 1, None), square),
        called(lambda a, *w: aten._native_multi_head_attention(a, a, a, 4, 2, *w, need_weights=False)[0], x(2, 3, 4, grad=False), *weights),
        called(lambda a: aten._scaled_dot_product_flash_attention_for_cpu(a, a, a)[0], q),
        called(lambda a: aten._scaled_dot_product_fused_attention_overrideable(a, a, a)[0], q),
        called(lambda a, w, b: torch.nn.functional.gru_cell(a, w, w, w, b, b) if False else torch.gru_cell(a, a, w, w, b, b), rows, x(12, 4), x(12)),
        called(lambda a, w, b: torch.lstm_cell(a, (a, a), w, w, b, b), rows, x(16, 4), x(16)),
        called(lambda a: aten._upsample_bicubic2d_aa(a, [6, 6], False), image),
        called(lambda v, g: aten._weight_norm_interface(v, g, 0), rows, x(3, 1)),
        called(lambda a: aten.addmm.dtype(a.float(), a, a, torch.float32), half),
        called(lambda a: aten.mm.dtype(a, a, torch.float32), half),
        called(lambda a: aten.bmm.dtype(a[None], a[None], torch.float32), half),
        called(lambda a: aten.baddbmm.dtype(a[None].float(), a[None], a[None], torch.float32), half),
        called(lambda s: aten.bucketize.Scalar(1.5, s), sorted_),
        called(lambda s: aten.searchsorted.Scalar(s, 1.5), sorted_),
        called(lambda a: a.median(), rows),
        called(lambda a: a.nanmedian(), rows),
        called(lambda a, w: F.linear(a, w), rows, x(2, 4)),
        recurrent(torch.nn.LSTM),
        recurrent(torch.nn.GRU),
        recurrent(torch.nn.RNN),
        recurrent(torch.nn.RNN, nonlinearity="relu"),
        step(torch.optim.Adam, fused=True),
        step(torch.optim.AdamW, fused=True),
        step(torch.optim.SGD, fused=True),
        step(torch.optim.Adagrad, fused=True),
        step(torch.optim.Adam, foreach=True),
        step(torch.optim.SGD, foreach=True, momentum=0.5),
    ]
