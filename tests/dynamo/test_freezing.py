"""torch.compile(backend="pjrt", options={"freeze": True}): parameters are constants of the compiled graph."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import torch_pjrt
from tests import fresh
from tests.kernels.library import HAS_BF16_DOTS, LAYOUTS
from tests.peak import status
from tests.threads import in_two_threads

pytestmark = [pytest.mark.compiled, pytest.mark.host_memory]

CALL = 'call = "torch_pjrt::frozen_convolution('
with_dots = pytest.mark.skipif(
    not HAS_BF16_DOTS, reason="oneDNN has no instructions for bfloat16 here: convolutions are XLA's"
)


def frozen(model: Any) -> Callable[..., Any]:
    return torch.compile(model, backend="pjrt", dynamic=False, options={"freeze": True})


class Block(nn.Module):
    """Convolutions, whose results are added, with batch norms and activations."""

    def __init__(self, groups: int = 1, bias: bool = True, affine: bool = True, activation: nn.Module | None = None):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(16, 32, 3, padding=1, bias=bias)
        self.second = nn.Conv2d(32, 32, 3, padding=1, groups=groups, bias=bias)
        self.beside = nn.Conv2d(16, 32, 1, bias=bias)
        self.norms = nn.ModuleList([nn.BatchNorm2d(32, affine=affine) for _ in range(3)])
        self.activation = activation or nn.ReLU()
        for norm in self.norms:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
            if affine:
                nn.init.normal_(norm.weight)
                nn.init.normal_(norm.bias)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.activation(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        return self.activation(y + self.norms[2](self.beside(x)))


def exact(model: nn.Module, *inputs: torch.Tensor) -> Any:
    with torch.no_grad():
        return copy.deepcopy(model).double()(*(x.double() for x in inputs))


def near(mine: torch.Tensor, wanted: torch.Tensor) -> None:
    coarse = mine.dtype == torch.bfloat16
    scale = float(wanted.nan_to_num(0, 0, 0).abs().max())
    tolerance = {"rtol": 2e-2, "atol": 2e-2 * scale} if coarse else {"rtol": 1e-4, "atol": 1e-5 * scale}
    torch.testing.assert_close(mine.double(), wanted, equal_nan=True, **tolerance)


def images(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes or (2, 16, 40, 40))


BLOCKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "without biases": {"bias": False},
    "norms without weights": {"affine": False},
    "grouped": {"groups": 4},
    "depthwise": {"groups": 32},
    "relu6": {"activation": nn.ReLU6()},
    "another activation": {"activation": nn.SiLU()},
}


@pytest.mark.parametrize("name", BLOCKS)
def test_values(name: str, programs: list[str]) -> None:
    model, x = Block(**BLOCKS[name]), images()
    with torch.no_grad():
        near(frozen(model)(x), exact(model, x))
    assert programs[-1].count(CALL) == 3
    assert programs[-1].count("output_operand_alias<") == 1  # the sum is made by a convolution
    assert "stablehlo.rsqrt" not in programs[-1]
    assert not any(f"stablehlo.{op}" in programs[-1] for op in ("maximum", "clamp"))  # they are the call's


@with_dots
@pytest.mark.parametrize("name", BLOCKS)
def test_values_under_autocast(name: str, programs: list[str]) -> None:
    model, x = Block(**BLOCKS[name]), images()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        y = frozen(model)(x)
    assert y.dtype == torch.bfloat16
    near(y, exact(model, x))
    assert programs[-1].count(CALL) == 3


def test_what_is_computed_of_parameters_alone_is_computed_once(programs: list[str]) -> None:
    model, x = nn.Linear(64, 48), torch.randn(8, 64)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        near(frozen(model)(x), exact(model, x))
    assert "tensor<48x64xbf16>" in programs[-1]
    assert "tensor<48x64xf32>" not in programs[-1]  # no weight is cast


def changed_in_place(model: Block) -> None:
    with torch.no_grad():
        model.first.weight.mul_(-0.5)
        model.norms[1].running_var.add_(1)


def replaced(model: Block) -> None:
    model.first.weight = nn.Parameter(model.first.weight.detach() * 2)


def given_other_memory(model: Block) -> None:
    model.second.weight.data = model.second.weight.detach() * 2


def loaded(model: Block) -> None:
    model.load_state_dict({name: x * 1.5 for name, x in model.state_dict().items()})


def reloaded(model: Block) -> None:
    """Replaces a weight; its old memory is freed, and the next tensor of its size reuses it."""
    values = model.second.weight.detach() * 2
    model.second.weight.data = torch.empty(0)
    model.second.weight.data = values.clone()


def trained(model: Block) -> None:
    """PyTorch's fused kernels don't increment versions."""
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.AdamW(model.parameters(), lr=0.1, fused=True).step()


def run_in_training(model: Block) -> None:
    """A batch norm's kernel doesn't increment the versions of running statistics."""
    model.norms[1].train()(torch.randn(4, 32, 5, 5) * 3 + 1)
    model.norms[1].eval()


def written_as_data(model: Block) -> None:
    model.first.weight.data.mul_(-0.5)
    model.norms[0].running_mean.data.add_(1)


def written_by_numpy(model: Block) -> None:
    model.second.weight.detach().numpy()[3, 5, 1, 1] += 2


CHANGES = [
    changed_in_place,
    replaced,
    given_other_memory,
    loaded,
    reloaded,
    trained,
    run_in_training,
    written_as_data,
    written_by_numpy,
]


@pytest.mark.parametrize("change", CHANGES)
def test_parameters_that_change(change: Callable[[Block], None], programs: list[str]) -> None:
    model, x = Block(), images()
    call = frozen(model)
    with torch.no_grad():
        near(call(x), exact(model, x))
        made = len(programs)
        for _ in range(6):
            change(model)
            near(call(x), exact(model, x))
    assert len(programs) == made


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_images_and_weights(layout: str) -> None:
    model, x = Block(), LAYOUTS[layout](images())
    for convolution in (model.first, model.second):
        convolution.weight = nn.Parameter(LAYOUTS[layout](convolution.weight.detach()))
    with torch.no_grad():
        y = frozen(model)(x)
        assert y.stride() == model(x).stride()
        near(y, exact(model, x))


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU6()])
def test_special_values(activation: nn.Module) -> None:
    """oneDNN's own relu would return 0 for NaN."""
    model, x = Block(activation=activation), images()
    x[0, 3, 5, 7], x[1, 0, 0, 0], x[1, 2, 12, 12] = torch.nan, torch.inf, -torch.inf
    with torch.no_grad():
        y = frozen(model)(x)
        wanted = exact(model, x)
    assert wanted.isnan().any()
    near(y, wanted)


def test_what_is_needed_elsewhere() -> None:
    """The addend, and a convolution's result before its activation, are results themselves."""

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Conv2d(16, 16, 3, padding=1)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            added = x * 2
            first = self.inner(x)
            second = self.inner(first.relu()) + added  # the same weight again
            return added, first, second, second.relu(), self.inner(x) + self.inner(x * 3)

    model, x = Shared().eval(), images()
    with torch.no_grad():
        for mine, wanted in zip(frozen(model)(x), exact(model, x), strict=True):
            near(mine, wanted)


def test_who_else_is_given_the_parameter() -> None:
    weight, x = nn.Parameter(torch.randn(16, 16, 3, 3)), images()

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            self.count += 1  # a buffer that is written is no constant
            return F.conv2d(x, self.weight) * self.count, self.weight.flatten(1).t(), self.weight.sum()

    model = Both()
    call = frozen(model)
    with torch.no_grad():
        for count in (1, 2):
            y, view, total = call(x)
            near(y, F.conv2d(x.double(), weight.double()) * count)
            assert view.data_ptr() == weight.data_ptr()  # as in eager
            near(total, weight.double().sum())
    assert model.count == 2


def test_arguments_that_share_memory_that_is_written() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Conv2d(16, 16, 3)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return self.inner(y)

    torch.manual_seed(0)
    model, x = Writes().eval(), images()
    mine, wanted = x.clone(), x.double()
    call, double = frozen(model), copy.deepcopy(model).double()
    with torch.no_grad():
        for _ in range(3):
            near(call(mine, mine[:1]), double(wanted, wanted[:1]))
            near(mine, wanted)


def test_gradients_are_not_frozen(programs: list[str]) -> None:
    model, x = Block(), images()
    frozen(model)(x).sum().backward()
    assert model.first.weight.grad is not None
    assert not any(CALL in text for text in programs)


def test_sizes_that_vary() -> None:
    model = Block()
    call = torch.compile(model, backend="pjrt", options={"freeze": True})
    with torch.no_grad():
        for batch in (2, 3, 5):
            x = images(batch, 16, 24, 24)
            near(call(x), exact(model, x))


def test_parameters_that_count_no_versions() -> None:
    with torch.inference_mode():
        model, x = Block(), images()
        call = frozen(model)
        for _ in range(2):
            near(call(x), copy.deepcopy(model).double()(x.double()))
            model.first.weight.mul_(2)


OF_SEVERAL_RESULTS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "max": lambda x, w: x @ w + w.max(1).values + w.max(1).indices,
    "sort": lambda x, w: (x @ w.sort(0).values, w.sort(0).indices),
    "std_mean": lambda x, w: x * torch.std_mean(w, 0)[0] + torch.std_mean(w, 0)[1],
    "layer norm": lambda x, w: x @ F.layer_norm(w, [16]),
    "qr": lambda x, w: x @ torch.linalg.qr(w)[0].abs(),
    "fake quantization": lambda x, w: x @ torch.fake_quantize_per_tensor_affine(w, 0.1, 0, -128, 127),
    "views": lambda x, w: x @ w.split(8)[0].t().repeat(1, 2) + (w * 2).unbind(0)[3],
    "assertion": lambda x, w: (torch._assert_async((w < 100).all()), x @ (w * 2))[1],
}


@pytest.mark.parametrize("name", OF_SEVERAL_RESULTS)
def test_ops_of_several_results(name: str) -> None:
    weight, x = nn.Parameter(torch.randn(16, 16)), torch.randn(4, 16)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: torch.Tensor) -> Any:
            return OF_SEVERAL_RESULTS[name](x, self.weight)

    model = Model()
    call = frozen(model)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(call(x), model(x), rtol=1e-4, atol=1e-4)
            weight.mul_(1.5)


@pytest.mark.parametrize("kind", [nn.utils.weight_norm, weight_norm, spectral_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_weights_that_are_computed(kind: Callable[..., nn.Module], programs: list[str]) -> None:
    model, x = nn.Sequential(kind(nn.Conv2d(16, 32, 3)), nn.BatchNorm2d(32)).eval(), images()
    call = frozen(model)
    with torch.no_grad():
        for _ in range(2):
            near(call(x), exact(model, x))
            next(model.parameters()).data.mul_(1.5)
    assert CALL in programs[-1]
    (signature,) = re.findall(r"@main\((.*?)\) ->", programs[-1])
    if kind is not nn.utils.weight_norm:  # which leaves the weight in the module, as a result
        assert signature.count("tensor<") == 1  # the images


class Returns(nn.Module):
    """Results include values computed from parameters only, and a view of one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        doubled, halved = self.weight * 2, (self.weight / 2).t()
        return x @ doubled @ halved, doubled, halved[0]


def test_results_are_the_callers() -> None:
    model, x = Returns(), torch.randn(3, 4)
    call = frozen(model)
    with torch.no_grad():
        wanted = model(x)
        first = call(x)
        for result in first:
            result.fill_(7)
        second = call(x)
    torch.testing.assert_close(second, wanted)
    assert {x.data_ptr() for x in first}.isdisjoint(x.data_ptr() for x in second)


def test_two_models_in_two_threads() -> None:
    models, x = [Block(), Block()], images()
    with torch.no_grad():
        models[1].first.weight.mul_(-2)
    wanted = [exact(model, x) for model in models]
    call = frozen(lambda model, x: model(x))
    numbers = iter(range(2))

    def work() -> None:
        own = next(numbers)
        with torch.no_grad():
            for _ in range(20):
                near(call(models[own], x), wanted[own])

    in_two_threads(work)


def test_two_threads() -> None:
    model, x = Block(), images()
    wanted = exact(model, x)
    call = frozen(model)
    with torch.no_grad():
        call(x)

    def work() -> None:
        with torch.no_grad():
            for _ in range(30):
                near(call(x), wanted)

    in_two_threads(work)


def test_eager_beside_it() -> None:
    model, x = Block(), images()
    call = torch.compile(model, backend="pjrt", options={"freeze": True, "verify": True})
    with torch.no_grad():
        near(call(x), exact(model, x))


def test_weights_go_with_the_function() -> None:
    def run() -> None:
        torch._dynamo.reset()
        model = nn.Conv2d(512, 1024, 3).eval()  # 18 MiB
        with torch.no_grad():
            frozen(model)(images(1, 512, 4, 4))

    for _ in range(3):
        run()
    before = status("VmRSS")
    for _ in range(16):
        run()
    torch._dynamo.reset()
    assert status("VmRSS") - before < 144 << 20, "half of the weights"


OTHERWISE = """
import torch, torch_pjrt
from torch_pjrt import _C
texts = []
_C.set_program_listener(lambda _, text: texts.append(text))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3), torch.nn.BatchNorm2d(32), torch.nn.ReLU()).eval()
x = torch.randn(2, 16, 32, 32)
with torch.no_grad():
    y = torch.compile(model, backend="pjrt", options={"freeze": True})(x)
    torch.testing.assert_close(y, model(x), rtol=1e-4, atol=1e-4)
print(sum(text.count('call = "torch_pjrt::frozen_convolution(') for text in texts))
"""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, 1),
        ({"TORCH_PJRT_LIBRARY_KERNELS": "0"}, 0),
        ({"OMP_NUM_THREADS": "1"}, 1),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, 1),
    ],
    ids=str,
)
def test_other_processes(server: fresh.Server, environment: dict[str, str], expected: int) -> None:
    (reported,) = server.run(fresh.Job(OTHERWISE, environment=environment))
    assert reported.out.split() == [str(expected)]


def test_an_option_that_is_no_bool() -> None:
    with pytest.raises(Exception, match="option 'freeze' of backend 'pjrt' is True or False, not 1"):
        torch.compile(nn.Linear(2, 2), backend="pjrt", options={"freeze": 1})(torch.ones(2, 2))


def test_what_explain_reports() -> None:
    model, x = Block(), images()
    with torch.no_grad(), torch_pjrt.explain() as report:
        frozen(model)(x)
    assert "frozen_convolution" in str(report)
    assert "PyTorch's kernel" in str(report)
