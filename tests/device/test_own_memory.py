"""A device with a memory of its own, like GPUs and TPUs, made of the CPU plugin by tests/pjrt/own_memory.c."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import fresh
from tests.plugin_library import own_memory

ROOT = Path(__file__).parents[2]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return own_memory(tmp_path_factory.mktemp("plugin"))


@pytest.fixture
def run(server: fresh.Server, environment: dict[str, str], tmp_path: Path) -> Run:
    return lambda program, **variables: server.end(program, str(tmp_path / "program.py"), **environment | variables)


MODEL = """
import copy, warnings, torch, torch_pjrt
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16, bias=False), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4))
other = copy.deepcopy(model)
x, y = torch.randn(32, 8), torch.randint(4, (32,))
parameter_bytes = sum(p.nbytes for p in model.parameters())

def trained(model, x, y, wrap=lambda f: f):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    forward = wrap(model)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(forward(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses

def check(losses):
    torch.testing.assert_close([l.cpu() for l in losses], trained(other, x, y))
    torch.testing.assert_close({k: v.cpu() for k, v in model.state_dict().items()}, other.state_dict())
"""


def test_training_on_the_device(run: Run) -> None:
    result = run(MODEL + "check(trained(model.to('pjrt'), x.to('pjrt'), y.to('pjrt')))", TORCH_PJRT_STRICT="1")
    assert result.returncode == 0, result.stderr


def test_a_compiled_model_on_the_device_copies_nothing(run: Run) -> None:
    program = """
    losses = trained(model.to("pjrt"), x.to("pjrt"), y.to("pjrt"), lambda m: torch.compile(m, backend="pjrt"))
    check(losses)
    forward, given = torch.compile(model, backend="pjrt"), x.to("pjrt")
    forward(given)
    torch_pjrt.reset_metrics()
    forward(given)
    assert torch_pjrt.metrics()["host_transfer_bytes"] == 0
    """
    result = run(MODEL + textwrap.dedent(program), TORCH_PJRT_STRICT="1")
    assert result.returncode == 0, result.stderr


def test_parameters_on_the_cpu(run: Run) -> None:
    program = """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(trained(model, x, y, lambda m: torch.compile(m, backend="pjrt")))
    said = [str(w.message) for w in caught if "on the CPU" in str(w.message)]
    assert len(said) == 1 and f"has {parameter_bytes:,} bytes of parameters on the CPU" in said[0], caught
    assert "program.py:" in said[0] and "module.to('pjrt')" in said[0], said

    forward = torch.compile(torch.no_grad(model.eval()), backend="pjrt")
    forward(x)
    torch_pjrt.reset_metrics()
    with torch_pjrt.explain() as report:
        result = forward(x)
    [ran] = report.graphs
    state = sum(b.nbytes for b in model.buffers() if b.dim())
    assert ran.copied_bytes == parameter_bytes + state + x.nbytes + result.nbytes
    assert torch_pjrt.metrics()["host_transfer_bytes"] == ran.copied_bytes
    assert "copied" in str(report)
    """
    result = run(MODEL + textwrap.dedent(program))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "compiled",
    [
        "torch.compile(model, backend='pjrt')(x)",
        "torch_pjrt.jit(model, (x,))",
        "torch_pjrt.compile_step(lambda: model(x).sum())()",
    ],
)
def test_parameters_on_the_cpu_in_strict_mode(run: Run, compiled: str) -> None:
    result = run(MODEL + compiled, TORCH_PJRT_STRICT="1")
    assert result.returncode == 1
    assert "bytes of parameters on the CPU" in result.stderr
    assert "an error in strict mode" in result.stderr


def test_a_whole_step(run: Run) -> None:
    program = """
    model = model.to("pjrt")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    @torch_pjrt.compile_step
    def step(x, y):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    check([step(x.to("pjrt"), y.to("pjrt")) for _ in range(3)])
    """
    result = run(MODEL + textwrap.dedent(program), TORCH_PJRT_STRICT="1")
    assert result.returncode == 0, result.stderr


def test_no_pointer_leaves_it(run: Run) -> None:
    program = """
    import torch
    assert not torch.pjrt.get_device_properties().is_host_memory
    try:
        torch.from_dlpack(torch.ones(3, device="pjrt"))
    except BufferError as error:
        print(error)
    import numpy
    try:
        numpy.asarray(torch.ones(3, device="pjrt"))
    except TypeError as error:
        print(error)
    """
    result = run(program)
    assert "can't convert pjrt:0 device type tensor to numpy. Use Tensor.cpu() to copy the" in result.stdout
    assert "this device has a memory of its own, which DLPack has no name for; export tensor.cpu()" in result.stdout


def sampled(request: pytest.FixtureRequest) -> list[str]:
    """Returns the option with which a test that runs other tests passes on that it is one of a sample."""
    return ["--sampled"] if request.config.getoption("--sampled") else []


@pytest.mark.parametrize(
    "file", ["tests/device/test_views.py", pytest.param("tests/dynamo/test_values.py", marks=pytest.mark.thorough)]
)
def test_what_others_test(environment: dict[str, str], file: str, request: pytest.FixtureRequest) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    result = subprocess.run(
        [*command, *sampled(request), file], cwd=ROOT, env=os.environ | environment, text=True, capture_output=True
    )
    assert result.returncode == 0, result.stdout[-4000:]


def test_what_can_not_fit_is_not_compiled(run: Run) -> None:
    """XLA's compiler for GPUs divides by zero there."""
    program = """
    import torch, torch_pjrt
    from torch_pjrt import _C

    compiled = []
    _C.set_program_listener(lambda _, text: compiled.append(text))
    p = torch.ones(3, device="pjrt")
    huge = torch.ones(1 << 10, 1, device="pjrt") * torch.ones(1 << 10, device="pjrt")
    for _ in range(2):
        try:
            torch_pjrt.sync(huge)
        except torch.OutOfMemoryError as error:
            assert "Tried to allocate 4.00 MiB" in str(error) and "[aten::mul" in str(error), error
        else:
            raise AssertionError("no error")
    assert not any("1024x1024" in text for text in compiled)
    del huge
    assert (p + 1).tolist() == [2, 2, 2]
    """
    result = run(program, TORCH_PJRT_TEST_MEMORY="1000000")
    assert result.returncode == 0, result.stderr


def test_what_is_copied_to_the_host_is_warned_of(run: Run) -> None:
    """Results whose shape depends on data warn as well, which cost only the graph cut where memory is the host's."""
    result = run("""
        import torch
        x = torch.ones(3, 70).to("pjrt")
        for _ in range(3): x.unique(dim=0)
    """)
    assert result.stderr.count("[aten::unique_dim] runs on the host at") == 1
    assert result.stderr.count("its result's shape depends on data") == 1


def test_random_programs_on_copies(run: Run) -> None:
    """The host interprets graphs on copies of what they read."""
    done = run(
        f"""
        import sys, warnings, torch_pjrt
        sys.path.insert(0, {str(ROOT)!r})
        warnings.simplefilter("ignore")
        from tests.engine.tier.test_random_programs import Drawn
        for seed in range(100, 103):
            Drawn(seed, switches=False).run(40)
        metrics = torch_pjrt.metrics()
        assert metrics["graphs_interpreted"] > 0 and metrics["calls_on_host"] > 0, metrics
        """,
        TORCH_PJRT_COMPILE="never",
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_ops_on_copies(environment: dict[str, str], request: pytest.FixtureRequest) -> None:
    """Runs some OpInfo entries, in the layouts in which PyTorch's kernels run the others."""
    file = "tests/ops/test_layouts.py"
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *sampled(request), file, "-k"]
    names = (
        "fmod",
        "embedding_bag",
        "index_select",
        "addmm",
        "cumsum",
        "sort",
        "scaled_dot_product",
        "masked_fill",
        "conv2d",
    )
    variables = os.environ | environment | {"TORCH_PJRT_COMPILE": "never"}
    done = subprocess.run([*command, " or ".join(names)], cwd=ROOT, env=variables, text=True, capture_output=True,
                          timeout=500)  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.thorough
def test_tokens_make_no_programs(run: Run) -> None:
    """The host computes the integers, such as sizes, of each token, and the graphs that grow with a dynamic cache."""
    done = run(
        f"""
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        from tests.models.generating import programs_of
        for kind in ("GPT-2, static", "T5, static", "GPT-2", "Llama", "Mixtral", "T5, beams"):
            programs = programs_of(kind)
            assert programs <= 5, (kind, programs)
        """,
        TORCH_PJRT_COMPILE="auto",
    )
    assert done.returncode == 0, done.stderr[-3000:]


GROWING = """
import torch, torch_pjrt
def programs(sizes):
    torch_pjrt.reset_metrics()
    for n in sizes:
        x, w = torch.linspace(0, 1, n * columns).view(n, columns), torch.linspace(-1, 1, columns)
        kept = (x.to("pjrt") * w.to("pjrt")).tanh()
        kept[1:] += kept[:-1].sin()
        expected = (x * w).tanh()
        expected[1:] += expected[:-1].sin()
        torch.testing.assert_close(kept.cpu(), expected)
    metrics = torch_pjrt.metrics()
    return metrics["graphs_compiled"], metrics["calls_on_host"]
"""


@pytest.mark.parametrize("policy", ["first", "auto"])
def test_graphs_that_grow_are_the_hosts(run: Run, policy: str) -> None:
    program = """
    columns = 8
    programs(range(2, 5))
    made, on_host = programs(range(5, 15))
    assert made == 0 and on_host >= 10 * 4, (made, on_host)
    torch_pjrt.reset_metrics()
    with torch_pjrt.explain() as report:
        programs([20])
    assert report.graphs[-1].interpreted.endswith(" interpreted"), report.graphs[-1].interpreted
    assert 0 < report.graphs[-1].copied_bytes <= torch_pjrt.metrics()["host_transfer_bytes"]
    """
    done = run(GROWING + textwrap.dedent(program), TORCH_PJRT_COMPILE=policy)
    assert done.returncode == 0, done.stderr


def test_strict_mode_has_nothing_that_grows_on_the_host(run: Run) -> None:
    program = """
    columns = 8
    programs(range(2, 5))
    made, on_host = programs(range(5, 15))
    assert made >= 10 and on_host == 0, (made, on_host)
    """
    done = run(GROWING + textwrap.dedent(program), TORCH_PJRT_STRICT="1")
    assert done.returncode == 0, done.stderr
