"""CUDA tensors in compiled functions, and programs on CUDA beside "pjrt", without a GPU (tests/emulated_cuda.py)."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.emulated_cuda import ROOT, Run


@pytest.fixture
def run(run_beside_cuda: Run) -> Run:
    return run_beside_cuda


def test_cuda_stays_as_it_was(run: Run) -> None:
    """With another backend, PyTorch's engine has no stream for CUDA's gradients (pytorch/pytorch#161129)."""
    run("""
    from torch_pjrt import _C

    assert torch.accelerator.current_accelerator() == torch.device("cuda")

    def gradients(device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).to(device)
        model(torch.arange(12.0).view(4, 3).to(device)).square().mean().backward()
        return [p.grad.cpu() for p in model.parameters()]

    expected = gradients("cpu")
    torch.testing.assert_close(gradients("cuda"), expected)
    assert not _C.is_initialized()  # CUDA's client would take its share of the GPU's memory
    torch.testing.assert_close(gradients("pjrt"), expected)

    for here, there in (("cuda", "pjrt"), ("pjrt", "cuda")):
        x = torch.ones(3, device=here, requires_grad=True)
        ((x * 2).to(there) * 3).sum().backward()
        assert x.grad.tolist() == [6, 6, 6] and x.grad.device.type == here
    """)


def test_the_device_beside_cuda(run: Run, tmp_path: Path) -> None:
    """Features that PyTorch ties to the accelerator work on "pjrt", although CUDA is the accelerator."""
    run(f"""
    import safetensors.torch

    x = torch.ones(1000, device="pjrt")
    assert torch.pjrt.memory_allocated() == 0
    torch_pjrt.sync()
    assert torch.pjrt.memory_allocated() == 4000 and torch.pjrt.max_memory_allocated() >= 4000
    torch.pjrt.reset_peak_memory_stats()
    assert torch.accelerator.current_accelerator().type == "cuda"

    safetensors.torch.save_file({{"x": x}}, "{tmp_path}/x.safetensors")
    assert safetensors.torch.load_file("{tmp_path}/x.safetensors", device="pjrt")["x"].device.type == "pjrt"

    from torch._dynamo.device_interface import get_interface_for_device

    torch.compile(lambda x: x + 1, backend="pjrt")(x)
    assert get_interface_for_device("pjrt").is_dtype_supported(torch.bfloat16)
    """)


def test_a_call_is_in_order_with_the_stream(run: Run) -> None:
    run("""
    double = torch.compile(lambda x, y: (x * 2 + y, x - y), backend="pjrt")
    x, y = torch.arange(6.0, device="cuda"), torch.ones(6, device="cuda")
    double(x, y)
    log()
    results = double(x, y)
    # The plugin's stream waits for PyTorch's; one argument is bound anew, the other kept; and PyTorch's stream waits.
    calls = [line for line in log() if not line.startswith("destroy")]
    assert calls == ["record 10", "block 1000", "view 1000", "execute 0", "results on 10"], calls
    assert all(r.device == torch.device("cuda", 0) for r in results)
    assert results[0].tolist() == [1, 3, 5, 7, 9, 11] and results[1].tolist() == [-1, 0, 1, 2, 3, 4]

    log()
    with torch.Stream(stream_id=0x20, device_index=0, device_type=1):
        double(x, y)
        calls = log()
    assert "record 20" in calls and "results on 20" in calls, calls
    assert not any(line.endswith(" 10") for line in calls[:5]), calls

    with torch.Stream(stream_id=0x30, device_index=0, device_type=1):  # reports a capture
        try:
            double(x, y)
        except RuntimeError as error:
            assert "can't be part of a CUDA graph" in str(error), error
        else:
            raise AssertionError("no error")
    assert double(x, y)[0].tolist() == results[0].tolist()
    """)


def test_precision_of_float32(run: Run) -> None:
    """PyTorch's settings for CUDA apply to CUDA's tensors and to "pjrt"'s; changed settings give new programs."""
    run("""
    import re
    from torch_pjrt import _C

    conv, linear = torch.nn.Conv2d(2, 2, 1), torch.nn.Linear(3, 3)
    image, half = torch.ones(1, 2, 3, 3), torch.ones(3, 3, dtype=torch.bfloat16)

    def precisions(text):
        return set(re.findall(r"precision = \\[(\\w+)", text) + re.findall(r"#stablehlo<precision (\\w+)", text))

    def lazily():
        calls = (conv.to("pjrt"), image), (linear.to("pjrt"), image), (torch.relu, image), (lambda h: h @ h, half)
        return [precisions(torch_pjrt.to_stablehlo(call, x)) for call, x in calls]

    def compiled():
        texts = []
        _C.set_program_listener(lambda _, text: texts.append(text))
        torch._dynamo.reset()
        with torch.no_grad():
            both = torch.compile(lambda c, l, i: (c(i) + 1, l(i) - 1), backend="pjrt")
            both(conv.cuda(), linear.cuda(), image.cuda())
        _C.set_program_listener(None)
        return [precisions(text) for text in texts]

    HIGHEST, HIGH, DEFAULT = {"HIGHEST"}, {"HIGH"}, {"DEFAULT"}
    assert (found := compiled()) == [HIGH | HIGHEST], found  # PyTorch's defaults; the first use of the device
    assert (found := lazily()) == [HIGH, HIGHEST, set(), DEFAULT], found
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = False
    assert (found := lazily()) == [HIGHEST, HIGH, set(), DEFAULT], found
    assert (found := compiled()) == [HIGH | HIGHEST], found
    torch.set_float32_matmul_precision("medium")
    assert (found := lazily()) == [HIGHEST, DEFAULT, set(), DEFAULT], found
    assert (found := compiled()) == [DEFAULT | HIGHEST], found
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True
    assert compiled() == [], "the first program is known"

    x, weight = torch.ones(3, 3, device="pjrt"), torch.ones(3, 3, device="pjrt", requires_grad=True)
    torch.set_float32_matmul_precision("high")
    loss = (x @ weight).sum()
    torch.set_float32_matmul_precision("highest")
    loss.backward()  # each call has the settings of its recording
    assert precisions(_C.stablehlo([loss, weight.grad])) == HIGH | HIGHEST
    assert weight.grad.tolist() == [[3.0] * 3] * 3
    """)


def test_a_plugin_without_streams_is_waited_for(run: Run) -> None:
    program = """
    f = torch.compile(lambda x: x + 1, backend="pjrt")
    x = torch.arange(3.0, device="cuda")
    f(x)
    log()
    result = f(x)
    calls = [line for line in log() if not line.startswith(("destroy", "record"))]
    assert calls == ["synchronize 10", "view 0", "execute 0"], calls
    assert result.tolist() == [1, 2, 3]
    """
    run(program, EMULATED_CUDA_NO_STREAMS="1")


@pytest.mark.parametrize("busy", [False, True])
def test_memory_goes_back_when_the_stream_is_past_it(run: Run, busy: bool) -> None:
    program = """
    f = torch.compile(lambda x: x + 1, backend="pjrt")
    x = torch.arange(3.0, device="cuda")
    f(x)
    result = f(x)
    log()
    view = result[1:]
    del result
    assert log() == []
    del view
    assert log() == ["record 10"] + BACK, "an event follows the last use"
    """
    back = [] if busy else ["destroy 0"]
    run(textwrap.dedent(program).replace("BACK", str(back)), **({"EMULATED_CUDA_BUSY": "1"} if busy else {}))


def test_arguments_of_all_kinds(run: Run) -> None:
    run("""

    f = torch.compile(lambda x, y: x * 2 + y, backend="pjrt")
    wide = torch.arange(320.0, device="cuda").view(10, 32)
    torch_pjrt.reset_metrics()
    for x in (wide, wide.t(), wide[:, 16:20], wide[4:], wide[::2], wide.as_strided((3, 4), (4, 1), 32)):
        torch.testing.assert_close(f(x, x).cpu(), x.cpu() * 3)
    y = torch.full((), 0.5)  # a number on the CPU
    torch.testing.assert_close(f(wide, y).cpu(), wide.cpu() * 2 + 0.5)
    assert f(wide[:0], wide[:0]).shape == (0, 32)
    assert torch_pjrt.metrics()["host_transfer_bytes"] <= 4, torch_pjrt.metrics()

    odd = torch.arange(100.0, device="cuda")[1:50]  # XLA can't use it in place
    torch.testing.assert_close(f(odd, odd).cpu(), odd.cpu() * 3)
    large = torch.arange(2000.0, device="cuda")[1:]
    try:
        f(large, large)
    except RuntimeError as error:
        assert "of a compiled graph, f32[1999], would be copied in each call" in str(error), error
        assert "multiples of 16 bytes" in str(error), error
    else:
        raise AssertionError("no error in strict mode")
    """)


def test_updates(run: Run) -> None:
    run("""
    @lambda f: torch.compile(f, backend="pjrt")
    def f(x, cache, position):
        cache[position] = x
        x.add_(1)
        return cache.sum(), x

    x, cache = torch.ones(4, device="cuda"), torch.zeros(3, 4, device="cuda")
    address, version = x.data_ptr(), x._version
    for i in range(3):
        total, same = f(x, cache, torch.tensor([i], device="cuda"))
    assert same is x and x.data_ptr() == address and x._version > version
    assert x.tolist() == [4] * 4 and cache.tolist() == [[1.0] * 4, [2.0] * 4, [3.0] * 4] and total.item() == 24
    """)


TRAINING = """
import torch_pjrt

def trained(device, wrap=lambda step: step, **options):
    torch.manual_seed(0)
    layers = torch.nn.Linear(3, 8), torch.nn.LayerNorm(8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    model = torch.nn.Sequential(*layers).to(device)
    forward = torch.compile(model, backend="pjrt", **options) if options else model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = forward(x).square().mean() + torch.ones(2, device=device).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step, x = wrap(step), torch.randn(16, 3).to(device)
    losses = [step(x) for _ in range(4)]
    assert all(loss.device.type == device for loss in losses)
    return [loss.cpu() for loss in losses], {k: v.cpu() for k, v in model.state_dict().items()}

expected = trained("cpu")
"""


@pytest.mark.parametrize("options", ["fullgraph=True", "options={'retrace': True}", "options={'verify': True}"])
def test_training(run: Run, options: str) -> None:
    program = f"torch.testing.assert_close(trained('cuda', {options}), expected, rtol=1e-3, atol=1e-4)"
    run(TRAINING + program, TORCH_PJRT_STRICT="0")  # retrace moves arguments


def test_a_whole_step(run: Run) -> None:
    run(
        TRAINING
        + textwrap.dedent("""
    torch.testing.assert_close(trained("cuda", torch_pjrt.compile_step), expected, rtol=1e-3, atol=1e-4)
    model, x = torch.nn.Linear(3, 2).to("cuda"), torch.randn(4, 3, device="cuda")
    result = torch_pjrt.jit(lambda x: model(x.cuda()) + torch.ones(2, device="cuda"), (x,))(x)
    torch.testing.assert_close(result.cpu(), model(x).detach().cpu() + 1)
    assert result.device.type == "cuda"
    """)
    )


def test_random_numbers_come_from_cuda(run: Run) -> None:
    run("""
    drop = torch.compile(torch.nn.Dropout(0.5), backend="pjrt", fullgraph=True)
    x = torch.ones(10_000, device="cuda")
    one, other = drop(x), drop(x)
    assert (one != other).float().mean().item() > 0.4 and abs(one.mean().item() - 1) < 0.1
    """)


def test_what_is_cut_out_stays_on_cuda(run: Run) -> None:
    program = """

    @torch.library.custom_op("here::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        assert x.device.type == "cuda"
        return x * 2

    @twice.register_fake
    def _(x):
        return torch.empty_like(x)

    f = torch.compile(lambda x: twice(x + 1) - 1, backend="pjrt", fullgraph=True)
    result = f(torch.ones(3, device="cuda"))
    assert result.tolist() == [3, 3, 3] and result.device.type == "cuda"
    assert list(torch_pjrt.metrics()["host_fallbacks"].values()) == [1], torch_pjrt.metrics()
    """
    run(program, TORCH_PJRT_STRICT="0")


def test_a_plugin_for_something_else(run: Run, cuda_environment: dict[str, str]) -> None:
    program = """

    x = torch.ones(3, device="cuda")
    for call, words in (
        (lambda: torch.compile(lambda x: x + 1, backend="pjrt")(x), "plugin computes on 'cpu': move it and the module"),
        (lambda: torch_pjrt.jit(lambda x: x + 1, (x,)), "argument 0 is on 'cuda:0'; a captured function's tensors"),
    ):
        try:
            call()
        except Exception as error:
            assert words in str(error), error
        else:
            raise AssertionError("no error")
    """
    run(program, TORCH_PJRT_PLUGIN=cuda_environment["TORCH_PJRT_TEST_PLUGIN"])


def test_models(run: Run) -> None:
    run("""
    from models.catalogue import CATALOGUE

    for name in ("resnet18", "llama"):
        results = []
        for device in ("cpu", "cuda"):
            torch.manual_seed(0)
            case = CATALOGUE[name](True, 2)
            model, target = case.model.eval().to(device), case.target.to(device)
            compiled = model if device == "cpu" else torch.compile(model, backend="pjrt", fullgraph=True)
            output = case.output(compiled, tuple(x.to(device) for x in case.inputs))
            case.loss(output, target).backward()
            gradients = {k: p.grad.cpu() for k, p in model.named_parameters() if p.grad is not None}
            results.append((output.detach().cpu(), gradients))
        torch.testing.assert_close(*results, rtol=1e-2, atol=1e-3)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
    """)


def test_attention(run: Run) -> None:
    """PyTorch dispatches attention to CUDA's own kernels: the memory-efficient one, and flash attention for half
    precision."""
    run("""
    from torch.nn import functional as F

    from torch_pjrt.dynamo import backend

    seen, compile_graph = set(), backend.compile_graph

    def watched(graph, *rest):
        seen.update(node.target.name() for node in graph.graph.nodes if hasattr(node.target, "name"))
        return compile_graph(graph, *rest)

    backend.compile_graph = watched
    for dtype, tolerance in (torch.float32, 1e-4), (torch.bfloat16, 3e-2):
        for mask in None, torch.randn(5, 7, dtype=dtype):
            torch.manual_seed(0)
            tensors = [torch.randn(2, 4, n, 8, dtype=dtype) for n in (5, 7, 7)]
            results = []
            for device in "cpu", "cuda":
                inputs = [t.to(device).detach().requires_grad_() for t in tensors]
                attend = lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m)
                if device == "cuda":
                    attend = torch.compile(attend, backend="pjrt", fullgraph=True)
                output = attend(*inputs, mask if mask is None else mask.to(device))
                output.sum().backward()
                with torch.no_grad():
                    again = attend(*inputs, mask if mask is None else mask.to(device))
                results.append([t.cpu() for t in (output.detach(), again, *(i.grad for i in inputs))])
            torch.testing.assert_close(*results, rtol=tolerance, atol=tolerance)
    for kind in "efficient", "flash":
        for way in "", "_backward":
            assert f"aten::_scaled_dot_product_{kind}_attention{way}" in seen, seen
    """)


def test_memory_that_jax_shares(run: Run) -> None:
    """JAX's CUDA part can't be emulated: the test checks the buffers that its arrays and ours would share."""
    pytest.importorskip("jax")
    run("""
    from torch_pjrt import _C
    from torch_pjrt.jax import jax_view

    copies, at = lambda: torch_pjrt.metrics()["copies_on_write"], torch._C._data_address  # which asks for no write
    source = torch.arange(4.0, device="cuda")
    shared = _C.write_protected(source)
    assert shared.device == source.device and at(shared) == at(source) and copies() == 0
    shared[1:].mul_(10)
    assert shared.tolist() == [0, 10, 20, 30] and source.tolist() == [0, 1, 2, 3] and copies() == 1

    tensor = torch.arange(4.0, device="cuda")
    address = at(tensor)
    taken = _C.snapshot(tensor[1:])
    assert taken.device == tensor.device and at(taken) == address + 4
    tensor.add_(1)
    assert taken.tolist() == [1, 2, 3] and tensor.tolist() == [1, 2, 3, 4] and copies() == 2
    del taken
    try:
        jax_view(tensor)
    except ValueError as error:
        assert "is on 'cuda:0', which this JAX has no arrays on" in str(error) and "tensor.cpu()" in str(error)
    else:
        raise AssertionError
    """)


SMOKE = [
    "in place",
    "dropout",
    "compile step",
    "arguments in their layout",
    "attention with a mask",
    "products of float8",
]


def test_smoke_programs_of_a_gpu(run: Run) -> None:
    """The programs of `./dev gpu` find the functions that they use on CUDA tensors."""
    folders = [str(ROOT / place) for place in ("bench/gpu", "bench")]
    program = f"""
    import sys

    sys.path[:0] = {folders}
    import smoke
    from worker import Setting

    setting = Setting("cuda", report=lambda values: None)
    programs = {{item.name: item.run for item in smoke.items(setting)}}
    for name in {SMOKE}:
        values = programs[name](setting)
        assert "on the host" not in values, values
    """
    run(program, TORCH_PJRT_STRICT="0", TORCH_PJRT_COMPILE="first")


@pytest.mark.parametrize(
    ("variables", "is_left_out"),
    [
        ({}, False),
        ({"TORCH_PJRT_XLA_OPTIONS": "xla_gpu_autotune_level=0"}, True),
        ({"TORCH_PJRT_XLA_OPTIONS": "xla_gpu_autotune_level=2"}, False),
        ({"XLA_FLAGS": "--xla_gpu_autotune_level=0"}, True),
        ({"XLA_FLAGS": "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=true"}, False),
    ],
)
def test_untuned_products_are_no_work_for_triton(
    run: Run, tmp_path: Path, variables: dict[str, str], is_left_out: bool
) -> None:
    """Note [Untuned products]: int8 and MX products gave wrong numbers on an H100."""
    reported = tmp_path / "options"
    run("""
    a = torch.ones(17, 64, dtype=torch.int8, device="cuda")
    assert torch.compile(torch._int_mm, backend="pjrt")(a, a[:16].t().contiguous()).tolist() == [[64] * 16] * 17
    """, EMULATED_CUDA_OPTIONS=str(reported), **variables)  # fmt: skip
    assert (b"xla_gpu_enable_triton_gemm" in reported.read_bytes()) == is_left_out


def test_convolutions_of_integers_are_refused(run: Run) -> None:
    """The error is raised at recording, as by PyTorch's CUDA."""
    run("""
    import pytest

    x, w = torch.ones(1, 1, 4, 4, dtype=torch.int32), torch.ones(1, 1, 2, 2, dtype=torch.int32)
    words = r"\\[aten::convolution\\] .* not implemented for 'Int': .*\\.float\\(\\)"
    with pytest.raises(NotImplementedError, match=words):
        torch.nn.functional.conv2d(x.to("pjrt"), w.to("pjrt"))
    y = torch.nn.functional.conv2d(x.to("pjrt").float(), w.to("pjrt").float())
    assert y.cpu().tolist() == [[[[4.0] * 3] * 3]]
    """)
