"""The calls that make each op's composites: OpInfo's samples, and own calls for composites without samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from tests.ops.opinfo import OPS, on_device, on_the_cpu, samples, tensors, usual_dtype

aten = torch.ops.aten

# Maps an OpInfo name to the composites that its samples add to those before, without "aten." and ".default".
SAMPLES: dict[str, str] = {
    "_batch_norm_with_update": "_batch_norm_with_update_functional batch_norm_backward",
    "_native_batch_norm_legit": "_native_batch_norm_legit.no_stats "
        "_native_batch_norm_legit_functional native_batch_norm_backward",
    "_upsample_bilinear2d_aa": "_upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward",
    "addbmm": "addbmm bmm",
    "addmv": "addmv mv",
    "addr": "addr",
    "argmax": "argmax",
    "argmin": "argmin",
    "baddbmm": "baddbmm",
    "bucketize": "bucketize.Tensor",
    "cdist": "_cdist_backward _cdist_forward",
    "cummax": "cummax scatter_add",
    "cummin": "cummin",
    "cumprod": "cumprod cumsum",
    "fft.hfft": "_fft_c2r _fft_r2c",
    "gather": "gather",
    "grid_sampler_2d": "grid_sampler_2d grid_sampler_2d_backward",
    "grid_sampler_3d": "grid_sampler_3d grid_sampler_3d_backward",
    "histc": "histc",
    "index_add": "index_add index_select",
    "index_put": "index.Tensor index_put",
    "isin": "searchsorted.Tensor sort",
    "kthvalue": "kthvalue scatter.src",
    "linalg.cholesky_ex": "linalg_cholesky_ex linalg_solve_triangular mm",
    "log_softmax": "_log_softmax _log_softmax_backward_data",
    "logcumsumexp": "logcumsumexp",
    "logsumexp": "logsumexp",
    "masked.median": "nanmedian.dim",
    "max.reduction_with_dim": "max.dim",
    "median": "median.dim",
    "min.reduction_with_dim": "min.dim",
    "mode": "mode",
    "native_batch_norm": "native_batch_norm",
    "native_layer_norm": "native_layer_norm native_layer_norm_backward",
    "norm": "linalg_vector_norm",
    "scatter_reduce.sum": "scatter_reduce.two",
    "sigmoid": "sigmoid sigmoid_backward",
    "softmax": "_softmax _softmax_backward_data",
    "sort": "sort.stable",
    "std": "std.correction",
    "std_mean": "std_mean.correction",
    "stft": "_fft_c2c reflection_pad1d reflection_pad1d_backward",
    "tanh": "tanh_backward",
    "topk": "topk",
    "torch._scaled_mm": "_scaled_mm",
    "torch._scaled_mm_v2": "_scaled_mm_v2",
    "torch.ops.aten._safe_softmax.default": "_safe_softmax",
    "triangular_solve": "triangular_solve",
    "var": "var.correction",
    "var_mean": "var_mean.correction",
    "vdot": "vdot",
    "nn.functional.adaptive_avg_pool3d": "_adaptive_avg_pool3d _adaptive_avg_pool3d_backward",
    "nn.functional.adaptive_max_pool1d": "adaptive_max_pool2d adaptive_max_pool2d_backward",
    "nn.functional.adaptive_max_pool3d": "adaptive_max_pool3d adaptive_max_pool3d_backward",
    "nn.functional.avg_pool1d": "avg_pool2d avg_pool2d_backward",
    "nn.functional.avg_pool3d": "avg_pool3d avg_pool3d_backward",
    "nn.functional.binary_cross_entropy": "binary_cross_entropy binary_cross_entropy_backward",
    "nn.functional.binary_cross_entropy_with_logits": "binary_cross_entropy_with_logits",
    "nn.functional.celu": "celu elu_backward",
    "nn.functional.conv1d": "convolution convolution_backward",
    "nn.functional.cosine_similarity": "cosine_similarity cosine_similarity.default.backward",
    "nn.functional.cross_entropy": "cross_entropy_loss cross_entropy_loss.default.backward",
    "nn.functional.elu": "elu",
    "nn.functional.embedding": "embedding embedding_dense_backward",
    "nn.functional.embedding_bag": "_embedding_bag _embedding_bag_backward _embedding_bag_per_sample_weights_backward",
    "nn.functional.gelu": "gelu gelu_backward",
    "nn.functional.glu": "glu glu_backward",
    "nn.functional.group_norm": "native_group_norm native_group_norm_backward",
    "nn.functional.hardshrink": "hardshrink hardshrink_backward",
    "nn.functional.hardsigmoid": "hardsigmoid hardsigmoid_backward",
    "nn.functional.hardswish": "hardswish hardswish_backward",
    "nn.functional.huber_loss": "huber_loss huber_loss_backward",
    "nn.functional.instance_norm": "instance_norm instance_norm.default.backward",
    "nn.functional.interpolate.area": "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward",
    "nn.functional.interpolate.bicubic": "upsample_bicubic2d upsample_bicubic2d_backward",
    "nn.functional.interpolate.linear": "upsample_linear1d upsample_linear1d_backward",
    "nn.functional.interpolate.nearest": "upsample_nearest2d upsample_nearest2d_backward "
        "upsample_nearest3d upsample_nearest3d_backward",
    "nn.functional.interpolate.nearest-exact":
        "_upsample_nearest_exact1d _upsample_nearest_exact1d_backward _upsample_nearest_exact2d "
        "_upsample_nearest_exact2d_backward _upsample_nearest_exact3d _upsample_nearest_exact3d_backward",
    "nn.functional.interpolate.trilinear": "upsample_trilinear3d upsample_trilinear3d_backward",
    "nn.functional.leaky_relu": "leaky_relu leaky_relu_backward",
    "nn.functional.linear": "linear linear_backward",
    "nn.functional.linear_cross_entropy.chunked": "addmm dot",
    "nn.functional.logsigmoid": "log_sigmoid_backward log_sigmoid_forward",
    "nn.functional.max_pool1d": "max_pool2d_with_indices max_pool2d_with_indices_backward",
    "nn.functional.max_pool3d": "max_pool3d_with_indices max_pool3d_with_indices_backward",
    "nn.functional.mish": "mish mish_backward",
    "nn.functional.mse_loss": "mse_loss mse_loss_backward",
    "nn.functional.nll_loss": "nll_loss2d_backward nll_loss2d_forward nll_loss_backward nll_loss_forward",
    "nn.functional.pad.reflect": "reflection_pad2d reflection_pad2d_backward "
        "reflection_pad3d reflection_pad3d_backward",
    "nn.functional.pad.replicate": "replication_pad1d replication_pad1d_backward "
        "replication_pad3d replication_pad3d_backward",
    "nn.functional.pad.replicate_negative": "replication_pad2d replication_pad2d_backward",
    "nn.functional.pixel_shuffle": "pixel_shuffle pixel_unshuffle",
    "nn.functional.prelu": "_prelu_kernel _prelu_kernel_backward",
    "nn.functional.relu": "relu threshold_backward",
    "nn.functional.relu6": "hardtanh hardtanh_backward",
    "nn.functional.rms_norm": "rms_norm rms_norm.default.backward",
    "nn.functional.scaled_dot_product_attention": "scaled_dot_product_attention "
        "scaled_dot_product_attention.default.backward",
    "nn.functional.silu": "silu silu_backward",
    "nn.functional.smooth_l1_loss": "smooth_l1_loss smooth_l1_loss_backward",
    "nn.functional.soft_margin_loss": "soft_margin_loss",
    "nn.functional.softplus": "softplus softplus_backward",
    "nn.functional.softshrink": "softshrink softshrink_backward",
    "nn.functional.threshold": "threshold",
    "nn.functional.upsample_bilinear": "upsample_bilinear2d upsample_bilinear2d_backward",
    "nn.functional.upsample_nearest": "upsample_nearest1d upsample_nearest1d_backward",
}  # fmt: skip
# Indices of the samples to use instead of the first.
WHICH = {
    "_native_batch_norm_legit": (0, 9),
    "median": (1,),
    "sort": (2,),
    "nn.functional.adaptive_avg_pool3d": (1,),
    "nn.functional.interpolate.nearest": (6, 14),
    "nn.functional.interpolate.nearest-exact": (0, 6, 14),
    "nn.functional.nll_loss": (0, 14),
    "nn.functional.pad.reflect": (0, 6, 9),
    "nn.functional.pad.replicate": (0, 9),
}

# Composites without a program that shows them: random ops have no kernel to compare with; the others are what
# torch.compile makes of another op, or have no kernel on the CPU.
NOT_CLAIMED = (
    "multinomial native_dropout rrelu_with_noise_functional _batch_norm_no_update _fused_rms_norm "
    "_fused_rms_norm_backward _logcumsumexp _masked_softmax _masked_softmax_backward"
)

# Ops without CPU kernels.
NOT_ON_THE_CPU = (
    "addmm.dtype baddbmm.dtype mm.dtype bmm.dtype _scaled_dot_product_fused_attention_overrideable "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention _scaled_dot_product_cudnn_attention"
)

Case = Callable[[], list[torch.Tensor]]


def full(names: str) -> set[str]:
    def one(name: str) -> str:
        name = name if name.startswith("torch_pjrt.") else f"aten.{name}"
        return name if "." in name.partition(".")[2] else f"{name}.default"

    return {one(name) for name in names.split()}


def with_gradients(results: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    results = tensors(results)
    outputs = [y for y in results if y.requires_grad]
    if not inputs or not outputs:
        return results
    grads = torch.autograd.grad(outputs, inputs, [torch.ones_like(y) for y in outputs], allow_unused=True)
    return [*results, *(grad for grad in grads if grad is not None)]


def of_opinfo(name: str, device: str) -> list[Case]:
    """Returns the op's samples on this device."""
    op, indices = OPS[name], WHICH.get(name, (0,))
    dtype = usual_dtype(op)
    drawn = list(samples(op, dtype, indices[-1] + 1, requires_grad=op.supports_autograd and dtype.is_floating_point))

    def case(sample: Any) -> Case:
        inputs = [t for t in tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
        function = on_the_cpu(op) if device == "cpu" else op.op
        return lambda: with_gradients(function(sample.input, *sample.args, **sample.kwargs), inputs)

    chosen = [drawn[i] for i in indices]
    return [case(sample if device == "cpu" else on_device(sample, name)) for sample in chosen]


def called(function: Callable[..., Any], *inputs: torch.Tensor) -> Case:
    wanted = [t for t in inputs if t.requires_grad]
    return lambda: with_gradients(function(*inputs), wanted)


LSTM = [(6, 2, 3), (16, 3), (16, 4), (16,), (2, 4), (2, 4)]  # x, weights, bias and states


def recurrent(device: str, kind: Any, **options: Any) -> Case:
    module = kind(3, 4, **options).to(device)
    x = torch.randn(5, 2, 3).to(device)
    return called(lambda *_: module(x)[0], *module.parameters())


def step(device: str, kind: Any, **options: Any) -> Case:
    parameters = [torch.nn.Parameter(torch.randn(size).to(device)) for size in ((5,), (2, 3))]
    optimizer = kind(parameters, lr=0.125, **options)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape).to(device)

    def run() -> list[torch.Tensor]:
        optimizer.step()
        return [parameter.detach() for parameter in parameters]

    return run


def own(device: str = "pjrt") -> list[tuple[str, Case]]:
    """Returns calls for composites without samples, or whose samples only the CPU and CUDA accept."""

    def x(*sizes: int, grad: bool = True) -> torch.Tensor:
        return torch.randn(sizes).to(device).requires_grad_(grad)

    image, rows, square = x(1, 2, 4, 4), x(3, 4), x(4, 4)
    plain, stats = x(2, 3, 4, grad=False), [x(3, grad=False), x(3, grad=False).detach().abs()]
    q = x(2, 4, 8, 8)
    bytes_ = torch.randint(-5, 5, (32, 32), dtype=torch.int8).to(device)
    half = torch.randn(4, 4).half().to(device)
    weights = [x(12, 4, grad=False), x(12, grad=False), x(4, 4, grad=False), x(4, grad=False)]
    sorted_ = torch.arange(4.0).to(device)
    # The arguments are indices, offset2bag, bag_size and maximum_indices.
    bags = [torch.tensor(values).to(device) for values in ([1, 2, 0], [0, 1, 2], [1, 1, 1], [0, 0, 0])]
    packed = torch.nn.LSTM(3, 4).to(device)
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).to(device).eval().requires_grad_(False)
    return [
        (
            "_native_batch_norm_legit_no_training",
            called(
                lambda a, *s: aten._native_batch_norm_legit_no_training(a, None, None, *s, 0.1, 1e-5)[:1], plain, *stats
            ),
        ),
        ("_cholesky_solve_helper", called(lambda a: aten._cholesky_solve_helper(a, a, False), square.detach())),
        (
            "_embedding_bag_forward_only",
            called(
                lambda a: aten._embedding_bag_forward_only(
                    a, torch.tensor([1, 2, 0]).to(device), torch.tensor([0, 2]).to(device)
                )[:1],
                rows.detach(),
            ),
        ),
        ("_int_mm", called(lambda a: aten._int_mm(a, a), bytes_)),
        (
            "_native_multi_head_attention",
            called(
                lambda a, *w: aten._native_multi_head_attention(a, a, a, 4, 2, *w, need_weights=False)[0],
                x(2, 3, 4, grad=False),
                *weights,
            ),
        ),
        (
            "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward",
            called(lambda a: aten._scaled_dot_product_flash_attention_for_cpu(a, a, a)[0], q),
        ),
        (
            "_scaled_dot_product_fused_attention_overrideable "
            "_scaled_dot_product_fused_attention_overrideable_backward",
            called(lambda a: aten._scaled_dot_product_fused_attention_overrideable(a, a, a)[0], q),
        ),
        (
            "_scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward",
            called(lambda a: aten._scaled_dot_product_efficient_attention(a, a, a, None, True)[0], q),
        ),
        (
            "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward",
            called(lambda a: aten._scaled_dot_product_flash_attention(a, a, a)[0], q),
        ),
        (
            "_scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward",
            called(lambda a: aten._scaled_dot_product_cudnn_attention(a, a, a, None, True)[0], q),
        ),
        (
            "_thnn_fused_gru_cell _thnn_fused_gru_cell_backward",
            called(lambda a, w, b: torch.gru_cell(a, a, w, w, b, b), rows, x(12, 4), x(12)),
        ),
        (
            "_thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl",
            called(lambda a, w, b: torch.lstm_cell(a, (a, a), w, w, b, b), rows, x(16, 4), x(16)),
        ),
        (
            "_upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward",
            called(lambda a: aten._upsample_bicubic2d_aa(a, [6, 6], False), image),
        ),
        (
            "_weight_norm_interface _weight_norm_interface_backward",
            called(lambda v, g: aten._weight_norm_interface(v, g, 0), rows, x(3, 1)),
        ),
        ("addmm.dtype", called(lambda a: aten.addmm.dtype(a.float(), a, a, torch.float32), half)),
        ("baddbmm.dtype", called(lambda a: aten.baddbmm.dtype(a[None].float(), a[None], a[None], torch.float32), half)),
        ("mm.dtype", called(lambda a: aten.mm.dtype(a, a, torch.float32), half)),
        ("bmm.dtype", called(lambda a: aten.bmm.dtype(a[None], a[None], torch.float32), half)),
        ("bucketize.Scalar", called(lambda s: aten.bucketize.Scalar(1.5, s), sorted_)),
        ("searchsorted.Scalar", called(lambda s: aten.searchsorted.Scalar(s, 1.5), sorted_)),
        (
            "_embedding_bag_dense_backward",
            called(lambda a: aten._embedding_bag_dense_backward(a, *bags, 4, False, 0, None), rows.detach()),
        ),
        (
            "native_dropout_backward",
            called(lambda a: aten.native_dropout_backward(a, torch.eye(4).bool().to(device), 2.0), square.detach()),
        ),
        ("cholesky_inverse", called(lambda a: torch.cholesky_inverse(a), square.detach())),
        ("cholesky_solve", called(lambda a: torch.cholesky_solve(a, a), square.detach())),
        ("col2im im2col", called(lambda a: F.unfold(a, 2), image)),
        (
            "torch_pjrt.recurrent_layer torch_pjrt.recurrent_layer_backward",
            called(lambda a: packed(torch.nn.utils.rnn.pack_padded_sequence(a, [6, 3]))[0].data, x(6, 2, 3)),
        ),
        (
            "torch_pjrt.lstm_layer torch_pjrt.lstm_layer_backward",
            called(lambda a, *o: torch.ops.torch_pjrt.lstm_layer(a, *o, False, True)[0], *(x(*size) for size in LSTM)),
        ),
        ("_transformer_encoder_layer_fwd", called(lambda a: layer(a), x(2, 3, 4, grad=False))),
        ("median", called(lambda a: a.median(), rows)),
        ("nanmedian", called(lambda a: a.nanmedian(), rows)),
        ("lstm.input lstm.input.backward", recurrent(device, torch.nn.LSTM)),
        ("gru.input gru.input.backward", recurrent(device, torch.nn.GRU)),
        ("rnn_tanh.input rnn_tanh.input.backward", recurrent(device, torch.nn.RNN)),
        ("rnn_relu.input rnn_relu.input.backward", recurrent(device, torch.nn.RNN, nonlinearity="relu")),
        ("torch_pjrt.fused_adam_", step(device, torch.optim.Adam, fused=True)),
        ("torch_pjrt.fused_adamw_", step(device, torch.optim.AdamW, fused=True)),
        ("torch_pjrt.fused_sgd_", step(device, torch.optim.SGD, fused=True)),
        ("torch_pjrt.fused_adagrad_", step(device, torch.optim.Adagrad, fused=True)),
    ]
